//! The routes held together, on made-up journals: no machine here has all of them.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::collections::BTreeMap;

use lab::experiment::Profile;
use lab::journal::{FORMAT, Run, RunRecord};
use lab::point::Point;
use lab::sample::{Clock, Sample};

/// A run of 20 rounds with these parts of a page fault, ns.
struct MadeUp {
    u2k: f64,
    kernel: f64,
    k2u: f64,
    round_trip: f64,
    u2t: f64,
}

const SOUND: MadeUp =
    MadeUp { u2k: 180.0, kernel: 700.0, k2u: 110.0, round_trip: 990.0, u2t: 270.0 };

impl MadeUp {
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
            // Rounds differ by a little, as real ones do.
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
        Run { record: record(), samples, folder: "made-up".into() }
    }

    fn breaks(&self) -> Vec<String> {
        crossing::consistency::breaks(&self.run())
    }
}

fn sample(experiment: &str, point: &Point, round: u32, values: BTreeMap<String, f64>) -> Sample {
    let clock = Clock {
        tsc_hertz: 2e9,
        tsc_step: 2,
        tsc_overhead: 20,
        core_before: 4e9,
        core_after: 4e9,
        second_before: None,
        second_after: None,
    };
    Sample {
        experiment: experiment.into(),
        point: point.clone(),
        round,
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
        environments: BTreeMap::new(),
        experiments: BTreeMap::new(),
        metrics: BTreeMap::new(),
    }
}

#[test]
fn sound_figures_break_nothing() {
    assert_eq!(SOUND.breaks(), Vec::<String>::new());
}

#[test]
fn a_tracepoint_before_the_entry_is_a_break() {
    let breaks = MadeUp { u2t: 150.0, ..SOUND }.breaks();
    assert_eq!(breaks.len(), 1, "{breaks:?}");
    assert!(breaks[0].contains("tracepoint") && breaks[0].contains("isolation off"), "{breaks:?}");
}

#[test]
fn parts_beside_the_whole_are_a_break() {
    for round_trip in [900.0, 1100.0] {
        let breaks = MadeUp { round_trip, ..SOUND }.breaks();
        assert_eq!(breaks.len(), 1, "{breaks:?}");
        assert!(breaks[0].contains("round trip"), "{breaks:?}");
    }
    // Four stamps, a step of 1 ns each, may be that far off.
    assert!(MadeUp { round_trip: 987.0, ..SOUND }.breaks().is_empty());
}

#[test]
fn figures_of_another_boot_are_not_held_against_these() {
    let mut run = MadeUp { u2t: 150.0, ..SOUND }.run();
    for sample in run.samples.iter_mut().filter(|s| s.experiment == "crossing/tracepoint") {
        sample.environment = "e2".into();
    }
    assert!(crossing::consistency::breaks(&run).is_empty());
}

#[test]
fn what_is_not_measured_breaks_nothing() {
    let mut run = SOUND.run();
    run.samples.clear();
    assert!(crossing::consistency::breaks(&run).is_empty());
}
