//! Faults of probes and workers: each costs one sample, whose error states the cause.

mod harness;

use std::collections::BTreeSet;
use std::time::Duration;

use harness::{Bench, TIMEOUT, by_level};
use lab::sample::{FailureKind, Sample};

#[test]
fn every_fault_is_a_sample_with_its_cause() {
    let bench = Bench::new();
    let output = bench.run(&["run", "planted/faults"]);
    assert_eq!(output.status.code(), Some(1));
    let screen = String::from_utf8_lossy(&output.stdout);
    assert!(screen.contains("\nfailed        "), "{screen}");
    assert!(screen.contains(" samples in planted/faults: crashed\n"), "{screen}");
    let errors = String::from_utf8_lossy(&output.stderr);
    let reported: Vec<&str> =
        errors.lines().filter_map(|line| line.strip_prefix("planted/faults fault=")).collect();
    let faults: BTreeSet<&str> =
        reported.iter().map(|line| line.split(',').next().unwrap()).collect();
    assert!(!faults.is_empty(), "{errors}");
    assert_eq!(faults.len(), reported.len(), "each failure is reported once: {errors}");
    let line = errors.lines().last().unwrap();
    let run = bench.journal();
    let levels = by_level(&run, "planted/faults", "fault");
    let expected = [
        ("segv", FailureKind::Crashed, "SIGSEGV"),
        ("illegal", FailureKind::Crashed, "SIGILL"),
        ("killed", FailureKind::Crashed, "SIGKILL"),
        ("exit", FailureKind::Crashed, "status 7"),
        ("panic", FailureKind::Crashed, "planted at crates/suites/planted/src/fault.rs:"),
        ("nonsense", FailureKind::Failed, "42 is the answer"),
        ("check", FailureKind::Check, "byte 3 is 7, not 8"),
        ("infinite", FailureKind::Check, "inf"),
        ("hang", FailureKind::Timeout, "6.0 s"),
        ("endless", FailureKind::Failed, "a line of over 4194304 bytes: 'xxx"),
        (
            "flood",
            FailureKind::Failed,
            "the probe: it sent a message to other roles, and its experiment has none",
        ),
        ("other", FailureKind::Failed, "it answered order '0' instead of"),
        ("undeclared", FailureKind::Check, "'speed' is not a metric of its method"),
        ("histogram", FailureKind::Check, "the histogram 'time' is not an HdrHistogram"),
    ];
    for (fault, kind, why) in expected {
        let [sample] = levels[fault].as_slice() else { panic!("{fault}: not one row") };
        let error = sample.error.as_ref().unwrap();
        assert_eq!(error.kind, kind, "{fault}: {error}");
        assert!(error.why.contains(why), "{fault}: {error}");
    }
    // A busy machine may leave these void in their only round.
    let mut busy = 0;
    for valid in ["none", "orphan"] {
        for error in levels[valid].iter().filter_map(|sample| sample.error.as_ref()) {
            assert_eq!(error.kind, FailureKind::Void, "{valid}: {error}");
            busy += 1;
        }
    }
    let failed = expected.len() + busy;
    assert!(line.contains(&format!("{failed} samples failed")), "{line}");
    bench.wait_for_no_processes(TIMEOUT);
}

#[test]
fn a_killed_worker_costs_one_sample() {
    let bench = Bench::new();
    let mut child = bench.start(&["run", "planted/delay", "--quiet", "--rounds", "300"]);
    // Killing a worker before its first sample would end the run.
    const SAMPLES_BETWEEN: usize = 10;
    let (mut killed, mut next) = (0, SAMPLES_BETWEEN);
    let is_crash = |sample: &Sample| {
        sample.error.as_ref().is_some_and(|error| error.why.contains("was killed by SIGKILL"))
    };
    // A worker that is killed between two orders costs no sample.
    while killed < 3 || !bench.journal().samples.iter().any(is_crash) {
        std::thread::sleep(Duration::from_millis(50));
        assert!(child.try_wait().unwrap().is_none(), "the run ended with {killed} workers killed");
        if bench.samples() < next {
            continue;
        }
        for process in bench.processes() {
            let (number, words) = process.split_once(' ').unwrap();
            if words.trim_end().ends_with("exe worker") {
                // SAFETY: kill takes numbers only; the worker is this test's.
                unsafe { libc::kill(number.parse().unwrap(), libc::SIGKILL) };
                killed += 1;
            }
        }
        next = bench.samples() + SAMPLES_BETWEEN;
    }
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(1), "the exit status reports the lost workers");
    let run = bench.journal();
    // Points that are void in every round lost no worker.
    let errors = run.samples.iter().filter_map(|sample| sample.error.as_ref());
    let crashed: Vec<_> = errors.filter(|error| error.kind != FailureKind::Void).collect();
    assert!(!crashed.is_empty() && crashed.len() <= killed, "{crashed:?}");
    assert!(
        crashed.iter().all(|error| error.why.contains("worker was killed by SIGKILL")),
        "{crashed:?}"
    );
    let valid = run.samples.iter().filter(|sample| sample.error.is_none()).count();
    assert!(valid > 2000, "{valid} samples, the last {:?}", run.samples.last());
    bench.wait_for_no_processes(TIMEOUT);
}
