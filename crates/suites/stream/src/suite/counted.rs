//! Samples without a usable clock, as on an emulated CPU: a number of packets in a closed loop, of which every byte is verified
//! and nothing is timed.

use std::time::Duration;

use lab::measure::Measurement;
use lab::sample::Failure;
use machine::tsc::TickRate;

use super::ceiling::Ceiling;
use super::metrics;
use super::single_trial::with_testbed;
use super::testbed::{Testbed, TrialReport};
use super::testbed_config::{Cpus, TestbedConfig};

/// Packets of a sample: twice as many as 8 pipes of 1024 packets store. An emulator with two busy CPUs takes 20 s.
const PACKETS: u64 = 16 * 1024;
/// Packets in flight if the method does not state it: the default of those that do.
pub(super) const WINDOW: u64 = 8192;
/// Time limit of sending, and of waiting for the last packets. A part that hangs reaches it: an emulated CPU is slow, and
/// polls on a CPU that many share.
const LIMIT: Duration = Duration::from_secs(60);

/// Measures one point with `window` packets in flight, or as many as the rings can store.
///
/// # Errors
/// Returns the failure to record in place of a sample: `check` if a packet that some rule admits did not return.
pub(super) fn measure(
    config: &TestbedConfig,
    cpus: &Cpus,
    window: u64,
) -> Result<Measurement, Failure> {
    let testbed = Testbed::new(config, cpus, TickRate::get()?)?;
    let trial = testbed.count(window.min(config.max_window()), PACKETS, LIMIT)?;
    check(&trial)?;
    let measurement = with_testbed(metrics::from_counted(&trial), &testbed);
    Ok(metrics::with_config(measurement, config, Ceiling::default()))
}

/// Checks that no packet was lost, except those of flows without a rule: a closed loop never fills a ring.
fn check(trial: &TrialReport) -> Result<(), Failure> {
    let losses = trial.losses();
    if trial.lost() == losses.no_rule {
        return Ok(());
    }
    let by_cause = losses.named().into_iter().filter(|(.., packets)| *packets > 0);
    let by_cause: Vec<_> =
        by_cause.map(|(_, cause, packets)| format!("{packets} {cause}")).collect();
    let (lost, asked) = (trial.lost(), trial.asked);
    let why =
        format!("{lost} of {asked} packets of a closed loop were lost: {}", by_cause.join(", "));
    Err(Failure::check(why))
}

#[cfg(test)]
mod tests {
    use lab::sample::FailureKind;

    use super::super::testbed_config::config;
    use super::super::tests::alone;
    use super::super::workload_tests::valid;
    use super::*;
    use crate::generator::Report;
    use crate::nic::Counters;

    fn trial(sent: u64, received: u64, no_queue: u64) -> TrialReport {
        let dropped = no_queue;
        let report = Report { sent, received, dropped, ..Report::default() };
        let nic = Counters { no_queue, ..Counters::default() };
        TrialReport { report, asked: 100, nic, is_closed: true, ..TrialReport::default() }
    }

    #[test]
    fn only_packets_without_a_rule_may_be_lost() {
        check(&trial(100, 100, 0)).unwrap();
        check(&trial(100, 93, 7)).unwrap();
        let refused = |trial| {
            let failure = check(&trial).unwrap_err();
            assert_eq!(failure.kind, FailureKind::Check);
            failure.why
        };
        assert!(
            refused(trial(100, 99, 0))
                .ends_with("1 of 100 packets of a closed loop were lost: 1 not echoed")
        );
        assert!(refused(trial(90, 80, 7)).ends_with("20 of 100 packets of a closed loop were lost: 10 not sent in time, 7 no rule, 3 not echoed"));
    }

    #[test]
    fn packets_are_counted_and_every_byte_is_verified_without_a_clock() {
        let _alone = alone();
        let cpus = Cpus::select(&machine::topology::allowed_cpus(), 1);
        let cpus = cpus.inspect_err(|why| machine::untested::note("stream: counted packets", why));
        let Ok(cpus) = cpus else { return };
        for levels in [
            &[("interface", "pipes"), ("check", "none")][..],
            &[("interface", "descriptors"), ("packet_bytes", "imix")],
            &[("application", "log-monitor"), ("check", "none")],
            &[("application", "telemetry"), ("workload", "uniform")],
        ] {
            let config = config(&[&[("depth", "1024"), ("pipes", "2")], levels].concat());
            let measurement = valid(|| measure(&config, &cpus, WINDOW)).unwrap();
            let value = |name: &str| measurement.values[name];
            assert_eq!((value("checked"), value("delivered")), (PACKETS as f64, 1.0), "{levels:?}");
            assert_eq!((value("lost"), value("depth")), (0.0, 1024.0), "{levels:?}");
            let is_timed =
                |name: &String| metrics::METRICS.iter().any(|it| it.name == name && it.is_timed());
            assert!(!measurement.values.keys().any(is_timed), "{measurement:?}");
            assert!(measurement.histograms.is_empty(), "{measurement:?}");
        }
    }
}
