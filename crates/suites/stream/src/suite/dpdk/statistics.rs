//! The statistics that testpmd prints, and what follows from them.

use crate::core_use::CoreUse;

/// Packets forwarded by testpmd since its statistics were cleared.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(in crate::suite) struct ForwardStats {
    /// Received packets.
    pub received: u64,
    /// Sent packets.
    pub sent: u64,
    /// Packets that it dropped because its transmit ring was full.
    pub dropped: u64,
    /// Ticks of the time-stamp counter in iterations with packets.
    pub busy: u64,
    /// Packets of those iterations.
    pub worked: u64,
    /// Share of those iterations that found as many packets as testpmd takes at a time, or more. `None` without packets, or
    /// if so few iterations had some that the whole percents that testpmd prints say nothing.
    pub full: Option<f64>,
}

impl ForwardStats {
    /// Parses the output of `show fwd stats all` of a testpmd that takes at most `burst` packets at a time. Returns `None`
    /// unless it contains the totals of all ports.
    pub(super) fn parse(text: &str, burst: u32) -> Option<Self> {
        let (streams, totals) = text.split_once("Accumulated forward statistics for all ports")?;
        // Testpmd prints cycles only once there were packets.
        let cycles = totals.split_once("CPU cycles/packet=").map(|(_, rest)| rest);
        let (busy, worked) = match cycles {
            Some(rest) => (number(rest, "total cycles=")?, number(rest, "packets=")?),
            None => (0, 0),
        };
        Some(Self {
            received: number(totals, "RX-packets:")?,
            sent: number(totals, "TX-packets:")?,
            dropped: number(totals, "TX-dropped:")?,
            busy,
            worked,
            full: full(streams, burst)?,
        })
    }
}

/// Minimum percentage of bursts with packets. Shares are printed in whole percents, rounded down, and the last one, the
/// remainder, is up to 2 too large: of 20, that is a tenth.
const MIN_PERCENT: u8 = 20;

/// Returns the share of bursts with packets that have `burst` packets, of all queues. `None` in the result if too few had
/// packets, `None` if the text has another form.
fn full(text: &str, burst: u32) -> Option<Option<f64>> {
    let (mut full, mut working, mut is_exact) = (0.0, 0.0, true);
    let queues = text.lines().filter_map(|line| line.trim().strip_prefix("RX-bursts :"));
    for queue in queues {
        // E.g. `38314 [10% of 0 pkts + 80% of 32 pkts + 10% of other]`.
        let (bursts, shares) = queue.strip_suffix(']')?.split_once('[')?;
        let bursts: u64 = bursts.trim().parse().ok()?;
        let (mut percent_full, mut percent_empty) = (0, 0);
        for share in shares.split(" + ") {
            let (percent, packets) = share.split_once("% of ")?;
            let percent: u8 = percent.parse().ok().filter(|percent| *percent <= 100)?;
            let packets = packets.strip_suffix(" pkts").and_then(|count| count.parse::<u32>().ok());
            if packets == Some(burst) {
                percent_full = percent;
            } else if packets == Some(0) {
                percent_empty = percent;
            }
        }
        let percent = 100_u8.saturating_sub(percent_empty);
        is_exact &= percent == 0 || percent >= MIN_PERCENT;
        full += bursts as f64 * f64::from(percent_full);
        working += bursts as f64 * f64::from(percent);
    }
    Some((working > 0.0 && is_exact).then(|| full / working))
}

/// A core that is always busy is saturated if at least this share of its iterations left packets in the queue, or took the
/// last ones of a full burst. One that waits for packets finds fewer.
const MOSTLY_FULL: f64 = 0.75;

/// Statistics of testpmd over a trial. Of its iterations, the time of those with packets is known, and how many found as many
/// packets as it takes at a time.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::suite) struct TestpmdStats {
    /// Its packets.
    pub(in crate::suite) forward: ForwardStats,
    /// How long its forwarding threads were ready to run while others had their CPUs, together, in ticks. `None` if the
    /// kernel does not report it.
    pub(in crate::suite) waited: Option<u64>,
    /// Number of its cores that forward.
    pub(in crate::suite) cores: usize,
    /// Clock of the first of them, in Hz.
    pub(in crate::suite) core_hertz: f64,
}

impl TestpmdStats {
    /// Returns the share of `elapsed` ticks that its core spent in iterations with packets, without the time that it waited
    /// for its CPU. `None` if it has several cores, because it reports the sum of their cycles, or if a part is unknown.
    pub(in crate::suite) fn busy(&self, elapsed: u64) -> Option<f64> {
        let ForwardStats { busy, worked, .. } = self.forward;
        let is_known = self.cores == 1 && worked > 0;
        // A wait within an iteration with packets is in its cycles, so this is the share at most.
        let available = elapsed.saturating_sub(self.waited?).max(busy).max(1);
        is_known.then(|| busy as f64 / available as f64)
    }

    /// Returns whether its core had at least as much work as it can do in `elapsed` ticks: it was always busy, and nearly
    /// always found as many packets as it takes at a time. `None` if it is unknown.
    pub(in crate::suite) fn is_saturated(&self, elapsed: u64) -> Option<bool> {
        if !CoreUse::may_be_saturated(self.busy(elapsed)?) {
            return Some(false);
        }
        (self.forward.full? >= MOSTLY_FULL).then_some(true)
    }

    /// Returns the core cycles per packet in iterations with packets; `None` without packets.
    pub(in crate::suite) fn cycles_per_packet(&self, ticks_per_second: f64) -> Option<f64> {
        let ForwardStats { busy, worked, .. } = self.forward;
        (worked > 0).then(|| busy as f64 / ticks_per_second * self.core_hertz / worked as f64)
    }

    /// Returns the core cycles of all cores in `elapsed` ticks, without the time that they waited for their CPUs; `None` if
    /// that is unknown.
    pub(in crate::suite) fn cycles(&self, elapsed: u64, ticks_per_second: f64) -> Option<f64> {
        let available = elapsed.saturating_mul(self.cores as u64).saturating_sub(self.waited?);
        // The kernel's count of the time that threads waited may exceed that of the trial.
        (available > 0).then(|| available as f64 / ticks_per_second * self.core_hertz)
    }
}

/// Returns the number after the first occurrence of a label.
fn number(text: &str, label: &str) -> Option<u64> {
    let (_, rest) = text.split_once(label)?;
    let rest = rest.trim_start();
    let end = rest.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As printed by testpmd 22.11.
    const PRINTED: &str = "show fwd stats all

  ---------------------- Forward statistics for port 0  ----------------------
  RX-packets: 7              RX-dropped: 0             RX-total: 7
  RX-bursts : 400 [10% of 0 pkts + 80% of 32 pkts + 4% of 5 pkts + 6% of other]
  TX-bursts : 100 [0% of 0 pkts + 50% of 5 pkts + 50% of 2 pkts]
  TX-packets: 6              TX-dropped: 1             TX-total: 7
  ----------------------------------------------------------------------------

  +++++++++++++++ Accumulated forward statistics for all ports+++++++++++++++
  RX-packets: 317056         RX-dropped: 5             RX-total: 317061
  TX-packets: 317024         TX-dropped: 32            TX-total: 317056
  ++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++
";

    #[test]
    fn the_totals_are_parsed() {
        let full = Some(80.0 / 90.0);
        let stats = ForwardStats {
            received: 317_056,
            sent: 317_024,
            dropped: 32,
            full,
            ..Default::default()
        };
        assert_eq!(ForwardStats::parse(PRINTED, 32), Some(stats));
        let short = ForwardStats::parse(PRINTED, 5).and_then(|stats| stats.full);
        assert_eq!(short, Some(4.0 / 90.0));
        let line = "  CPU cycles/packet=51.64 (total cycles=16372812 / total macswap packets=317056) at 2100 MHz Clock";
        let busy = ForwardStats { busy: 16_372_812, worked: 317_056, ..stats };
        assert_eq!(ForwardStats::parse(&format!("{PRINTED}\n{line}\ntestpmd> "), 32), Some(busy));
        for broken in [
            "",
            "RX-packets: 1",
            &PRINTED.replace("TX-dropped", "TX-lost"),
            &PRINTED.replace("80% of 32", "180% of 32"),
            &PRINTED.replace("80% of 32", "80 of 32"),
        ] {
            assert_eq!(ForwardStats::parse(broken, 32), None);
        }
    }

    #[test]
    fn full_bursts_are_those_of_all_queues() {
        let line = |text: &str| format!("  RX-bursts : {text}\n");
        let busy = line("300 [0% of 0 pkts + 100% of 32 pkts]");
        let idle = line("100 [100% of 0 pkts]");
        let half = line("100 [50% of 0 pkts + 25% of 32 pkts + 25% of 7 pkts]");
        assert_eq!(full(&busy, 32), Some(Some(1.0)));
        assert_eq!(full(&(busy.clone() + &idle), 32), Some(Some(1.0)));
        assert_eq!(full(&(busy + &half), 32), Some(Some(325.0 / 350.0)));
        assert_eq!(full(&half, 64), Some(Some(0.0)));
        assert_eq!((full(&idle, 32), full("", 32)), (Some(None), Some(None)));
        // 98.9, 0.6 and 0.5 percent.
        let few = line("1000 [98% of 0 pkts + 0% of 7 pkts + 2% of 32 pkts]");
        assert_eq!(full(&few, 32), Some(None));
    }

    #[test]
    fn the_busy_share_is_that_of_one_core_without_its_waits() {
        let forward = ForwardStats { busy: 600, worked: 100, ..ForwardStats::default() };
        let stats = TestpmdStats { forward, waited: Some(200), cores: 1, core_hertz: 2e9 };
        assert_eq!((stats.is_saturated(1000), stats.is_saturated(800)), (Some(false), None));
        assert_eq!(stats.busy(1000), Some(0.75));
        // Packets that were left are processed later.
        assert_eq!(stats.busy(700), Some(1.0));
        assert_eq!(TestpmdStats { cores: 2, ..stats }.busy(1000), None);
        assert_eq!(TestpmdStats { waited: None, ..stats }.busy(1000), None);
        let none = TestpmdStats { forward: ForwardStats::default(), ..stats };
        assert_eq!((none.busy(1000), none.cycles_per_packet(1e9)), (None, None));
        // The clock is twice as fast as the counter.
        assert_eq!(stats.cycles_per_packet(1e9), Some(12.0));
        assert_eq!(TestpmdStats { cores: 2, ..stats }.cycles(1000, 1e9), Some(3600.0));
        assert_eq!(TestpmdStats { waited: None, ..stats }.cycles(1000, 1e9), None);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(
            text in "\\PC*",
            at in 0..PRINTED.len(),
            cut in 0..PRINTED.len(),
        ) {
            // The statistics contain only ASCII characters, so any split is between characters.
            let (start, end) = (&PRINTED[..at.min(cut)], &PRINTED[at.max(cut)..]);
            for text in [text.clone(), format!("{start}{text}{end}")] {
                let share = ForwardStats::parse(&text, 32).and_then(|stats| stats.full);
                // 100% of the bursts at most, but a changed text may contain shares that add up to more.
                prop_assert!(share.is_none_or(|share| share >= 0.0), "{:?}", share);
            }
        }
    }
}
