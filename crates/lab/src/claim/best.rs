//! Ratio of the best points of two sides.
//!
//! The best of many looks better than it is on the rounds that chose it. So each round judges the points that other
//! rounds chose: the rounds are split at random into halves, and each half judges the choice of the other. The value of
//! a round is the mean of its logarithms over several splits, because the verdict must not depend on one.

use std::collections::BTreeMap;

use super::evidence::Evidence;
use super::ratio::{Paired, Points, ratio_of_all};
use super::reason::{NoVerdict, Reason};
use crate::point::Point;
use crate::sharing::Sharing;
use crate::statistics::{LostRound, LostRounds, Split, choices, paired_ratio};
use crate::summary::{Pair, Rounds, relative_resolution};

/// Pairs of the points chosen for a round, one per split, or why a pair has no values.
type Pairs = Vec<Result<Pair, LostRound>>;

impl Evidence<'_> {
    /// Returns the ratio of the best points of two sides; its points are those that are chosen most often.
    pub(super) fn best_ratio<'s>(
        &self,
        above: &Points<'s>,
        below: &Points<'s>,
    ) -> Result<Paired<'s>, NoVerdict> {
        let splits: Vec<_> = self.splits(above)?.into_iter().zip(self.splits(below)?).collect();
        let mut uses = BTreeMap::<_, u32>::new();
        let mut of_round = |(at, round): (usize, &u32)| -> Pairs {
            let chosen = splits.iter().map(|(a, b)| (a.judged_in(at), b.judged_in(at)));
            let pair = |(a, b): (usize, usize)| {
                *uses.entry((a, b)).or_default() += 1;
                self.pair_of(above[a], below[b], *round)
            };
            chosen.map(pair).collect()
        };
        let rounds: Vec<_> = self.rounds.iter().enumerate().map(&mut of_round).collect();
        let (logarithms, lost) = self.mean_logarithms(&rounds)?;
        let pairs: Vec<_> = logarithms.iter().map(|log| (log.exp(), 1.0)).collect();
        let ratio = paired_ratio(&pairs, lost).map_err(|error| Reason::NotSummarised { error })?;
        let resolution = |side: &Points, used: &dyn Fn(&(usize, usize)) -> usize| {
            let shares = uses.keys().map(|pair| relative_resolution(side[used(pair)].1));
            shares.fold(0.0, f64::max)
        };
        let share = resolution(above, &|pair| pair.0).hypot(resolution(below, &|pair| pair.1));
        let most = uses.iter().max_by_key(|(_, uses)| **uses).map_or((0, 0), |(pair, _)| *pair);
        Ok(Paired {
            above: above[most.0].0,
            below: below[most.1].0,
            baselines: None,
            ratio: ratio.with_resolution(share),
            of_best: true,
            is_between_boots: false,
            with_lost: ratio_of_all(above[most.0].1, below[most.1].1),
        })
    }

    /// Returns the choices of the best point of a side. A point with too few rounds to be chosen is an error.
    fn splits(&self, side: &Points) -> Result<Vec<Split>, NoVerdict> {
        let by_round = |rounds: &Rounds| -> Vec<Option<f64>> {
            self.rounds.iter().map(|round| rounds.get(round).map(|one| one.value)).collect()
        };
        let candidates: Vec<_> = side.iter().map(|(_, rounds)| by_round(rounds)).collect();
        let splits = choices(&candidates, self.record.better, self.seed);
        splits.map_err(|error| Reason::NoBest { error }.into())
    }

    /// Returns the pair of two points in a round.
    pub(super) fn pair_of(
        &self,
        above: (&Point, &Rounds),
        below: (&Point, &Rounds),
        round: u32,
    ) -> Result<Pair, LostRound> {
        let is_elsewhere = |point| self.others.get(point).is_some_and(|it| it.contains(&round));
        match Pair::of(above.1.get(&round), below.1.get(&round)) {
            Err(LostRound::Missing) if is_elsewhere(above.0) || is_elsewhere(below.0) => {
                Err(LostRound::OtherClass)
            }
            pair => pair,
        }
    }

    /// Returns the mean logarithm of the pairs of each round in the chosen state of the core, and counts the rounds
    /// without any.
    fn mean_logarithms(&self, rounds: &[Pairs]) -> Result<(Vec<f64>, LostRounds), NoVerdict> {
        let state = |pairs: &Pairs| pairs.iter().flatten().map(|pair| pair.sharing).next();
        let chosen = Sharing::chosen(rounds.iter().filter_map(state));
        let (mut logarithms, mut lost) = (Vec::new(), LostRounds::default());
        for pairs in rounds {
            let usable: Vec<_> = pairs
                .iter()
                .flatten()
                .filter(|pair| Sharing::counts(pair.sharing, chosen))
                .map(|one| (one.above, one.below))
                .collect();
            if usable.is_empty() {
                let cause = pairs.iter().find_map(|pair| pair.err());
                lost.add(cause.unwrap_or(LostRound::OtherSharing));
                continue;
            }
            let mut sum = 0.0;
            for pair in &usable {
                // The same check as for the ratio of two points.
                let one = paired_ratio(&[*pair], LostRounds::default());
                sum += one.map_err(|error| Reason::NotSummarised { error })?.ratio.ln();
            }
            logarithms.push(sum / usable.len() as f64);
        }
        match logarithms.is_empty() {
            true => Err(Reason::NoCommonRound { lost, command: self.claim.command() }.into()),
            false => Ok((logarithms, lost)),
        }
    }
}
