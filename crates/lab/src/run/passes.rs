//! The passes of a run: which experiments measure a round in which pass, and in which order.
//!
//! Rounds are the outermost loop: a run passes through all experiments again and again, so that the rounds of each are
//! spread over the whole run and its values describe more than one moment of the machine.

use crate::plan::seed_of;
use crate::statistics::order;

/// The schedule of experiments by pass. The experiment with the most rounds has one in every pass; the rounds of others
/// are spread evenly over the passes. After the last pass the schedule repeats.
#[derive(Debug)]
pub(super) struct Passes {
    /// The requested rounds of each experiment, at least 1.
    rounds: Vec<u32>,
    max_rounds: u32,
    seed: u64,
}

impl Passes {
    pub(super) fn new(rounds: Vec<u32>, seed: u64) -> Self {
        let rounds: Vec<u32> = rounds.into_iter().map(|rounds| rounds.max(1)).collect();
        let max_rounds = rounds.iter().copied().max().unwrap_or(1);
        Self { rounds, max_rounds, seed: seed_of("passes", seed) }
    }

    /// Returns the number of passes in which every experiment has its requested rounds.
    pub(super) fn count(&self) -> u32 {
        self.max_rounds
    }

    /// Returns the experiments that have a round in a pass, in random order: each with its index and its round.
    pub(super) fn visits(&self, pass: u32) -> Vec<(usize, u32)> {
        let order = order::of_round(self.rounds.len(), pass as usize, self.seed);
        order.into_iter().filter_map(|index| Some((index, self.round(index, pass)?))).collect()
    }

    /// Returns the round of an experiment in a pass.
    fn round(&self, index: usize, pass: u32) -> Option<u32> {
        let [rounds, all] = [self.rounds[index], self.max_rounds].map(u64::from);
        let (cycle, at) = (u64::from(pass) / all, u64::from(pass) % all);
        // Round k of a cycle is in the middle of its share of the passes, from k / rounds to (k + 1) / rounds.
        let rounds_before = |pass: u64| (2 * rounds * pass + all - 1) / (2 * all);
        let has_round = rounds_before(at + 1) > rounds_before(at);
        has_round.then(|| u32::try_from(cycle * rounds + rounds_before(at)).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes_of(passes: &Passes, index: usize) -> Vec<(u32, u32)> {
        let visits = |pass| passes.visits(pass).into_iter().map(move |visit| (pass, visit));
        let all = (0..2 * passes.count()).flat_map(visits);
        all.filter(|(_, (at, _))| *at == index).map(|(pass, (_, round))| (pass, round)).collect()
    }

    #[test]
    fn rounds_are_spread_evenly_over_the_passes() {
        let passes = Passes::new(vec![10, 1, 4, 10], 7);
        assert_eq!(passes.count(), 10);
        let every_pass: Vec<_> = (0..20).map(|pass| (pass, pass)).collect();
        assert_eq!(passes_of(&passes, 0), every_pass);
        assert_eq!(passes_of(&passes, 3), every_pass);
        assert_eq!(passes_of(&passes, 1), [(5, 0), (15, 1)]);
        let spread = [(1, 0), (3, 1), (6, 2), (8, 3), (11, 4), (13, 5), (16, 6), (18, 7)];
        assert_eq!(passes_of(&passes, 2), spread);
    }

    #[test]
    fn every_experiment_has_its_rounds_once_and_in_order() {
        for most in 1..40 {
            for few in 1..=most {
                let passes = Passes::new(vec![few, most], 1);
                let rounds: Vec<_> = passes_of(&passes, 0).iter().map(|visit| visit.1).collect();
                assert_eq!(rounds, (0..2 * few).collect::<Vec<_>>(), "{few} of {most}");
            }
        }
    }

    #[test]
    fn the_order_of_experiments_is_random_and_follows_the_seed() {
        let orders = |seed| (0..4).map(|at| Passes::new(vec![3; 8], seed).visits(at)).collect();
        let (one, same, other): (Vec<_>, Vec<_>, Vec<_>) = (orders(1), orders(1), orders(2));
        assert_eq!(one, same);
        assert_ne!(one, other);
        let indices = |visits: &[(usize, u32)]| visits.iter().map(|v| v.0).collect::<Vec<_>>();
        assert_ne!(indices(&one[0]), indices(&one[1]));
    }
}
