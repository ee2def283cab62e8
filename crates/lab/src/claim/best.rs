//! Ratio of the best points of two sides.
//!
//! The best of many points looks better than it is on the rounds that chose it, so none is chosen: every point of one side
//! is compared with every point of the other. If higher is better, the ratio of the best ones is the highest, over the
//! points of the numerator, of the lowest ratio to a point of the denominator. Its interval follows from those of the
//! pairs. The lower end is too high only if it is for the true rival of some point of the numerator, and the upper end too
//! low only if it is for some rival of the true best: so the error of an end is divided by the number of points of that
//! side (Bonferroni). If lower is better, the roles are exchanged. A pair with too few rounds for its interval, or with
//! correlated ones, leaves an end open unless other points decide it.

use super::evidence::Evidence;
use super::ratio::{Paired, Points, ratio_of_all};
use super::reason::{NoVerdict, Reason};
use crate::metric::Better;
use crate::point::Point;
use crate::sharing::Sharing;
use crate::statistics::{
    CONFIDENCE, INTERVAL_ROUNDS, Interval, IntervalKind, Ratio, interval_rounds,
};
use crate::summary::{Rounds, pair_states, paired_in_state};

/// Ratio of two points, one of each side.
struct Rivals<'s> {
    above: &'s Point,
    below: &'s Point,
    /// Ratio with the interval that gives the lower end, and with that for the upper end.
    by_end: [Ratio; 2],
    /// See [`Paired::with_lost`].
    with_lost: Option<Ratio>,
}

impl Evidence<'_> {
    /// Returns the ratio of the best points of two sides; its points are those with the ratio of the best ones.
    pub(super) fn best_ratio<'s>(
        &self,
        above: &Points<'s>,
        below: &Points<'s>,
    ) -> Result<Paired<'s>, NoVerdict> {
        let choices = match self.record.better {
            Better::Higher => [above.len(), below.len()],
            Better::Lower => [below.len(), above.len()],
            Better::Neither => return Err(Reason::NoDirection.into()),
        };
        let confidences = choices.map(|points| 1.0 - (1.0 - CONFIDENCE) / points as f64);
        let state = common_state(above, below);
        let rows: Vec<Vec<Rivals>> = above
            .iter()
            .map(|a| below.iter().map(|b| self.rivals(*a, *b, state, confidences)).collect())
            .collect::<Result<_, _>>()?;
        let best = |value: &dyn Fn(&Rivals) -> f64| of_best(&rows, self.record.better, value);
        let Some(centre) = best(&|one| one.by_end[0].ratio) else {
            return Err(self.claim.not_measured());
        };
        let end = |value: &dyn Fn(&Rivals) -> f64| best(value).map_or(f64::NAN, value);
        // A pair without an interval leaves its end open.
        let is_known = |ratio: &Ratio| ratio.interval.kind == IntervalKind::Confidence;
        let low = end(&|Rivals { by_end: [low, _], .. }| match is_known(low) {
            true => low.interval.low,
            false => f64::NEG_INFINITY,
        });
        let high = end(&|Rivals { by_end: [_, high], .. }| match is_known(high) {
            true => high.interval.high,
            false => f64::INFINITY,
        });
        let extremes = centre.by_end[0].interval;
        let interval = match (low, high) {
            (f64::NEG_INFINITY, f64::INFINITY) => {
                Interval { kind: IntervalKind::Range, ..extremes }
            }
            _ => Interval {
                low,
                high,
                kind: IntervalKind::Confidence,
                coverage: CONFIDENCE,
                ..extremes
            },
        };
        let with_lost = best(&|one| one.with_lost.map_or(f64::NAN, |all| all.ratio));
        Ok(Paired {
            above: centre.above,
            below: centre.below,
            baselines: None,
            ratio: Ratio { interval, ..centre.by_end[0] },
            candidates: above.iter().chain(below).map(|(point, _)| *point).collect(),
            rounds_needed: confidences.map(interval_rounds).into_iter().max(),
            is_between_boots: false,
            with_lost: with_lost.and_then(|one| one.with_lost),
        })
    }

    /// Returns the ratio of two points in a state of the core, with intervals of two confidences.
    fn rivals<'s>(
        &self,
        above: (&'s Point, &Rounds),
        below: (&'s Point, &Rounds),
        state: Option<Sharing>,
        confidences: [f64; 2],
    ) -> Result<Rivals<'s>, NoVerdict> {
        let [low, high] = confidences.map(|confidence| {
            self.ratio(above, below, |a, b| paired_in_state(a, b, state, confidence))
        });
        Ok(Rivals {
            above: above.0,
            below: below.0,
            by_end: [low?, high?],
            with_lost: ratio_of_all(above.1, below.1),
        })
    }
}

/// Returns the state of the core in which all pairs of two sides are compared: alone if each pair has enough rounds for an
/// interval, else shared if each has, else the one with more; `None`, which means any, with fewer rounds. A pair with fewer
/// rounds in all leaves an end open anyway and does not count.
fn common_state(above: &Points, below: &Points) -> Option<Sharing> {
    let states = above.iter().flat_map(|a| below.iter().map(|b| pair_states(a.1, b.1)));
    let states: Vec<_> = states.filter(|pairs| pairs.len() >= INTERVAL_ROUNDS).collect();
    if states.is_empty() {
        return None;
    }
    let count = |state: Sharing| {
        let of_pair =
            |pairs: &Vec<_>| pairs.iter().filter(|one| Sharing::counts(**one, Some(state))).count();
        states.iter().map(of_pair).min().unwrap_or(0)
    };
    let both = [Sharing::Alone, Sharing::Shared];
    let enough = both.into_iter().find(|state| count(*state) >= INTERVAL_ROUNDS);
    // Of equally frequent ones, the last is the maximum.
    enough.or_else(|| both.into_iter().rev().max_by_key(|state| count(*state)))
}

/// Returns the pair of the best points by a value: of each row the one whose rival is best, and of those the best.
fn of_best<'r, 's>(
    rows: &'r [Vec<Rivals<'s>>],
    better: Better,
    value: &dyn Fn(&Rivals<'s>) -> f64,
) -> Option<&'r Rivals<'s>> {
    let is_higher = better == Better::Higher;
    let pick = |pairs: &mut dyn Iterator<Item = &'r Rivals<'s>>, highest: bool| {
        let order = |a: &&Rivals<'s>, b: &&Rivals<'s>| value(a).total_cmp(&value(b));
        if highest { pairs.max_by(order) } else { pairs.min_by(order) }
    };
    let rivals = rows.iter().filter_map(|row| pick(&mut row.iter(), !is_higher));
    pick(&mut rivals.collect::<Vec<_>>().into_iter(), is_higher)
}
