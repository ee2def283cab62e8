//! Each application with its traffic over real interfaces: whatever returns is what its reference expects.

use std::time::{Duration, Instant};

use lab::sample::{Failure, FailureKind};
use machine::tsc::Tsc;

use super::testbed::{Testbed, TrialReport};
use super::testbed_config::{Cpus, config};
use super::tests::alone;

const BUDGET: Duration = Duration::from_millis(2);
/// Time limit of anything on a busy machine, on which the core clock may be doubtful.
const SOON: Duration = Duration::from_secs(60);
/// Packets in flight, of which the longest ones fit a ring of 1024 packets of 64 B.
const WINDOW: u64 = 20;

/// Repeats what is void.
pub(super) fn valid<T>(mut run: impl FnMut() -> Result<T, Failure>) -> Result<T, Failure> {
    let start = Instant::now();
    loop {
        match run() {
            Err(why) if why.kind == FailureKind::Void && start.elapsed() < SOON => {}
            result => return result,
        }
    }
}

/// Runs a closed loop with all bytes checked.
fn closed(levels: &[(&str, &str)], cpus: &Cpus, tsc: &Tsc) -> Result<TrialReport, Failure> {
    let levels = [&[("check", "all"), ("depth", "1024"), ("pipes", "2")], levels].concat();
    let config = config(&levels);
    config.check_application()?;
    config.check_workload()?;
    let testbed = valid(|| Testbed::new(&config, cpus, tsc.rate()))?;
    let start = Instant::now();
    loop {
        // On a busy machine a loop may not run in a short trial.
        let trial = valid(|| testbed.closed(WINDOW, BUDGET))?;
        if trial.report.sent > 10 * WINDOW || start.elapsed() > SOON {
            return Ok(trial);
        }
    }
}

#[test]
fn what_an_application_returns_is_what_its_reference_expects() {
    let test = "stream: applications with their traffic";
    let Some(tsc) = machine::untested::tsc(test) else { return };
    let cpus = Cpus::select(&machine::topology::allowed_cpus(), 1);
    let cpus = cpus.inspect_err(|why| machine::untested::note(test, why));
    let Ok(cpus) = cpus else { return };
    let _alone = alone();
    for (application, workload) in [
        ("echo", "cached"),
        ("echo", "syn-flood"),
        ("maglev-enso", "cached"),
        ("maglev", "syn-flood"),
        ("key-value", "zipf-0.99"),
        ("telemetry", "uniform"),
        ("log-monitor", "in-turn"),
    ] {
        for interface in ["pipes", "descriptors"] {
            let levels = [
                ("application", application),
                ("workload", workload),
                ("interface", interface),
                ("requests_per_packet", "3"),
            ];
            let is_refused = (application, interface) == ("log-monitor", "descriptors");
            let trial = match closed(&levels, &cpus, tsc) {
                Ok(_) if is_refused => panic!("{levels:?} is not refused"),
                Ok(trial) => trial,
                Err(why) if why.kind == FailureKind::Unavailable => {
                    machine::untested::note(test, &why);
                    continue;
                }
                Err(why) => {
                    assert!(
                        is_refused && why.kind == FailureKind::Unsupported,
                        "{levels:?}: {why}"
                    );
                    continue;
                }
            };
            let report = &trial.report;
            assert!(report.sent > WINDOW, "{levels:?}");
            assert_eq!((trial.lost(), report.dropped), (0, 0), "{levels:?}: {report:?}");
            // Of three values per packet, few are of buckets that overflow.
            let max = if application == "key-value" { 3 * report.sent / 200 } else { 0 };
            assert!(report.missing.unwrap_or(0) <= max, "{levels:?}: {report:?}");
        }
    }
}

/// Returns a testbed, or `None` with a note if this machine lacks something.
fn testbed(levels: &[(&str, &str)], test: &str, tsc: &Tsc) -> Option<Testbed> {
    let config = config(levels);
    let cpus = Cpus::select(&machine::topology::allowed_cpus(), 1).and_then(|cpus| {
        config.check_application()?;
        Ok(cpus)
    });
    let cpus = cpus.inspect_err(|why| machine::untested::note(test, why)).ok()?;
    Some(valid(|| Testbed::new(&config, &cpus, tsc.rate())).unwrap())
}

#[test]
fn what_a_slow_receiver_has_not_read_is_lost() {
    let test = "stream: the log monitor with more load than it can process";
    let Some(tsc) = machine::untested::tsc(test) else { return };
    let _alone = alone();
    for interface in ["pipes", "descriptors"] {
        let levels = [("application", "log-monitor"), ("interface", interface), ("depth", "1024")];
        let Some(testbed) = testbed(&levels, test, tsc) else { return };
        let start = Instant::now();
        let (received, accepted) = loop {
            // More than any core can scan.
            let trial = valid(|| testbed.offer(100e9, 10 * BUDGET, false)).unwrap();
            let accepted = trial.report.sent - trial.report.dropped;
            let received = trial.report.received;
            // On a busy machine the NIC may lose its CPU until the application has read all.
            if received < accepted || start.elapsed() > SOON {
                break (received, accepted);
            }
        };
        assert!((1..accepted).contains(&received), "{interface}: {received} of {accepted}");
    }
}

#[test]
#[ignore = "takes minutes"]
fn long_each_application_answers_100_million_packets() {
    const PACKETS: u64 = 100_000_000;
    let test = "stream: 100 million packets of each application";
    let Some(tsc) = machine::untested::tsc(test) else { return };
    let _alone = alone();
    for (application, workload, packets) in [
        ("maglev-enso", "cached", PACKETS),
        ("maglev-enso", "syn-flood", PACKETS),
        ("maglev", "cached", PACKETS),
        ("key-value", "zipf-0.99", PACKETS),
        ("telemetry", "zipf-0.99", PACKETS),
        // It answers nothing, and needs thousands of cycles for each.
        ("log-monitor", "in-turn", PACKETS / 20),
    ] {
        let levels = [
            ("application", application),
            ("workload", workload),
            ("check", "all"),
            ("pipes", "2"),
        ];
        let Some(testbed) = testbed(&levels, test, tsc) else { continue };
        let mut answered = 0;
        while answered < packets {
            let trial = valid(|| testbed.closed(512, Duration::from_secs(1))).unwrap();
            assert_eq!((trial.lost(), trial.report.dropped), (0, 0), "{levels:?}");
            answered += trial.report.received;
        }
    }
}
