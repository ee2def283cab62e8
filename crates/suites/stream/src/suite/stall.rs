//! Stalls: times in which the host ran something else while packets arrived.

use std::time::Duration;

use machine::tsc::Tsc;

use super::testbed::TrialReport;
use crate::generator::Report;

/// An iteration that takes longer than this, plus [`PER_PACKET`] for each of its packets, is a stall: no undisturbed
/// iteration comes near it.
const STALL: Duration = Duration::from_micros(10);
/// Allowance per packet: many times what a packet needs.
const PER_PACKET: Duration = Duration::from_nanos(50);

/// Longest stall of a valid trial of an offered load. No interrupt takes that long: on a calm virtual machine 1% of
/// trials of 2 ms contain a stall from 0.2 to 1 ms, and stalls by which the host or another process takes the CPU last
/// milliseconds. At 148.8 million packets per second a ring of 2 MiB rides out 220 us.
const MAX_STALL: Duration = Duration::from_micros(200);
/// Maximum share of the time that loops may stall in a rate measurement, which bounds the error of the rate. An idle
/// virtual machine loses up to 5% of 20 ms to interrupts.
const MAX_SHARE: f64 = 0.1;

/// Criterion for a stalled iteration, in ticks.
#[derive(Debug, Clone, Copy)]
pub struct StallThreshold {
    /// Maximum duration of an iteration without packets.
    pub stall: u64,
    /// Allowance per packet.
    pub allowed: u64,
}

impl StallThreshold {
    /// Converts the limits to ticks.
    pub fn new(tsc: &Tsc) -> Self {
        Self { stall: tsc.ticks(STALL), allowed: tsc.ticks(PER_PACKET) }
    }

    /// Returns whether an iteration of `elapsed` ticks with `packets` packets stalled.
    #[inline(always)]
    pub fn is_stall(&self, elapsed: u64, packets: u64) -> bool {
        elapsed > self.stall + self.allowed * packets
    }
}

/// Returns why a trial of an offered load is void, or `None` if it is valid: one of its loops stalled for too long. The
/// rule does not depend on lost packets: otherwise the losses of a small ring would be repeated until it loses none.
pub(super) fn void(trial: &TrialReport, tsc: &Tsc) -> Option<String> {
    // Testpmd's longest stall is unknown, but is at most all of its stalls together.
    let application = trial.application.longest_stall.max(trial.waited(tsc));
    let longest = trial.report.longest_stall.max(application);
    (longest > tsc.ticks(MAX_STALL))
        .then(|| format!("host stall: a loop stalled for over {} us", MAX_STALL.as_micros()))
}

/// Returns why a rate is void, or `None` if it is valid: its loops stalled for too much of the time.
pub fn void_rate(report: &Report, application: u64) -> Option<String> {
    let elapsed = (report.ended - report.start) as f64;
    let stalled = (report.stalled + application) as f64 / elapsed.max(1.0);
    (stalled > MAX_SHARE)
        .then(|| format!("host stall: loops stalled for over {:.0}%", MAX_SHARE * 100.0))
}

#[cfg(test)]
mod tests {
    use super::super::application::LoopStats;
    use super::*;

    /// A trial of a million ticks with one packet per ten ticks.
    fn report(stalled: u64) -> Report {
        let (start, ended) = (5, 1_000_005);
        let sent = 100_000;
        Report { sent, start, ended_sending: ended, ended, stalled, ..Report::default() }
    }

    #[test]
    fn a_rate_with_long_stalls_is_void() {
        assert_eq!(void_rate(&report(60_000), 40_000), None);
        assert!(void_rate(&report(60_000), 40_001).unwrap().contains("over 10%"));
    }

    #[test]
    fn a_trial_with_a_long_stall_is_void_whether_or_not_it_lost() {
        let Some(tsc) = machine::untested::tsc("stream: void trials") else { return };
        let void = |lost: u64, nic: u64, application: u64| {
            let ticks = |micros| tsc.ticks(Duration::from_micros(micros));
            let report = report(0);
            let report = Report {
                received: report.sent - lost,
                longest_stall: ticks(nic),
                stalled: ticks(1000),
                ..report
            };
            let mut loops = LoopStats::default();
            loops.longest_stall = ticks(application);
            super::void(
                &TrialReport { asked: report.sent, report, application: loops, testpmd: None },
                tsc,
            )
        };
        for lost in [0, 1, 90_000] {
            assert_eq!(void(lost, 190, 190), None, "{lost} lost in short stalls");
            assert!(void(lost, 210, 0).unwrap().contains("over 200 us"));
            assert!(void(lost, 0, 5000).unwrap().contains("host stall"));
        }
    }
}
