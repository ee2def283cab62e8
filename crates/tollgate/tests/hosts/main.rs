//! Other hosts over a real SSH server on this machine: checks, runs, and faults of connections, workers and labs.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod faults;
#[path = "../harness/mod.rs"]
mod harness;
mod refusals;
mod roles;
mod runs;
mod sshd;

use std::collections::BTreeMap;
use std::process::{Command, Output};

use harness::Bench;
use lab::journal::Run;

/// Returns a command whose connections have their sockets in the bench.
pub(crate) fn command(bench: &Bench, arguments: &[&str]) -> Command {
    let mut command = bench.command(arguments);
    command.env("XDG_RUNTIME_DIR", bench.path());
    command
}

/// Runs the program until it exits.
pub(crate) fn run(bench: &Bench, arguments: &[&str]) -> Output {
    command(bench, arguments).output().unwrap()
}

/// Runs the program, which must exit with `status`, and returns its streams.
#[track_caller]
pub(crate) fn exits(bench: &Bench, arguments: &[&str], status: i32) -> (String, String) {
    let Output { status: ended, stdout, stderr } = run(bench, arguments);
    let (output, errors) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert_eq!(ended.code(), Some(status), "{arguments:?}: {output}{errors}");
    (output, errors)
}

/// Runs a measurement, which may fail only because a busy machine made points void.
#[track_caller]
pub(crate) fn measure(bench: &Bench, arguments: &[&str]) -> Output {
    let output = run(bench, arguments);
    let newest = lab::journal::newest(&bench.path().join("results"));
    let errors = String::from_utf8_lossy(&output.stderr);
    harness::succeeded(&output, &newest.unwrap_or_else(|why| panic!("{why}: {errors}")));
    output
}

/// Returns how often each sample of an experiment was measured completely, by its point, twin and round.
pub(crate) fn counts(run: &Run, experiment: &str) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    let samples = run.samples.iter().filter(|sample| sample.experiment == experiment);
    for sample in samples.filter(|sample| sample.is_complete()) {
        let key = format!("{} {} {}", sample.point, sample.twin, sample.round);
        *counts.entry(key).or_default() += 1;
    }
    counts
}

/// Returns the failures of a run other than points that are void in every round.
pub(crate) fn failures(run: &Run) -> Vec<String> {
    let errors = run.samples.iter().filter_map(|sample| sample.error.as_ref());
    let is_void = |kind| kind == lab::sample::FailureKind::Void;
    errors.filter(|error| !is_void(error.kind)).map(ToString::to_string).collect()
}
