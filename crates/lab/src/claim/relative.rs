//! Ratios of overheads: each side is divided by its baseline within the round.

use std::collections::{BTreeMap, BTreeSet};

use super::Bounds;
use super::evidence::{Evidence, Side, open_factors};
use super::ratio::{Paired, lost_of, ratio_of_all};
use super::reason::{NoVerdict, Reason};
use super::verdict::{Judgement, MeasuredValue};
use crate::point::{Filter, Point};
use crate::statistics::{CONFIDENCE, LostRound, LostRounds, Ratio};
use crate::summary::{Observation, Pair, Rounds, pairs, quotient};

/// A point relative to its baseline.
struct Overhead<'a> {
    point: &'a Point,
    baseline: &'a Point,
    /// The quotient of each round, or why it has none.
    rounds: BTreeMap<u32, Result<Observation, LostRound>>,
    /// The quotient of every round in which both points have a value.
    all: Rounds,
}

impl Evidence<'_> {
    /// Judges a ratio of two ratios to baselines against bounds, for one combination of levels.
    pub(super) fn judge_relative(
        &self,
        sides: [&Filter; 2],
        baselines: &[Filter; 2],
        bounds: &Bounds,
        combination: &Point,
    ) -> Judgement {
        let judge = || {
            let [of, to] = [0, 1].map(|at| self.overhead(sides[at], &baselines[at], combination));
            let paired = self.paired_overheads(&of?, &to?)?;
            let claimed = Reason::Claimed { bounds: *bounds, unit: "1".into() };
            let mut value = self.bounded(&paired, &paired.ratio, bounds, claimed, combination);
            let [a, b] = baselines.each_ref().map(|levels| {
                levels.0.iter().map(|(factor, level)| format!("{factor}={}", level.levels()[0]))
            });
            let relative = a.chain(b).collect::<BTreeSet<_>>();
            let relative = relative.into_iter().collect::<Vec<_>>().join(" and ");
            value.label += &format!(", each relative to {relative}");
            Ok(value)
        };
        let missing = |lack| MeasuredValue::missing(combination.to_string(), lack);
        Judgement::of_all(vec![judge().unwrap_or_else(missing)])
    }

    /// Returns the point of a side relative to its baseline, which differs from it in the levels of a filter.
    fn overhead(
        &self,
        side: &Filter,
        baseline: &Filter,
        combination: &Point,
    ) -> Result<Overhead<'_>, NoVerdict> {
        let Side { points, missing } = self.side(side, combination)?;
        if let Some(lack) = missing.open {
            return Err(lack);
        }
        let [above] = points[..] else {
            let factors = open_factors(points.iter().map(|(point, _)| *point), &[]);
            return Err(Reason::OpenFactors { factors }.into());
        };
        let levels = baseline.0.iter().map(|(factor, levels)| (factor, &levels.levels()[0]));
        let base = levels.fold(above.0.clone(), |base, (f, level)| base.with(f, level.clone()));
        let below = self.observed.points.get_key_value(&base).ok_or_else(|| self.lack_of(&base))?;
        let of = |round: u32| quotient(above.1.get(&round)?, below.1.get(&round)?);
        let paired = |round: u32| {
            self.pair_of(above, below, round)?;
            of(round).ok_or(LostRound::Missing)
        };
        let rounds: BTreeSet<u32> = above.1.keys().chain(below.1.keys()).copied().collect();
        Ok(Overhead {
            point: above.0,
            baseline: below.0,
            all: rounds.iter().filter_map(|round| Some((*round, of(*round)?))).collect(),
            rounds: rounds.into_iter().map(|round| (round, paired(round))).collect(),
        })
    }

    /// Returns the pair of two points in a round.
    fn pair_of(
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

    /// Returns the ratio of two overheads. A round is lost if one of its four values is.
    fn paired_overheads<'s>(
        &self,
        above: &Overhead<'s>,
        below: &Overhead<'s>,
    ) -> Result<Paired<'s>, NoVerdict> {
        let (mut numerator, mut denominator) = (Rounds::new(), Rounds::new());
        let mut lost = LostRounds::default();
        let rounds: BTreeSet<u32> =
            above.rounds.keys().chain(below.rounds.keys()).copied().collect();
        let points = [above.point, above.baseline, below.point, below.baseline];
        for round in rounds.into_iter().filter(|round| self.is_requested(&points, *round)) {
            let of = |side: &Overhead| {
                side.rounds.get(&round).cloned().unwrap_or(Err(LostRound::Missing))
            };
            match (of(above), of(below)) {
                (Ok(above), Ok(below)) => {
                    numerator.insert(round, above);
                    denominator.insert(round, below);
                }
                (Err(cause), _) | (_, Err(cause)) => lost.add(cause),
            }
        }
        let pairs = pairs(&numerator, &denominator);
        let lost = lost.and(pairs.lost);
        if pairs.pairs.is_empty() {
            return Err(Reason::NoCommonRound { lost, command: self.claim.command() }.into());
        }
        let ratio =
            pairs.wide_ratio_at(CONFIDENCE).map_err(|error| Reason::NotSummarised { error })?;
        let ratio = Ratio { lost, ..ratio };
        Ok(Paired {
            above: above.point,
            below: below.point,
            baselines: Some([above.baseline, below.baseline]),
            sides: [vec![above.point], vec![below.point]],
            state: pairs.state,
            counts: pairs.counts,
            ratio,
            rounds_needed: None,
            is_between_boots: false,
            lost: lost_of(&ratio),
            with_lost: ratio_of_all(&above.all, &below.all, CONFIDENCE),
        })
    }
}
