//! Iteration times of the polling loop. An iteration that takes far longer than its packets need counts as a stall: the
//! thread had lost its CPU.

use super::Trial;

/// Iteration times of a trial.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct IterationTimes {
    /// Start of the current iteration, in ticks.
    start: u64,
    /// Packets sent and received up to the end of the last iteration.
    moved: u64,
    /// Packets sent and received in the last iteration.
    packets: u64,
    /// Duration of the longest iteration, in ticks.
    pub(super) longest: u64,
    /// Duration of all stalled iterations, in ticks.
    pub(super) stalled: u64,
    /// Duration of the longest stalled iteration, in ticks.
    pub(super) longest_stall: u64,
}

impl IterationTimes {
    pub(super) fn from(now: u64) -> Self {
        Self { start: now, ..Self::default() }
    }

    /// Ends an iteration that started at `now`, with the total number of packets sent and received. This evaluates the
    /// iteration before, which ended at `now`.
    #[inline(always)]
    pub(super) fn end_iteration(&mut self, now: u64, moved: u64, trial: &Trial) {
        let elapsed = now.saturating_sub(self.start);
        self.start = self.start.max(now);
        if elapsed > self.longest {
            self.longest = elapsed;
        }
        if elapsed > trial.stall.saturating_add(trial.allowed * self.packets) {
            std::hint::cold_path();
            self.stalled += elapsed;
            self.longest_stall = self.longest_stall.max(elapsed);
        }
        // Less if the traffic was replaced since.
        self.packets = moved.saturating_sub(self.moved);
        self.moved = moved;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_iteration_that_exceeds_its_allowance_is_a_stall() {
        let trial = Trial { stall: 1000, allowed: 10, ..Trial::default() };
        let mut times = IterationTimes::from(100);
        // From 100 to 3000 with 200 packets, less than the allowance of 1000 and 10 per packet.
        times.end_iteration(100, 200, &trial);
        times.end_iteration(3000, 200, &trial);
        assert_eq!((times.longest, times.stalled), (2900, 0));
        // As long without packets.
        times.end_iteration(5900, 500, &trial);
        assert_eq!((times.longest, times.stalled), (2900, 2900));
        times.end_iteration(9000, 500, &trial);
        assert_eq!(
            (times.longest_stall, times.stalled),
            (2900, 2900),
            "300 packets may take 3000 more"
        );
    }

    #[test]
    fn an_iteration_that_started_before_the_trial_is_ignored() {
        let mut times = IterationTimes::from(100);
        times.end_iteration(40, 0, &Trial::default());
        assert_eq!((times.longest, times.stalled), (0, 0));
    }
}
