//! Iterations of a polling loop, by what they did: work, polling without packets, and stalls.
//!
//! Both loops, of the NIC and of the application, read the time-stamp counter once per iteration and record it here. Every
//! stall of the NIC's loop while it sends counts. An application's loop does not know when a trial starts and ends: see
//! [`PollingLoop`].

use std::time::Duration;

use machine::tsc::{TickRate, Tsc};

/// An iteration that takes longer than this, plus an allowance for each of its packets, is a stall: no undisturbed
/// iteration comes near it.
const STALL: Duration = Duration::from_micros(10);
/// Allowance per packet for the interface: many times what a packet needs.
const PER_PACKET: Duration = Duration::from_nanos(50);
/// Multiple of the learnt cost of a packet that is allowed besides: a busy SMT sibling or a lower clock slows a loop by
/// less than this.
const SLOWER: u64 = 2;

/// Multiple of [`STALL`] after whose end packets show that a stall without packets counts. The NIC may need several of its
/// iterations to report packets that came during the stall: with reactive notifications it does so only after the loop has
/// taken completions and moved the head of the pipe.
const REPORTED_WITHIN: u64 = 10;

/// The same as [`STALL`] for a loop that learns nothing: an iteration that takes longer has lost its CPU to another process.
const LOST_CPU: Duration = Duration::from_millis(1);
/// Allowance per packet of such a loop: many times what comparing all of its bytes needs.
const ANY_PACKET: Duration = Duration::from_micros(2);

/// Criterion for a stalled iteration, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StallThreshold {
    /// Maximum duration of an iteration without packets.
    base: u64,
    /// Allowance per packet.
    allowed: u64,
    /// Time that a packet needs.
    cost: u64,
    /// Time within which packets that came during a stall are reported after it.
    reported_within: u64,
}

impl StallThreshold {
    /// No iteration is a stall.
    pub const NEVER: Self = Self { base: u64::MAX, allowed: 0, cost: 0, reported_within: 0 };

    /// Time within which packets that came during a stall are reported after it, of [`StallThreshold::new`].
    pub const REPORTED_WITHIN: Duration = STALL.saturating_mul(REPORTED_WITHIN as u32);

    /// Returns the criterion for a loop of which nothing is known.
    pub fn new(rate: TickRate) -> Self {
        Self::of_ticks(rate.ticks(STALL), rate.ticks(PER_PACKET))
    }

    /// Returns the criterion for a loop that does not learn what its packets cost, whose application needs at most `work`
    /// for each: only the loss of its CPU is a stall.
    pub fn of_lost_cpu(tsc: &Tsc, work: Duration) -> Self {
        let allowed = tsc.ticks(ANY_PACKET).saturating_add(tsc.ticks(work));
        Self::of_ticks(tsc.ticks(LOST_CPU), allowed)
    }

    /// Returns the criterion of durations in ticks.
    pub(crate) fn of_ticks(base: u64, allowed: u64) -> Self {
        Self { base, allowed, cost: 0, reported_within: base.saturating_mul(REPORTED_WITHIN) }
    }

    /// Returns the criterion for a loop to which packets are reported later by `delay` ticks.
    #[must_use]
    pub fn with_delay(self, delay: u64) -> Self {
        Self { reported_within: self.reported_within.saturating_add(delay), ..self }
    }

    /// Returns the criterion for a loop that needs `cost` ticks per packet.
    #[must_use]
    pub fn with_cost(self, cost: u64) -> Self {
        let allowed = self.allowed.saturating_add(cost.saturating_mul(SLOWER));
        Self { allowed, cost, ..self }
    }

    /// Returns the maximum duration of an iteration with `packets` packets that did not stall.
    #[inline(always)]
    pub(crate) fn limit(&self, packets: u64) -> u64 {
        self.base.saturating_add(self.allowed.wrapping_mul(packets))
    }
}

/// Iterations of a loop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LoopTimes {
    /// Number of iterations with packets that did not stall.
    pub working: u64,
    /// Packets of those iterations.
    pub packets: u64,
    /// Duration of those iterations, in ticks.
    pub busy: u64,
    /// Number of iterations without packets that did not stall.
    pub polls: u64,
    /// Duration of those iterations, in ticks.
    pub polling: u64,
    /// Duration of the longest iteration, in ticks.
    pub longest: u64,
    /// Duration of the stalled iterations that count, in ticks.
    pub interrupted: u64,
    /// Time of those iterations beyond that of their packets, in ticks.
    pub stalled: u64,
    /// The same of the longest of them.
    pub longest_stall: u64,
}

impl LoopTimes {
    /// Records an iteration of `elapsed` ticks. Returns what it took more than its packets need if it stalled, else 0.
    #[inline(always)]
    pub fn record(&mut self, elapsed: u64, packets: u64, threshold: &StallThreshold) -> u64 {
        if elapsed > self.longest {
            self.longest = elapsed;
        }
        if elapsed > threshold.limit(packets) {
            std::hint::cold_path();
            return elapsed.saturating_sub(threshold.cost.saturating_mul(packets)).max(1);
        }
        if packets > 0 {
            self.working += 1;
            self.packets += packets;
            self.busy += elapsed;
        } else {
            self.polls += 1;
            self.polling += elapsed;
        }
        0
    }

    /// Counts a stall of `excess` ticks in an iteration of `elapsed` ticks.
    #[cold]
    pub fn add_stall(&mut self, excess: u64, elapsed: u64) {
        self.interrupted += elapsed;
        self.stalled += excess;
        self.longest_stall = self.longest_stall.max(excess);
    }

    /// Returns the mean duration of an iteration without packets, in ticks; `None` if there was none.
    pub fn empty_iteration(&self) -> Option<f64> {
        (self.polls > 0).then(|| self.polling as f64 / self.polls as f64)
    }
}

/// The loop of an application, which polls for packets whether or not any are sent.
///
/// A stall in an iteration without packets counts once packets follow within a limited time after it: then packets were being
/// sent, whatever became of them. Other stalls are those before a trial or after it, or of an idle application. Whether packets
/// were lost does not matter: a ring that overflows still has packets after the stall.
#[derive(Debug, Clone)]
pub struct PollingLoop {
    /// The iterations, with the stalls that count.
    pub times: LoopTimes,
    threshold: StallThreshold,
    pending: PendingStalls,
}

/// Stalls without packets that count if packets follow, in ticks.
#[derive(Debug, Clone, Copy, Default)]
struct PendingStalls {
    /// Duration of all of them; 0 if there is none.
    total: u64,
    longest: u64,
    /// Duration of the iterations since the last one.
    since: u64,
}

impl PollingLoop {
    /// Creates the record of a loop without iterations.
    pub fn new(threshold: StallThreshold) -> Self {
        Self { times: LoopTimes::default(), threshold, pending: PendingStalls::default() }
    }

    /// Records an iteration of `elapsed` ticks with `packets` packets.
    #[inline(always)]
    pub fn record(&mut self, elapsed: u64, packets: u64) {
        let excess = self.times.record(elapsed, packets, &self.threshold);
        if excess | self.pending.total > 0 {
            self.judge(elapsed, packets, excess);
        }
    }

    /// Records a stall of `elapsed` ticks outside of the iterations, if it is one.
    pub fn record_outside(&mut self, elapsed: u64) {
        if elapsed > self.threshold.limit(0) {
            self.suspend(elapsed);
        }
    }

    /// Judges an iteration that stalled, or that follows a stall without packets.
    #[cold]
    fn judge(&mut self, elapsed: u64, packets: u64, excess: u64) {
        if packets > 0 {
            let PendingStalls { total, longest, .. } = std::mem::take(&mut self.pending);
            self.times.interrupted = self.times.interrupted.saturating_add(total);
            self.times.stalled = self.times.stalled.saturating_add(total);
            self.times.longest_stall = self.times.longest_stall.max(longest);
            if excess > 0 {
                self.times.add_stall(excess, elapsed);
            }
        } else if excess > 0 {
            self.suspend(excess);
        } else {
            self.pending.since = self.pending.since.saturating_add(elapsed);
            if self.pending.since > self.threshold.reported_within {
                self.forget_stalls();
            }
        }
    }

    fn suspend(&mut self, stall: u64) {
        let PendingStalls { total, longest, .. } = self.pending;
        let total = total.saturating_add(stall);
        self.pending = PendingStalls { total, longest: longest.max(stall), since: 0 };
    }

    /// Discards the stalls that packets have not followed yet.
    pub fn forget_stalls(&mut self) {
        self.pending = PendingStalls::default();
    }

    /// Returns the iterations since the last call. Stalls that packets have not followed yet are discarded.
    pub fn take(&mut self) -> LoopTimes {
        self.forget_stalls();
        std::mem::take(&mut self.times)
    }

    /// Sets what a packet costs, in ticks.
    pub fn set_cost(&mut self, cost: u64) {
        self.threshold = self.threshold.with_cost(cost);
    }
}

/// Number of iterations from which the cost of a packet is learnt: the last ones.
const LEARNT_FROM: usize = 1024;
/// Minimum number of iterations from which it is learnt.
const MIN_LEARNT_FROM: usize = 4;

/// Learns what a packet costs in an undisturbed iteration.
#[derive(Debug, Clone)]
pub struct PacketCost {
    /// Duration and packets of iterations; empty if nothing is learnt.
    last: Vec<(u64, u64)>,
    recorded: usize,
}

impl PacketCost {
    /// Starts to learn.
    pub fn learning() -> Self {
        Self { last: vec![(0, 0); LEARNT_FROM], recorded: 0 }
    }

    /// Learns nothing.
    pub fn known() -> Self {
        Self { last: Vec::new(), recorded: 0 }
    }

    /// Records an iteration with packets, of `elapsed` ticks.
    #[inline(always)]
    pub fn record(&mut self, elapsed: u64, packets: u64) {
        if !self.last.is_empty() {
            std::hint::cold_path();
            self.last[self.recorded % LEARNT_FROM] = (elapsed, packets);
            self.recorded += 1;
        }
    }

    /// Returns the cost of a packet in ticks, rounded up: a quarter of the packets of the recorded iterations were in
    /// iterations with at most this per packet. A stall only adds to few of them. `None` if too few were recorded.
    pub fn typical(&self) -> Option<u64> {
        let mut each = self.last[..self.recorded.min(self.last.len())].to_vec();
        if each.len() < MIN_LEARNT_FROM {
            return None;
        }
        each.sort_unstable_by(|(a, n), (b, m)| (a * m).cmp(&(b * n)));
        let all: u64 = each.iter().map(|(_, packets)| packets).sum();
        let mut up_to = 0;
        let quarter = each.iter().find(|(_, packets)| {
            up_to += packets;
            4 * up_to >= all
        });
        quarter.map(|(elapsed, packets)| elapsed.div_ceil((*packets).max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THRESHOLD: StallThreshold =
        StallThreshold { base: 1000, allowed: 10, cost: 0, reported_within: 10_000 };

    /// Returns stalled and longest stall of a loop of such iterations: duration and packets.
    fn stalls(iterations: &[(u64, u64)]) -> (u64, u64) {
        let mut polling = PollingLoop::new(THRESHOLD.with_delay(500));
        iterations.iter().for_each(|(elapsed, packets)| polling.record(*elapsed, *packets));
        let LoopTimes { interrupted, stalled, longest_stall, .. } = polling.times;
        assert!(interrupted >= stalled, "{iterations:?}");
        (stalled, longest_stall)
    }

    #[test]
    fn a_stall_without_packets_counts_if_packets_follow_soon() {
        assert_eq!(stalls(&[(5000, 0), (20, 3)]), (5000, 5000));
        // The packets that came during the stall are reported after the loop has moved the head of the pipe.
        assert_eq!(stalls(&[(5000, 0), (20, 0), (20, 3)]), (5000, 5000));
        assert_eq!(stalls(&[(5000, 0), (20, 0), (20, 3), (20, 3)]), (5000, 5000), "once");
        // 10,500 ticks later, and later than that.
        let [within, late] = [500, 501].map(|ticks| {
            stalls(&[&[(5000, 0)][..], &[(1000, 0); 10], &[(ticks, 0), (20, 3)]].concat())
        });
        assert_eq!((within, late), ((5000, 5000), (0, 0)));
    }

    #[test]
    fn stalls_that_follow_each_other_count_together_and_with_that_of_the_packets() {
        assert_eq!(stalls(&[(5000, 0), (20, 0), (3000, 0), (20, 0), (20, 3)]), (8000, 5000));
        // The packets' own stall includes their time.
        assert_eq!(stalls(&[(5000, 0), (20, 0), (6100, 3)]), (11_100, 6100));
    }

    #[test]
    fn stalls_outside_of_the_iterations_and_before_statistics_are_taken() {
        let mut polling = PollingLoop::new(THRESHOLD);
        polling.record_outside(1000);
        polling.record(20, 3);
        assert_eq!(polling.take().stalled, 0, "it is no stall");
        polling.record_outside(6000);
        polling.record(20, 0);
        polling.record(20, 3);
        let LoopTimes { longest, longest_stall, .. } = polling.take();
        assert_eq!((longest, longest_stall), (20, 6000));
        polling.record(5000, 0);
        polling.take();
        polling.record(20, 3);
        assert_eq!(polling.times.stalled, 0, "it was before the statistics");
    }

    #[test]
    fn iterations_are_work_polling_or_stalls() {
        let mut times = LoopTimes::default();
        assert_eq!(times.record(50, 0, &THRESHOLD), 0);
        assert_eq!(times.record(80, 4, &THRESHOLD), 0);
        assert_eq!(times.record(1500, 100, &THRESHOLD), 0);
        assert_eq!(times.record(1500, 10, &THRESHOLD), 1500, "more than 1100");
        assert_eq!((times.working, times.packets, times.busy), (2, 104, 1580));
        assert_eq!((times.polls, times.polling), (1, 50));
        assert_eq!((times.longest, times.interrupted, times.stalled), (1500, 0, 0));
        times.add_stall(1400, 1500);
        assert_eq!((times.interrupted, times.stalled, times.longest_stall), (1500, 1400, 1400));
        assert_eq!(times.empty_iteration(), Some(50.0));
        assert_eq!(LoopTimes::default().empty_iteration(), None);
    }

    #[test]
    fn a_learnt_cost_is_allowed_and_is_no_part_of_a_stall() {
        let threshold = THRESHOLD.with_cost(300);
        let mut times = LoopTimes::default();
        // 1000, and 10 + 2 * 300 for each of 100 packets.
        assert_eq!(times.record(62_000, 100, &threshold), 0);
        assert_eq!(times.record(62_001, 100, &threshold), 32_001);
        assert_eq!(StallThreshold::NEVER.with_cost(300).limit(4096), u64::MAX);
    }

    #[test]
    fn the_learnt_cost_ignores_stalls_and_small_iterations() {
        let mut cost = PacketCost::learning();
        assert_eq!(cost.typical(), None);
        for iteration in 0..3000 {
            match iteration % 100 {
                // A stall, and a few packets at a high cost each.
                98 => cost.record(1_000_000, 64),
                99 => cost.record(5000, 1),
                _ => cost.record(64 * 300 - 1, 64),
            }
        }
        assert_eq!(cost.typical(), Some(300));
        // Two of four iterations stalled.
        let mut few = PacketCost::learning();
        for (elapsed, packets) in [(8_000_000, 500), (150_000, 500), (9_000_000, 500)] {
            few.record(elapsed, packets);
            assert_eq!(few.typical(), None);
        }
        few.record(150_000, 500);
        assert_eq!(few.typical(), Some(300));
        let mut none = PacketCost::known();
        none.record(100, 1);
        assert_eq!(none.typical(), None);
    }
}
