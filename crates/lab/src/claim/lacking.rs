//! Rounds that claims lack for a verdict, by counts alone: how many rounds each has, and how many it requires.
//!
//! No result decides what a claim lacks. Of the values only their correlation matters, which leaves the claim without an
//! interval. A run may therefore measure until none lacks rounds, and as many of its intervals cover the truth as without
//! (`cargo test -p tollgate-lab --test coverage -- further`).

use std::collections::BTreeSet;

use super::judge::{Judge, preferred};
use super::reason::Reason;
use super::{Claim, MeasuredValue};
use crate::point::Point;
use crate::summary::Samples;

/// Further rounds if there are enough, but too few for an interval because they are correlated. Whether more are required
/// then is found out after them: the correlation of few rounds is mostly chance.
const CORRELATED: usize = 2;

/// Further rounds that a claim requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LackingRounds {
    /// ID of the experiment.
    pub experiment: String,
    /// The points of the claim that have samples, and the nearest ones with twins.
    pub points: BTreeSet<Point>,
    /// Expected number of rounds, if as large a share of them counts as before.
    pub rounds: u32,
}

impl Judge<'_> {
    /// Returns the rounds that a claim lacks in the class and the state of the core that have the most; `None` if it lacks
    /// none, or if no round counted so far.
    pub fn lacking_rounds(&self, claim: &Claim) -> Option<LackingRounds> {
        let newest = Samples::newest_environment(self.run?, &claim.experiment)?;
        let samples = self.samples(&claim.experiment, newest)?;
        let narrowed = preferred(claim, || Some(samples.clone()));
        let claim = narrowed.as_ref().unwrap_or(claim);
        let mut points: BTreeSet<_> =
            samples.points().filter(|point| claim.is_about(point)).cloned().collect();
        let of_point = |point: &Point| samples.rounds(point, false).count();
        let measured = points.iter().map(of_point).max()?;
        let verdict = self.judge_in(claim, Some(newest));
        let expected = |counted: usize, needed: usize| {
            let further = needed.saturating_sub(counted) * measured;
            (counted > 0).then(|| further.div_ceil(counted))
        };
        let of_reason = |reason: &Reason| match *reason {
            // The best of several points may require more, unless the rounds decide it.
            Reason::TooFewRounds { rounds, needed } if needed <= claim.rounds_needed() => {
                expected(rounds, needed)
            }
            Reason::NoFloor { rounds: Some(rounds), needed, .. } => expected(rounds, needed),
            _ => None,
        };
        let of_value = |value: &MeasuredValue| {
            let is_correlated = |one: &Reason| matches!(one, Reason::Correlated { .. });
            let correlated = value.reasons.iter().any(is_correlated).then_some(value.rounds);
            let correlated = correlated.and_then(|rounds| expected(rounds, rounds + CORRELATED));
            let of_reasons = value.reasons.iter().filter_map(of_reason).chain(correlated).max();
            of_reasons.filter(|_| value.value.is_some())
        };
        let of_values = verdict.values().filter_map(of_value);
        let of_judgements = verdict.judgements.iter().flat_map(|one| &one.reasons);
        let rounds = of_values.chain(of_judgements.filter_map(of_reason)).max()?;
        let twins = samples.declared().map_or(&[][..], |one| &one.twins);
        points.extend(points.clone().iter().flat_map(|point| nearest(point, twins)));
        let rounds = u32::try_from(rounds).unwrap_or(u32::MAX);
        Some(LackingRounds { experiment: claim.experiment.clone(), points, rounds })
    }
}

/// Returns the twins that differ from a point in the fewest factors, which give its noise floor.
fn nearest(point: &Point, twins: &[Point]) -> Vec<Point> {
    let distance = twins.iter().map(|twin| twin.differing(point)).min();
    twins.iter().filter(|twin| Some(twin.differing(point)) == distance).cloned().collect()
}
