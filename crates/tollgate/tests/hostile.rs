//! TOML of experiments, claims and figures as anybody may write it: read or refused in one line, without a
//! panic, a hang or an explosion. `PROPTEST_CASES` sets how many are tried.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

#[path = "../../lab/tests/mutation/mod.rs"]
mod mutation;

use lab::experiment::{Experiment, Profile, of_suite};
use lab::suite::Suite;
use mutation::{bounded, edits, is_one_line, mutated};
use proptest::prelude::*;

static SUITES: [&dyn Suite; 6] = [
    &copy::SUITE,
    &crossing::SUITE,
    &enclave::SUITE,
    &bounds::SUITE,
    &stream::SUITE,
    &planted::SUITE,
];

/// What a user may write in one file.
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

/// Reads a text as every kind of file, as the program would.
fn read(text: &str, suite: Option<&str>) {
    bounded(|| {
        let mut experiments: Vec<Experiment> = Vec::new();
        for profile in [Profile::Quick, Profile::Full] {
            match lab::experiment::read("my.toml", text, suite, &SUITES, profile) {
                Ok(read) => experiments.extend(read),
                Err(why) => is_one_line(&why),
            }
        }
        for experiment in &experiments {
            let suite = lab::suite::find(&SUITES, &experiment.suite).unwrap();
            let _ = lab::plan::expected(experiment, suite);
            assert!(experiment.within_limits().is_ok());
        }
        match lab::claim::read("my.toml", text) {
            Ok(claims) => {
                experiments.extend(of_suite(&planted::SUITE, Profile::Standard).unwrap());
                for claim in claims {
                    if let Err(why) = lab::claim::check(&claim, &SUITES, &experiments) {
                        is_one_line(&why);
                    }
                    for experiment in &experiments {
                        let _ = lab::claim::needs(&claim, experiment);
                    }
                }
            }
            Err(why) => is_one_line(&why),
        }
        if let Err(why) = report::figure::read("my.toml", text) {
            is_one_line(&why);
        }
    });
}

proptest! {
    // A case reads a suite's whole file, which takes milliseconds.
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        cases: ProptestConfig::default().cases.min(64).max(std::env::var("PROPTEST_CASES")
            .ok().and_then(|cases| cases.parse().ok()).unwrap_or(0)),
        ..ProptestConfig::default()
    })]

    #[test]
    fn an_edited_user_file_is_read_or_refused(edits in edits()) {
        read(&mutated(OWN, &edits), None);
    }

    #[test]
    fn an_edited_file_of_a_suite_is_read_or_refused(
        at in 0usize..6,
        file in 0usize..4,
        edits in edits(),
    ) {
        let suite = SUITES[at];
        let data = suite.data();
        let text = [data.experiments, data.claims, data.promises, data.figures][file];
        read(&mutated(text, &edits), Some(suite.name()));
    }

    #[test]
    fn any_text_is_read_or_refused(text in ".{0,300}") {
        read(&text, None);
    }
}

#[test]
fn the_user_file_is_right_as_it_stands() {
    let experiments = lab::experiment::read("my.toml", OWN, None, &SUITES, Profile::Quick).unwrap();
    assert_eq!(experiments[0].points.len(), 5);
    assert_eq!(lab::claim::read("my.toml", OWN).unwrap().len(), 1);
    assert_eq!(report::figure::read("my.toml", OWN).unwrap().len(), 1);
}
