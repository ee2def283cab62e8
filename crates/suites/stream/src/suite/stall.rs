//! Stalls: times in which the host ran something else while packets arrived.

use std::time::Duration;

use machine::tsc::Tsc;

use crate::generator::Report;

/// An iteration that takes longer than this, plus [`PER_PACKET`] for each of its packets, is a stall: no undisturbed
/// iteration comes near it.
const STALL: Duration = Duration::from_micros(10);
/// Allowance per packet: many times what a packet needs.
const PER_PACKET: Duration = Duration::from_nanos(50);

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

/// Returns why a trial is void, or `None` if it is valid. A trial is void if it lost packets, but no more than would
/// arrive during its stalls at `rate` packets per tick. `application` is the stall time of the application's loops, in
/// ticks.
pub fn void(lost: u64, rate: f64, report: &Report, application: u64) -> Option<String> {
    let during_stalls = rate * (report.stalled + application) as f64;
    let is_void = lost > 0 && lost as f64 <= during_stalls;
    is_void.then(|| "host stall: may account for all lost packets".into())
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
    fn a_loss_no_larger_than_the_arrivals_during_stalls_is_void() {
        let void = |lost, nic, application| void(lost, 0.1, &report(nic), application);
        assert_eq!(void(0, 1 << 30, 1 << 30), None, "no loss");
        assert_eq!(void(1, 0, 0), None, "no stall");
        assert!(void(4000, 40_000, 0).is_some(), "as many as arrived");
        assert_eq!(void(4001, 40_000, 0), None, "one more than arrived");
        assert!(void(5000, 20_000, 30_000).unwrap().contains("host stall"));
    }
}
