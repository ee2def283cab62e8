//! Whether a loss may be the host's: it ran something else while packets came.

use std::time::Duration;

use machine::tsc::Tsc;

use crate::generator::Report;

/// A turn of a loop that takes this long, and [`A_PACKET`] for each of its packets, stood still: no turn
/// comes near that by itself.
const STALL: Duration = Duration::from_micros(10);
/// What a packet may take: many times what it does.
const A_PACKET: Duration = Duration::from_nanos(50);

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
/// still. `elsewhere` is for how many ticks the loops of the application did. Nothing where none was lost,
/// or more than that.
pub fn void(lost: u64, report: &Report, elsewhere: u64, tsc: &Tsc) -> Option<String> {
    let stood = report.stood + elsewhere;
    let came = report.offered() * stood as f64;
    let told = |ticks: u64| tsc.nanoseconds(ticks as f64) / 1e3;
    (lost > 0 && lost as f64 <= came).then(|| {
        format!(
            "the host stalled: {lost} packets were lost, and {came:.0} came while the NIC stood still for \
             {:.0} us and the application for {:.0} us",
            told(report.stood),
            told(elsewhere)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet every ten ticks for a million.
    fn report(stood: u64) -> Report {
        Report { sent: 100_000, begun: 5, ended_sending: 1_000_005, stood, ..Report::default() }
    }

    #[test]
    fn a_loss_no_larger_than_what_came_meanwhile_is_void() {
        let tsc = Tsc::get().unwrap();
        let void = |lost, nic, application| void(lost, &report(nic), application, tsc);
        assert_eq!(void(0, 1 << 30, 1 << 30), None, "nothing was lost, whatever stalled");
        assert_eq!(void(1, 0, 0), None, "nothing stalled");
        assert!(void(4000, 40_000, 0).is_some(), "as many as came");
        assert_eq!(void(4001, 40_000, 0), None, "one more than came");
        let why = void(5000, 20_000, 30_000).unwrap();
        assert!(why.contains("5000 packets were lost") && why.contains("the NIC"), "{why}");
    }
}
