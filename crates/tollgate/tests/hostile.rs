//! Arbitrary TOML of experiments, claims and figures is parsed or a one-line error, without panics, hangs or
//! excessive memory. `PROPTEST_CASES` sets the number of cases.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

#[path = "../../lab/tests/mutation/mod.rs"]
mod mutation;
#[allow(dead_code, reason = "not all of it is tested here")]
#[path = "../src/suites.rs"]
mod suites;

use lab::catalogue::{Catalogue, DataFile};
use lab::data::DataError;
use lab::experiment::{Experiment, Profile};
use mutation::{bounded, edits, is_one_line, mutated};
use proptest::prelude::*;
use suites::SUITES;

/// A valid user file.
const OWN: &str = r#"
[[experiment]]
suite = "planted"
name = "mine"
method = "delay"
about = "A user's experiment"
metric = "time"
baseline = { effect = "0%", disturbance = "calm" }
sweeps = [["effect"], ["effect", "disturbance"]]
exclude = [{ effect = "2%", disturbance = ["calm"] }]
twins = [{ effect = "0%" }]
batch = 8
limit = "5 s"
[experiment.factors]
effect = ["0%", "1%", "2%"]
disturbance = ["calm", "drift-and-stalls"]
[experiment.quick]
rounds = 3
budget = "1 ms"
resolve = "5%"

[[claim]]
id = "mine"
says = "One percent is found"
source = "tollgate"
experiment = "planted/delay"
where = { disturbance = "calm" }
expect = { ratio_of = { effect = "1%" }, to = { effect = "0%" }, at_least = 1.0, at_most = 1.02 }

[[figure]]
id = "mine"
title = "Mine"
experiment = "planted/delay"
x = "effect"
series = "disturbance"
where = { effect = ["0%", "1%"] }
"#;

/// Loads the catalogue of a data file; a user's file may refer to the experiments of `planted`.
fn catalogue(text: &str, suite: Option<&str>) -> Result<Catalogue<'static>, DataError> {
    let mut files = vec![DataFile::read("my.toml", text, suite)?];
    if suite.is_none() {
        let planted = planted::SUITE.data().experiments;
        files.push(DataFile::read("planted.toml", planted, Some("planted"))?);
    }
    Catalogue::of_files(SUITES, files)
}

/// Loads a data file as the program does.
fn read(text: &str, suite: Option<&str>) {
    bounded(|| {
        let catalogue = match catalogue(text, suite) {
            Ok(catalogue) => catalogue,
            Err(why) => return is_one_line(&why),
        };
        let mut experiments: Vec<Experiment> = Vec::new();
        for profile in [Profile::Quick, Profile::Full] {
            match catalogue.experiments(profile) {
                Ok(read) => experiments.extend(read),
                Err(why) => is_one_line(&why),
            }
        }
        for experiment in &experiments {
            let suite = lab::suite::find(SUITES, &experiment.suite).unwrap();
            let _ = lab::plan::expected(experiment, suite);
            assert!(experiment.within_limits().is_ok());
        }
        for claim in catalogue.claims().inspect_err(|why| is_one_line(why)).unwrap_or_default() {
            for experiment in &experiments {
                let _ = lab::claim::needs(&claim, experiment);
            }
        }
        let _ = catalogue.figures().inspect_err(|why| is_one_line(why));
    });
}

proptest! {
    // A case parses a whole file of a suite, which takes milliseconds.
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        cases: ProptestConfig::default().cases.min(64).max(std::env::var("PROPTEST_CASES")
            .ok().and_then(|cases| cases.parse().ok()).unwrap_or(0)),
        ..ProptestConfig::default()
    })]

    #[test]
    fn an_edited_user_file_is_valid_or_an_error(edits in edits()) {
        read(&mutated(OWN, &edits), None);
    }

    #[test]
    fn an_edited_file_of_a_suite_is_valid_or_an_error(
        at in 0..SUITES.len(),
        file in 0usize..4,
        edits in edits(),
    ) {
        let suite = SUITES[at];
        let data = suite.data();
        let text = [data.experiments, data.claims, data.promises, data.figures][file];
        read(&mutated(text, &edits), Some(suite.name()));
    }

    #[test]
    fn any_text_is_valid_or_an_error(text in ".{0,300}") {
        read(&text, None);
    }
}

#[test]
fn the_unedited_user_file_is_valid() {
    let catalogue = catalogue(OWN, None).unwrap();
    let experiments = catalogue.experiments(Profile::Quick).unwrap();
    assert_eq!(experiments[0].points.len(), 5);
    assert_eq!(catalogue.figures().unwrap().len(), 1);
    assert_eq!(catalogue.claims().unwrap().len(), 1);
}
