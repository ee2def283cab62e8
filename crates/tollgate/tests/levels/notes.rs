//! Notes of levels that were not measured: one for each experiment and cause, which names all of them.

use std::collections::{BTreeMap, BTreeSet};

use crate::coverage::{ExperimentLevel, Nearest, SUITES};

type Declared = BTreeMap<ExperimentLevel, Nearest>;

/// Levels of each factor.
type ByFactor = BTreeMap<String, BTreeSet<String>>;

/// Groups levels by experiment and cause: a note for each, with the reason of its first level.
pub(crate) fn grouped(
    levels: impl Iterator<Item = (ExperimentLevel, String)>,
    declared: &Declared,
) -> Vec<(String, String)> {
    let mut groups: BTreeMap<(String, String), (String, ByFactor)> = BTreeMap::new();
    for (ExperimentLevel { experiment, factor, level }, why) in levels {
        let key = (experiment, without_numbers(&why));
        let (_, named) = groups.entry(key).or_insert_with(|| (why, ByFactor::new()));
        named.entry(factor).or_default().insert(level);
    }
    let note = |((experiment, _), (why, factors)): ((String, String), (String, ByFactor))| {
        let named = factors.into_iter().map(|(factor, levels)| {
            let names = fold_classes(&experiment, &factor, levels, declared);
            format!("{factor}={}", Vec::from_iter(names).join(","))
        });
        let named = named.collect::<Vec<_>>().join(" ");
        (format!("{experiment}: {named}"), why)
    };
    groups.into_iter().map(note).collect()
}

/// Removes measured numbers, in which reasons with one cause differ. Numbers in names, e.g. in AVX-512, remain.
fn without_numbers(why: &str) -> String {
    let is_number = |word: &&str| {
        let word = word.trim_start_matches(|one: char| !one.is_alphanumeric());
        word.starts_with(|one: char| one.is_ascii_digit())
    };
    why.split_whitespace().filter(|word| !is_number(word)).collect::<Vec<_>>().join(" ")
}

/// Replaces the forms of a class by the class if all that the experiment has of it are among them.
fn fold_classes(
    experiment: &str,
    factor: &str,
    mut levels: BTreeSet<String>,
    declared: &Declared,
) -> BTreeSet<String> {
    let mut classes: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let of_factor = |one: &&ExperimentLevel| one.experiment == experiment && one.factor == factor;
    for one in declared.keys().filter(of_factor) {
        if let Some(class) = class(one, declared) {
            classes.entry(class).or_default().insert(one.level.clone());
        }
    }
    for (class, forms) in classes.into_iter().filter(|(_, forms)| forms.len() > 1) {
        if forms.is_subset(&levels) {
            levels.retain(|level| !forms.contains(level));
            levels.insert(format!("class {class}"));
        }
    }
    levels
}

/// Returns the class of an instruction form, by which its samples are grouped.
fn class(level: &ExperimentLevel, declared: &Declared) -> Option<String> {
    let method = lab::suite::find_method(&SUITES, "bounds", "instructions").unwrap();
    let listed = ExperimentLevel { experiment: "bounds/instructions".into(), ..level.clone() };
    (level.factor == "form").then(|| method.group(&declared.get(&listed)?.point)).flatten()
}
