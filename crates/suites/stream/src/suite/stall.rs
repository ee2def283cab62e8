//! Whether a loss may be the host's: it ran something else while packets came.

use std::time::Duration;

use machine::tsc::Tsc;

use crate::generator::Report;

/// A turn of a loop that takes this long, and [`A_PACKET`] for each of its packets, stood still: no turn
/// comes near that by itself.
const STALL: Duration = Duration::from_micros(10);
/// What a packet may take: many times what it does.
const A_PACKET: Duration = Duration::from_nanos(50);

/// The share of the time that loops may stand still where a rate is measured, which is too low by no more.
/// A virtual machine at rest has interrupts of its own: 5% of 20 ms.
const SHARE: f64 = 0.1;

/// When a turn stood still, in ticks.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// What a turn may take with no packet.
    pub stall: u64,
    /// What each packet may add.
    pub allowed: u64,
}

impl Patience {
    /// By the clock of this machine.
    pub fn of(tsc: &Tsc) -> Self {
        Self { stall: tsc.ticks(STALL), allowed: tsc.ticks(A_PACKET) }
    }

    /// Whether a turn with so many packets stood still.
    #[inline(always)]
    pub fn ends(&self, took: u64, packets: u64) -> bool {
        took > self.stall + self.allowed * packets
    }
}

/// Why a trial that lost so many packets says nothing: no more were lost than came while a loop stood
/// still. `rate` is how many were to come a tick, `elsewhere` for how many ticks the loops of the
/// application stood still. Nothing where none was lost, or more than that. For how long they stood still is
/// in the trial's values.
pub fn void(lost: u64, rate: f64, report: &Report, elsewhere: u64) -> Option<String> {
    let came = rate * (report.stood + elsewhere) as f64;
    let is = lost > 0 && lost as f64 <= came;
    is.then(|| "the host stalled: no more were lost than came while a loop stood still".into())
}

/// Why a rate says nothing of the two cores: their loops stood still for too much of the time.
pub fn void_rate(report: &Report, elsewhere: u64) -> Option<String> {
    let took = (report.ended - report.begun) as f64;
    let stood = (report.stood + elsewhere) as f64 / took.max(1.0);
    (stood > SHARE)
        .then(|| format!("the host stalled: loops stood still for over {:.0}%", SHARE * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet every ten ticks for a million.
    fn report(stood: u64) -> Report {
        let (begun, ended) = (5, 1_000_005);
        let sent = 100_000;
        Report { sent, begun, ended_sending: ended, ended, stood, ..Report::default() }
    }

    #[test]
    fn a_rate_of_loops_that_stood_still_is_void() {
        assert_eq!(void_rate(&report(60_000), 40_000), None);
        assert!(void_rate(&report(60_000), 40_001).unwrap().contains("over 10%"));
    }

    #[test]
    fn a_loss_no_larger_than_what_came_meanwhile_is_void() {
        let void = |lost, nic, application| void(lost, 0.1, &report(nic), application);
        assert_eq!(void(0, 1 << 30, 1 << 30), None, "nothing was lost, whatever stalled");
        assert_eq!(void(1, 0, 0), None, "nothing stalled");
        assert!(void(4000, 40_000, 0).is_some(), "as many as came");
        assert_eq!(void(4001, 40_000, 0), None, "one more than came");
        assert!(void(5000, 20_000, 30_000).unwrap().contains("the host stalled"));
    }
}
