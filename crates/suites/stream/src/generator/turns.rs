//! How long the turns of the loop take: one that takes far longer than what it did needs stood still, for
//! others had the CPU.

use super::Trial;

/// The turns of a trial.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Turns {
    /// When the turn under way began, ticks.
    begun: u64,
    /// Packets sent and received up to the end of the last turn.
    moved: u64,
    /// Those of the last turn.
    packets: u64,
    /// The longest turn, ticks.
    pub(super) longest: u64,
    /// Ticks of all turns in which the loop stood still.
    pub(super) stood: u64,
}

impl Turns {
    pub(super) fn from(now: u64) -> Self {
        Self { begun: now, ..Self::default() }
    }

    /// At the end of a turn that began at `now`, when so many packets have been sent and received in all.
    /// What is judged is the turn before, which ended then.
    #[inline(always)]
    pub(super) fn turned(&mut self, now: u64, moved: u64, trial: &Trial) {
        let took = now.saturating_sub(self.begun);
        self.begun = self.begun.max(now);
        if took > self.longest {
            self.longest = took;
        }
        if took > trial.stall.saturating_add(trial.allowed * self.packets) {
            std::hint::cold_path();
            self.stood += took;
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
        let mut turns = Turns::from(100);
        // Began at 100, moved 200 packets, and took 2900: fewer than 1000 and 10 each.
        turns.turned(100, 200, &trial);
        turns.turned(3000, 200, &trial);
        assert_eq!((turns.longest, turns.stood), (2900, 0));
        // Nothing moved in this one, and it took as long.
        turns.turned(5900, 500, &trial);
        assert_eq!((turns.longest, turns.stood), (2900, 2900));
        turns.turned(9000, 500, &trial);
        assert_eq!((turns.longest, turns.stood), (3100, 2900), "300 packets take 3000 more");
    }

    #[test]
    fn a_turn_that_began_before_the_trial_is_none() {
        let mut turns = Turns::from(100);
        turns.turned(40, 0, &Trial::default());
        assert_eq!((turns.longest, turns.stood), (0, 0));
    }
}
