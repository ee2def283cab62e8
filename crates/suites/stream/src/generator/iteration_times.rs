//! Iterations of the NIC's loop while packets are sent. The NIC and the generator share it.

use super::Trial;
use crate::iterations::{LoopTimes, PacketCost};

/// Iterations of a trial.
#[derive(Debug, Clone)]
pub(super) struct IterationTimes {
    /// Start of the current iteration, in ticks.
    start: u64,
    /// Packets sent and received up to the end of the last iteration.
    moved: u64,
    /// Packets sent and received in the last iteration.
    packets: u64,
    pub(super) times: LoopTimes,
    pub(super) cost: PacketCost,
}

impl IterationTimes {
    pub(super) fn from(now: u64, cost: PacketCost) -> Self {
        Self { start: now, moved: 0, packets: 0, times: LoopTimes::default(), cost }
    }

    /// Ends an iteration that started at `now`, with the total number of packets sent and received. This evaluates the
    /// iteration before, which ended at `now`.
    #[inline(always)]
    pub(super) fn end_iteration(&mut self, now: u64, moved: u64, trial: &Trial) {
        let elapsed = now.saturating_sub(self.start);
        self.start = self.start.max(now);
        let excess = self.times.record(elapsed, self.packets, &trial.threshold);
        if excess > 0 {
            self.times.add_stall(excess, elapsed);
        }
        if self.packets > 0 {
            self.cost.record(elapsed, self.packets);
        }
        // Less if the traffic was replaced since.
        self.packets = moved.saturating_sub(self.moved);
        self.moved = moved;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iterations::StallThreshold;

    #[test]
    fn an_iteration_that_exceeds_its_allowance_is_a_stall() {
        let trial = Trial { threshold: StallThreshold::of_ticks(1000, 10), ..Trial::default() };
        let mut iterations = IterationTimes::from(100, PacketCost::known());
        // From 100 to 3000 with 200 packets, less than the allowance of 1000 and 10 per packet.
        iterations.end_iteration(100, 200, &trial);
        iterations.end_iteration(3000, 200, &trial);
        let LoopTimes { longest, stalled, busy, packets, .. } = iterations.times;
        assert_eq!((longest, stalled, busy, packets), (2900, 0, 2900, 200));
        // As long without packets.
        iterations.end_iteration(5900, 500, &trial);
        let LoopTimes { longest, stalled, busy, .. } = iterations.times;
        assert_eq!((longest, stalled, busy), (2900, 2900, 2900));
        iterations.end_iteration(9000, 500, &trial);
        let LoopTimes { longest_stall, stalled, packets, .. } = iterations.times;
        assert_eq!(
            (longest_stall, stalled, packets),
            (2900, 2900, 500),
            "300 packets may take 3000 more"
        );
    }

    #[test]
    fn an_iteration_that_started_before_the_trial_is_ignored() {
        let mut iterations = IterationTimes::from(100, PacketCost::known());
        iterations.end_iteration(40, 0, &Trial::default());
        assert_eq!((iterations.times.longest, iterations.times.stalled), (0, 0));
    }
}
