//! Consistency of the routes, on synthetic journals, since few machines have all routes.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::collections::BTreeMap;

use lab::experiment::Profile;
use lab::journal::{FORMAT, Run, RunRecord};
use lab::point::Point;
use lab::sample::{Clock, Sample};

/// Parts of a page fault, ns, for a run of 20 rounds.
struct Parts {
    u2k: f64,
    kernel: f64,
    k2u: f64,
    round_trip: f64,
    u2t: f64,
}

const CONSISTENT: Parts =
    Parts { u2k: 180.0, kernel: 700.0, k2u: 110.0, round_trip: 990.0, u2t: 270.0 };

impl Parts {
    fn run(&self) -> Run {
        let stamped = Point::from([
            ("route", "patched"),
            ("kind", "page-fault"),
            ("isolation", "off"),
            ("crossings", "1000"),
        ]);
        let traced = Point::from([("event", "page-fault"), ("through", "tracefs")]);
        let mut samples = Vec::new();
        for round in 0..20 {
            // Rounds differ slightly, as in real runs.
            let drift = 1.0 + 0.001 * f64::from(round % 5);
            let values = [
                ("u2k", self.u2k),
                ("kernel", self.kernel),
                ("k2u", self.k2u),
                ("round_trip", self.round_trip),
            ];
            let values = values.map(|(name, value)| (name.to_owned(), value * drift));
            samples.push(sample("crossing/one-way", &stamped, round, values.into()));
            let values = [("u2t".to_owned(), self.u2t * drift)];
            samples.push(sample("crossing/tracepoint", &traced, round, values.into()));
        }
        Run { record: record(), samples, folder: "synthetic".into(), inconsistencies: Vec::new() }
    }

    fn contradictions(&self) -> Vec<String> {
        crossing::consistency::contradictions(&self.run())
    }
}

fn sample(experiment: &str, point: &Point, round: u32, values: BTreeMap<String, f64>) -> Sample {
    let clock = Clock {
        tsc_hertz: 2e9,
        tsc_step: 2,
        core_before: 4e9,
        core_after: 4e9,
        ..Clock::default()
    };
    Sample {
        experiment: experiment.into(),
        point: point.clone(),
        round,
        session: 1,
        host: "here".into(),
        environment: "e1".into(),
        attempt: 1,
        values,
        clock: Some(clock),
        ..Sample::default()
    }
}

fn record() -> RunRecord {
    RunRecord {
        format: FORMAT,
        program: "0".into(),
        name: "here-standard-1".into(),
        host: "here".into(),
        profile: Profile::Standard,
        seed: 1,
        start: "2026-01-01T00:00:00Z".into(),
        options: BTreeMap::new(),
        nice: 0,
        code: BTreeMap::new(),
        sides: Vec::new(),
        guests: None,
        hosts: Vec::new(),
        sessions: Vec::new(),
        environments: BTreeMap::new(),
        experiments: BTreeMap::new(),
        metrics: BTreeMap::new(),
    }
}

#[test]
fn consistent_results_have_no_contradictions() {
    assert_eq!(CONSISTENT.contradictions(), Vec::<String>::new());
}

#[test]
fn a_time_to_the_tracepoint_below_user_to_kernel_is_a_contradiction() {
    let lines = Parts { u2t: 150.0, ..CONSISTENT }.contradictions();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("tracepoint") && lines[0].contains("isolation off"), "{lines:?}");
}

#[test]
fn parts_that_do_not_sum_to_the_round_trip_are_a_contradiction() {
    for round_trip in [900.0, 1100.0] {
        let lines = Parts { round_trip, ..CONSISTENT }.contradictions();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("round trip"), "{lines:?}");
    }
    // Four stamps may each be off by a step of 1 ns.
    assert!(Parts { round_trip: 987.0, ..CONSISTENT }.contradictions().is_empty());
}

#[test]
fn results_of_different_boots_are_not_compared() {
    let mut run = Parts { u2t: 150.0, ..CONSISTENT }.run();
    for sample in run.samples.iter_mut().filter(|s| s.experiment == "crossing/tracepoint") {
        sample.environment = "e2".into();
    }
    assert!(crossing::consistency::contradictions(&run).is_empty());
}

#[test]
fn a_run_without_samples_has_no_contradictions() {
    let mut run = CONSISTENT.run();
    run.samples.clear();
    assert!(crossing::consistency::contradictions(&run).is_empty());
}
