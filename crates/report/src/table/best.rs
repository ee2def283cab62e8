//! The best of several points, marked only where it is resolved.

use std::collections::BTreeSet;

use lab::metric::Better;
use lab::point::Point;
use lab::statistics::{Resolution, choose_and_judge, resolve};
use lab::summary::{Floors, Observed, Rounds, paired};

/// What a best one is judged by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Judge<'a> {
    pub(crate) observed: &'a Observed,
    pub(crate) better: Better,
    pub(crate) floors: &'a Floors,
    pub(crate) seed: u64,
}

impl Judge<'_> {
    /// The best of some points: chosen on half of the rounds and, on the other half, better than
    /// each of the others by more than the noise floor. Nothing where that is not resolved.
    pub(crate) fn best<'p>(&self, points: &[&'p Point]) -> Option<&'p Point> {
        let wins = match self.better {
            Better::Higher => Resolution::Higher,
            Better::Lower => Resolution::Lower,
            Better::Neither => return None,
        };
        let (points, rounds): (Vec<&'p Point>, Vec<&Rounds>) = points
            .iter()
            .filter_map(|point| Some((*point, self.observed.points.get(*point)?)))
            .unzip();
        if points.len() < 2 {
            return None;
        }
        let present: BTreeSet<u32> = rounds.iter().flat_map(|r| r.keys().copied()).collect();
        let present: Vec<u32> = present.into_iter().collect();
        let values = |of: &&Rounds| present.iter().map(|at| of.get(at).map(|o| o.value)).collect();
        let candidates: Vec<Vec<Option<f64>>> = rounds.iter().map(values).collect();
        let choice = choose_and_judge(&candidates, self.better, self.seed).ok()?;
        let judged: BTreeSet<u32> = choice.judged_rounds.iter().map(|at| present[*at]).collect();
        let judging = |of: &Rounds| -> Rounds {
            let judges = |round: &u32| judged.contains(round);
            of.iter().filter(|(r, _)| judges(r)).map(|(r, o)| (*r, o.clone())).collect()
        };
        let chosen = judging(rounds[choice.index]);
        let floor = self.floors.near(&points);
        let beaten = |other: &&Rounds| {
            paired(&chosen, &judging(other)).is_ok_and(|ratio| resolve(&ratio, floor) == wins)
        };
        let others = rounds.iter().enumerate().filter(|(at, _)| *at != choice.index);
        others.map(|(_, other)| other).all(beaten).then(|| points[choice.index])
    }
}
