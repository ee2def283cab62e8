//! Methods that need no clock for their checks count and verify on an emulated CPU, and report no time.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod harness;

use std::collections::BTreeSet;

use harness::Bench;
use lab::sample::{FailureKind, Sample};

/// Experiments with the metrics that they may have without a clock, and one that each valid sample has.
const UNTIMED: [(&str, &[&str], &str); 3] = [
    ("copy/frames", &["checked", "frames", "lost", "repeated", "torn"], "frames"),
    (
        "crossing/round-trips",
        &["faults_counted", "faults_made", "operations", "pages_touched", "slept"],
        "operations",
    ),
    ("bounds/kernels", &["memory", "operations_checked"], "operations_checked"),
];

/// Checks that a sample has counts only, or that its level needs what an emulated CPU lacks.
#[track_caller]
fn is_counted(sample: &Sample, metrics: &[&str], count: &str) -> bool {
    assert!(sample.clock.is_none() && sample.histograms.is_empty(), "{sample:?}");
    if let Some(failure) = &sample.error {
        let is_excused = !failure.kind.is_fault() || failure.kind == FailureKind::Void;
        assert!(is_excused && sample.values.is_empty(), "{}: {failure}", sample.point);
        return false;
    }
    let is_known = |name: &String| metrics.contains(&name.as_str());
    assert!(sample.values.keys().all(is_known), "an emulated CPU has no time: {sample:?}");
    // A void sample may have stopped before its end.
    sample.void.is_some() || sample.values[count] > 0.0
}

#[test]
fn what_needs_no_clock_is_counted_on_an_emulated_cpu() {
    if machine::topology::allowed_cpus().len() < 2 {
        return machine::untested::note("frames and trips without a clock", &"there is one CPU");
    }
    let bench = Bench::new();
    let experiments = UNTIMED.map(|(name, ..)| name);
    let how = ["--rounds", "1", "--quiet", "--profile", "quick"];
    let words = [&["run"], &experiments[..], &how].concat();
    let mut command = bench.command_with_user_cache(&words);
    // As in a guest of QEMU.
    let output = command.env("TOLLGATE_EMULATED", "yes").output().unwrap();
    let folder = lab::journal::newest(&bench.path().join("results")).unwrap();
    harness::succeeded(&output, &folder);
    let samples = bench.journal().samples;
    for (name, metrics, count) in UNTIMED {
        let of_experiment: Vec<_> =
            samples.iter().filter(|sample| sample.experiment == name).collect();
        let counted = of_experiment.iter().filter(|one| is_counted(one, metrics, count));
        let counted: BTreeSet<_> = counted.map(|sample| &sample.point).collect();
        assert!(counted.len() > 3, "{name}: {} of {} points", counted.len(), of_experiment.len());
    }
}
