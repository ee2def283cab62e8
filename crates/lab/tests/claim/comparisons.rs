//! Which points a claim, a headline or a table compares, so that a round measures them next to each other.

use std::collections::BTreeSet;

use lab::comparison;
use lab::experiment::Experiment;
use lab::headline::Headline;

use crate::claim;
use crate::made_up::{EXPERIMENT, MadeUp, product};

fn experiment() -> Experiment {
    let points = product(&["glibc", "apex", "naive"], &["4 KiB", "64 KiB"], &["0", "2"]);
    MadeUp::new(points).experiment()
}

/// Returns the compared points of the experiment, e.g. `apex 4 KiB 0`.
fn sets(
    mut experiment: Experiment,
    claims: &[&str],
    headlines: &[Headline],
) -> Vec<BTreeSet<String>> {
    let claims: Vec<_> = claims.iter().map(|keys| claim(keys)).collect();
    comparison::set(std::slice::from_mut(&mut experiment), &claims, headlines);
    let name = |point: &lab::point::Point| {
        ["function", "length", "threads"].map(|factor| point.text(factor)).join(" ")
    };
    experiment.compared.iter().map(|set| set.iter().map(name).collect()).collect()
}

fn assert_sets(claims: &[&str], expected: &[&[&str]]) {
    let expected: Vec<BTreeSet<String>> =
        expected.iter().map(|set| set.iter().map(|name| (*name).into()).collect()).collect();
    assert_eq!(sets(experiment(), claims, &[]), expected, "{claims:?}");
}

#[test]
fn both_sides_of_a_ratio_are_compared_for_each_level() {
    let ratio = "where = { threads = 0 }\nexpect = { ratio_of = { function = \"apex\" }, to = { function = \"glibc\" }, \
                 at_least = 1.0, each = [\"length\"] }";
    let sets: [&[&str]; 2] =
        [&["glibc 4 KiB 0", "apex 4 KiB 0"], &["glibc 64 KiB 0", "apex 64 KiB 0"]];
    assert_sets(&[ratio], &sets);
    // A factor whose level a side names is compared across its levels.
    let across = "where = { length = \"4 KiB\" }\nexpect = { ratio_of = { function = \"apex\" }, to = { function = \
                  \"glibc\", threads = 0 }, at_least = 1.0, each = [\"threads\"] }";
    assert_sets(&[across], &[&["glibc 4 KiB 0", "apex 4 KiB 0", "apex 4 KiB 2"]]);
    // Claims with a common point make one set.
    let of_length = "where = { function = \"apex\", threads = 0 }\nexpect = { ratio_of = { length = \"4 KiB\" }, to = { \
                     length = \"64 KiB\" }, at_least = 1.0 }";
    assert_sets(&[ratio, of_length], &[&sets.concat()]);
}

#[test]
fn trends_contests_and_baselines_are_compared() {
    let of_glibc = "where = { function = \"glibc\" }\nexpect";
    let rises =
        format!("{of_glibc} = {{ shape = \"rises\", along = \"length\", each = [\"threads\"] }}");
    let sets: [&[&str]; 2] =
        [&["glibc 4 KiB 0", "glibc 64 KiB 0"], &["glibc 4 KiB 2", "glibc 64 KiB 2"]];
    assert_sets(&[&rises], &sets);
    let winner = "where = { function = [\"glibc\", \"apex\"], threads = 2 }\nexpect = { winner_changes = \"function\", \
                  along = \"length\" }";
    assert_sets(
        &[winner],
        &[&["glibc 4 KiB 2", "apex 4 KiB 2"], &["glibc 64 KiB 2", "apex 64 KiB 2"]],
    );
    let overheads = "where = { length = \"4 KiB\" }\nexpect = { ratio_of = { function = \"apex\", threads = 2 }, to = { \
                     function = \"naive\", threads = 2 }, at_least = 1.0, \
                     baselines = [{ threads = 0 }, { threads = 0 }] }";
    let set = ["apex 4 KiB 0", "apex 4 KiB 2", "naive 4 KiB 0", "naive 4 KiB 2"];
    assert_sets(&[overheads], &[&set]);
}

#[test]
fn claims_that_compare_nothing_join_nothing() {
    assert_sets(&["expect = { at_least = 1.0 }", "expect = { never = { above = 1.0 } }"], &[]);
    let ratio = "expect = { ratio_of = { function = \"apex\" }, to = { function = \"glibc\" }, at_least = 1.0 }";
    assert_sets(&[&format!("unmeasurable = \"no such machine\"\n{ratio}")], &[]);
    let mut other = experiment();
    other.name = "other".into();
    assert!(sets(other, &[ratio], &[]).is_empty());
}

#[test]
fn alternatives_and_headlines_are_compared() {
    let mut experiment = experiment();
    experiment.alternatives = Some("function".into());
    let all = sets(experiment.clone(), &[], &[]);
    assert_eq!((all.len(), all.iter().all(|set| set.len() == 3)), (4, true), "{all:?}");
    experiment.alternatives = None;
    let headline = format!(
        "id = \"it\"\nexperiment = \"{EXPERIMENT}\"\nsays = [\"{{times}}\"]\n[slots]\n\
         times = {{ ratio_of = {{ function = \"naive\" }}, to = {{ threads = 2 }} }}\n"
    );
    let headline: Headline = toml::from_str(&headline).unwrap();
    let expected = ["naive 4 KiB 0", "glibc 4 KiB 2"].map(String::from).into();
    assert_eq!(sets(experiment, &[], &[headline]), [expected]);
}
