//! Stalls: times in which the host ran something else while packets arrived.

use std::iter;
use std::time::Duration;

use machine::tsc::Tsc;

use super::testbed::TrialReport;
use crate::generator::Report;
use crate::iterations::LoopTimes;

/// Longest stall of a valid trial of an offered load. No interrupt takes that long: on a calm virtual machine 1% of
/// trials of 2 ms contain a stall from 0.2 to 1 ms, and stalls by which the host or another process takes the CPU last
/// milliseconds. At 148.8 million packets per second a ring of 2 MiB rides out 220 us.
const MAX_STALL: Duration = Duration::from_micros(200);
/// Maximum share of the time that loops may stall in a rate measurement, which bounds the error of the rate. An idle
/// virtual machine loses up to 5% of 20 ms to interrupts.
const MAX_SHARE: f64 = 0.1;

/// Returns why a trial of an offered load is void, or `None` if it is valid: one of its loops stalled for too long. The
/// rule does not depend on lost packets: otherwise the losses of a small ring would be repeated until it loses none.
pub(super) fn void(trial: &TrialReport, tsc: &Tsc) -> Option<String> {
    // Testpmd's longest stall is unknown, but is at most all of its stalls together.
    let longest = loops(trial).map(|it| it.longest_stall).chain([trial.waited()]).max();
    (longest.unwrap_or(0) > tsc.ticks(MAX_STALL))
        .then(|| format!("host stall: a loop stalled for over {} us", MAX_STALL.as_micros()))
}

/// Returns why a rate is void, or `None` if it is valid: its loops stalled for too much of the time.
pub(super) fn void_rate(trial: &TrialReport) -> Option<String> {
    (stalled_share(trial) > MAX_SHARE)
        .then(|| format!("host stall: loops stalled for over {:.0}%", MAX_SHARE * 100.0))
}

/// Returns the time for which the loops of a trial stalled, as a share of its duration.
pub(super) fn stalled_share(trial: &TrialReport) -> f64 {
    let Report { start, ended, .. } = trial.report;
    let stalled = loops(trial).map(|it| it.stalled).sum::<u64>() + trial.waited();
    stalled as f64 / (ended.saturating_sub(start).max(1)) as f64
}

/// Returns the iterations of each loop: the NIC's and those of the application, except testpmd's, which are unknown.
fn loops(trial: &TrialReport) -> impl Iterator<Item = &LoopTimes> {
    let applications = trial.application.iter().map(|core| &core.iterations);
    iter::once(&trial.report.iterations).chain(applications)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core_use::CoreStats;
    use crate::suite::dpdk::TestpmdStats;

    /// A trial of a million ticks with one packet per ten ticks, and stalls of the NIC and of an application core.
    fn trial(lost: u64, nic: LoopTimes, application: LoopTimes) -> TrialReport {
        let (start, ended, sent) = (5, 1_000_005, 100_000);
        let report = Report {
            sent,
            received: sent - lost,
            start,
            ended_sending: ended,
            ended,
            iterations: nic,
            ..Report::default()
        };
        let core = CoreStats { iterations: application, ..CoreStats::default() };
        TrialReport { report, asked: sent, application: vec![core], ..TrialReport::default() }
    }

    #[test]
    fn a_rate_with_long_stalls_is_void() {
        let stalled = |stalled| LoopTimes { stalled, ..LoopTimes::default() };
        assert_eq!(void_rate(&trial(0, stalled(60_000), stalled(40_000))), None);
        let void = void_rate(&trial(0, stalled(60_000), stalled(40_001)));
        assert!(void.unwrap().contains("over 10%"));
    }

    #[test]
    fn the_time_that_testpmd_waited_counts_as_its_stalls() {
        let Some(tsc) = machine::untested::tsc("stream: void trials of testpmd") else { return };
        let waited = |ticks| TrialReport {
            testpmd: Some(TestpmdStats { waited: Some(ticks), ..TestpmdStats::default() }),
            application: Vec::new(),
            ..trial(0, LoopTimes::default(), LoopTimes::default())
        };
        assert_eq!(void_rate(&waited(100_000)), None);
        assert!(void_rate(&waited(100_001)).unwrap().contains("over 10%"));
        let micros = |micros| waited(tsc.ticks(Duration::from_micros(micros)));
        assert_eq!(void(&micros(190), tsc), None);
        assert!(void(&micros(210), tsc).unwrap().contains("over 200 us"));
    }

    #[test]
    fn a_trial_with_a_long_stall_is_void_whether_or_not_it_lost() {
        let Some(tsc) = machine::untested::tsc("stream: void trials") else { return };
        let void = |lost: u64, nic: u64, application: u64| {
            let [nic, application] = [nic, application].map(|micros| LoopTimes {
                longest_stall: tsc.ticks(Duration::from_micros(micros)),
                ..LoopTimes::default()
            });
            super::void(&trial(lost, nic, application), tsc)
        };
        for lost in [0, 1, 90_000] {
            assert_eq!(void(lost, 190, 190), None, "{lost} lost in short stalls");
            assert!(void(lost, 210, 0).unwrap().contains("over 200 us"));
            assert!(void(lost, 0, 5000).unwrap().contains("host stall"));
        }
    }
}
