//! Where packets are lost, and why.

use crate::generator::Report;
use crate::nic::Counters;

/// Metric of the packets that the application did not return; of one that returns none it is unknown on the NIC's side.
pub const NOT_ECHOED: &str = "lost_not_echoed";

/// Packets of a trial that were not echoed, by cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Losses {
    /// Not sent in time by the generator.
    pub not_sent: u64,
    /// Dropped by the NIC: no rule for the flow.
    pub no_rule: u64,
    /// Dropped by the NIC: the pipe or descriptor ring was full.
    pub ring_full: u64,
    /// Dropped by the NIC: the notification buffer was full.
    pub notifications_full: u64,
    /// Written to memory and not echoed in time.
    pub not_echoed: u64,
}

impl Losses {
    /// Returns what was lost of `asked` packets, given the report of the trial and the NIC's counters of it.
    pub fn of(asked: u64, report: &Report, nic: &Counters) -> Self {
        let Report { sent, received, .. } = report;
        Self {
            not_sent: asked.saturating_sub(*sent),
            no_rule: nic.no_queue,
            ring_full: nic.ring_full,
            notifications_full: nic.notifications_full,
            not_echoed: sent.saturating_sub(nic.dropped()).saturating_sub(*received),
        }
    }

    /// Returns each cause with its metric and in words.
    pub fn named(&self) -> [(&'static str, &'static str, u64); 5] {
        let Self { not_sent, no_rule, ring_full, notifications_full, not_echoed } = *self;
        [
            ("lost_not_sent", "not sent in time", not_sent),
            ("lost_no_rule", "no rule", no_rule),
            ("lost_ring_full", "ring full", ring_full),
            ("lost_notifications_full", "notification buffer full", notifications_full),
            (NOT_ECHOED, "not echoed", not_echoed),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lost_packet_has_one_cause() {
        let report = Report { sent: 90, dropped: 30, received: 55, ..Report::default() };
        let nic =
            Counters { no_queue: 5, ring_full: 15, notifications_full: 10, ..Counters::default() };
        let losses = Losses::of(100, &report, &nic);
        let each = losses.named().map(|(.., packets)| packets);
        assert_eq!(each, [10, 5, 15, 10, 5]);
        assert_eq!(each.iter().sum::<u64>(), 100 - report.received);
    }
}
