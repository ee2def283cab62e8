//! How long the turns of the loop take: one that takes far longer than what it did needs stood still, for
//! others had the CPU.

use super::Trial;

/// The turns of a trial.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct IterationTimes {
    /// When the turn under way began, ticks.
    start: u64,
    /// Packets sent and received up to the end of the last turn.
    moved: u64,
    /// Those of the last turn.
    packets: u64,
    /// The longest turn, ticks.
    pub(super) longest: u64,
    /// Ticks of all turns in which the loop stood still.
    pub(super) stalled: u64,
}

impl IterationTimes {
    pub(super) fn from(now: u64) -> Self {
        Self { start: now, ..Self::default() }
    }

    /// At the end of a turn that began at `now`, when so many packets have been sent and received in all.
    /// What is judged is the turn before, which ended then.
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
        }
        // Less where what is sent was changed meanwhile.
        self.packets = moved.saturating_sub(self.moved);
        self.moved = moved;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_that_takes_longer_than_its_packets_stood_still() {
        let trial = Trial { stall: 1000, allowed: 10, ..Trial::default() };
        let mut turns = IterationTimes::from(100);
        // Began at 100, moved 200 packets, and took 2900: fewer than 1000 and 10 each.
        turns.end_iteration(100, 200, &trial);
        turns.end_iteration(3000, 200, &trial);
        assert_eq!((turns.longest, turns.stalled), (2900, 0));
        // Nothing moved in this one, and it took as long.
        turns.end_iteration(5900, 500, &trial);
        assert_eq!((turns.longest, turns.stalled), (2900, 2900));
        turns.end_iteration(9000, 500, &trial);
        assert_eq!((turns.longest, turns.stalled), (3100, 2900), "300 packets take 3000 more");
    }

    #[test]
    fn a_turn_that_began_before_the_trial_is_none() {
        let mut turns = IterationTimes::from(100);
        turns.end_iteration(40, 0, &Trial::default());
        assert_eq!((turns.longest, turns.stalled), (0, 0));
    }
}
