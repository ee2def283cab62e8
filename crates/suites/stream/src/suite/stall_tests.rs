//! Planted stalls of real loops.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lab::sample::Failure;
use machine::tsc::Tsc;

use super::planted_stall::STALL;
use super::testbed::{Testbed, TrialReport};
use super::tests::{BUDGET, INTERFACES, WINDOW, alone, level, machine, testbed, trials};
use super::{search, single_trial, stall};

#[test]
fn a_planted_stall_of_the_nic_is_found() {
    let _alone = alone();
    let Some((_, tsc)) = machine("stream: planted stalls") else { return };
    for nops in ["0", "1000"] {
        let Some((testbed, stall)) = testbed(&[("nops", nops)], Duration::ZERO) else { return };
        // During the trial or before it: until it is during the trial.
        let found = trials(|| {
            let stall = Arc::clone(&stall);
            let planted = std::thread::spawn(move || {
                std::thread::sleep(BUDGET);
                stall.store(true, Ordering::Relaxed);
            });
            let trial = testbed.closed(WINDOW, 8 * BUDGET);
            planted.join().unwrap();
            trial
        })
        .find(|trial| trial.report.iterations.longest_stall >= tsc.ticks(STALL * 9 / 10));
        assert!(stall::void(&found.expect("the planted stall"), tsc).is_some(), "{nops}");
    }
}

/// Returns a trial in which only the application stalled, because that was planted; `None` if a busy machine does not permit
/// one.
fn with_planted_stall(
    testbed: &Testbed,
    tsc: &Tsc,
    run: impl Fn() -> Result<TrialReport, Failure>,
) -> Option<TrialReport> {
    let stall = testbed.planted_stall().unwrap();
    let all = trials(|| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(BUDGET);
                stall.request();
            });
            run()
        })
    });
    let nic_stalled = |trial: &TrialReport| trial.report.iterations.longest_stall;
    let mut planted = all.filter(|trial| {
        stall.is_within(trial.report.start, trial.report.ended_sending)
            && nic_stalled(trial) < tsc.ticks(STALL / 10)
    });
    let trial = planted.next();
    if trial.is_none() {
        machine::untested::note("stream: planted stalls", &"other programs have the CPUs");
    }
    trial
}

#[test]
fn a_planted_stall_of_the_application_voids_its_trial_over_any_interface() {
    let _alone = alone();
    let Some((_, tsc)) = machine("stream: planted stalls") else { return };
    for interface in INTERFACES.map(level) {
        for doorbell in ["none", "400 ns"] {
            let levels = [("interface", interface), ("modelled_doorbell", doorbell)];
            let Some((testbed, _)) = testbed(&levels, Duration::ZERO) else { return };
            let closed = || testbed.closed(WINDOW, 8 * BUDGET);
            let Some(trial) = with_planted_stall(&testbed, tsc, closed) else { return };
            assert_eq!(trial.lost(), 0, "{levels:?}");
            assert!(single_trial::of_window(&trial, tsc).void.is_some(), "{levels:?}: {trial:?}");
            // More packets come in the stall than the ring stores.
            let offered = || testbed.offer(10e9, 8 * BUDGET, false);
            let Some(trial) = with_planted_stall(&testbed, tsc, offered) else { return };
            let stalled = trial.application[0].iterations.longest_stall;
            assert!(stalled >= tsc.ticks(STALL * 9 / 10), "{levels:?}: {trial:?}");
            let sample = single_trial::of_load(&trial, tsc).unwrap();
            assert!(sample.void.is_some() && sample.values["lost"] > 0.0, "{levels:?}: {sample:?}");
            let outcome = search::outcome(&trial, tsc);
            assert!(outcome.void.is_some() && outcome.lost > 0, "{levels:?}: {outcome:?}");
        }
    }
}
