//! Options: what a user allows (`--allow NAME`) or sets (`--set NAME=VALUE`) by name.
//!
//! Each suite declares the options that it knows as data; any other name is a usage error. Probes get
//! them as a map, with `allow-NAME` = `yes` for what is allowed.

use std::collections::{BTreeMap, BTreeSet};

use crate::point::Point;
use crate::sample::Failure;
use crate::suite::{Suite, UsageError};

/// Allows to load machine code that a user file or an argument names: shared objects, static libraries.
pub const ALLOW_CODE: &str = "allow-code";
/// What is allowed rather than set starts with this.
const ALLOW: &str = "allow-";

/// An option that a suite knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SuiteOption {
    /// The key in the map of options: `allow-physical` for `--allow physical`, `dax-device` for
    /// `--set dax-device=VALUE`.
    pub name: &'static str,
    /// What it enables or sets, in one line.
    pub enables: &'static str,
}

impl SuiteOption {
    /// How a user gives it: `--allow physical`, `--set dax-device=VALUE`.
    pub fn usage(&self) -> String {
        match self.name.strip_prefix(ALLOW) {
            Some(name) => format!("--allow {name}"),
            None => format!("--set {}=VALUE", self.name),
        }
    }
}

/// The options of the lab itself, for every suite.
pub const OF_LAB: &[SuiteOption] = &[SuiteOption {
    name: ALLOW_CODE,
    enables: "runs code that experiments or arguments name, with your rights: shared objects, static \
              libraries, lists of instructions",
}];

/// All options of some suites and of the lab, each name once, in alphabetical order.
pub fn known(suites: &[&dyn Suite]) -> Vec<SuiteOption> {
    let all = suites.iter().flat_map(|suite| suite.options()).chain(OF_LAB);
    let by_name: BTreeMap<_, _> = all.map(|option| (option.name, *option)).collect();
    by_name.into_values().collect()
}

/// Reads the words of `--allow` and `--set`.
///
/// # Errors
/// A name that no suite knows, with those that there are, or a word that is no `NAME=VALUE`.
pub fn read(
    suites: &[&dyn Suite],
    allow: &[String],
    set: &[String],
) -> Result<BTreeMap<String, String>, UsageError> {
    let known: BTreeSet<_> = known(suites).iter().map(|option| option.name).collect();
    let (allowed, settable): (Vec<&str>, Vec<&str>) =
        known.iter().partition(|name| name.starts_with(ALLOW));
    let allowed: Vec<_> = allowed.iter().filter_map(|name| name.strip_prefix(ALLOW)).collect();
    let mut options = BTreeMap::new();
    for name in allow {
        if !allowed.contains(&name.as_str()) {
            return Err(unknown("--allow", name, &allowed));
        }
        options.insert(format!("{ALLOW}{name}"), "yes".to_owned());
    }
    for text in set {
        let (name, value) = text.split_once('=').ok_or_else(|| {
            UsageError::new(format!(
                "--set: '{text}' is not NAME=VALUE; NAME is one of {}",
                settable.join(", ")
            ))
        })?;
        if !settable.contains(&name) {
            return Err(unknown("--set", name, &settable));
        }
        options.insert(name.to_owned(), value.to_owned());
    }
    Ok(options)
}

fn unknown(option: &str, name: &str, known: &[&str]) -> UsageError {
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    UsageError::new(format!("{option}: unknown name '{name}'; there are: {known}"))
}

/// What the user set, without what was allowed: samples depend on the one and not on the other.
pub fn values(options: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let is_set = |(name, _): &(&String, &String)| !name.starts_with(ALLOW);
    options.iter().filter(is_set).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Whether the user allowed what an option enables.
pub fn is_allowed(options: &BTreeMap<String, String>, name: &str) -> bool {
    options.get(name).is_some_and(|value| value == "yes")
}

/// Whether a point may be made and measured: the code that it names is loaded only if that is allowed.
///
/// # Errors
/// Unavailable unless the user gave `--allow code`.
pub fn check_point(
    suite: &dyn Suite,
    experiment: &str,
    point: &Point,
    options: &BTreeMap<String, String>,
) -> Result<(), Failure> {
    suite.code(experiment, point).map_or(Ok(()), |what| check_code(options, &what))
}

/// Whether code from outside may be loaded; `what` is the file. Asked before any loader or linker
/// reads it, only where something is measured.
///
/// # Errors
/// Unavailable unless the user gave `--allow code`.
pub fn check_code(options: &BTreeMap<String, String>, what: &str) -> Result<(), Failure> {
    if is_allowed(options, ALLOW_CODE) {
        return Ok(());
    }
    let why = format!("{what} is code, which runs with your rights and was not allowed");
    Err(Failure::unavailable(why, "--allow code, if you trust it"))
}

/// The same for code that an argument of a command line names.
///
/// # Errors
/// Names the argument and the code, unless the user gave `--allow code`.
pub fn check_code_argument(
    options: &BTreeMap<String, String>,
    argument: &str,
    what: &str,
) -> Result<(), UsageError> {
    check_code(options, what).map_err(|failure| {
        UsageError::new(format!("{argument}: {}; add --allow code if you trust it", failure.why))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn unknown_names_are_refused_with_those_that_there_are() {
        let given = read(&[], &words(&["code"]), &[]).unwrap();
        assert_eq!(given, BTreeMap::from([("allow-code".to_owned(), "yes".to_owned())]));
        let refused = |allow: &[&str], set: &[&str]| {
            read(&[], &words(allow), &words(set)).unwrap_err().to_string()
        };
        let line = refused(&["everything"], &[]);
        assert_eq!(line, "--allow: unknown name 'everything'; there are: code");
        assert!(refused(&[], &["allow-code=yes"]).contains("unknown name 'allow-code'"));
        assert!(refused(&[], &["x"]).contains("not NAME=VALUE"));
    }

    #[test]
    fn code_is_loaded_only_where_it_is_allowed() {
        let options = |value: &str| BTreeMap::from([(ALLOW_CODE.to_owned(), value.to_owned())]);
        assert!(check_code(&options("yes"), "./mine.so").is_ok());
        for refused in [BTreeMap::new(), options("no")] {
            let failure = check_code(&refused, "./mine.so").unwrap_err();
            assert!(failure.to_string().contains("--allow code"), "{failure}");
            let fault = check_code_argument(&refused, "--list", "./mine.so").unwrap_err();
            let line = fault.to_string();
            assert!(
                line.starts_with("--list: ./mine.so") && line.contains("--allow code"),
                "{line}"
            );
        }
    }
}
