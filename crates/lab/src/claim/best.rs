//! Ratio of the best points of two sides.
//!
//! The best of many points looks better than it is on the rounds that chose it, so none is chosen: every point of one
//! side is compared with every point of the other. If higher is better, the ratio of the best ones is the highest, over
//! the points of the numerator, of the lowest ratio to a point of the denominator. Its interval follows from those of
//! the pairs. The lower end is too high only if it is for the true rival of some point of the numerator, and the upper
//! end too low only if it is for some rival of the true best: so the error of an end is divided by the number of points
//! of that side (Bonferroni). If lower is better, the roles are exchanged. A pair with too few rounds for its interval,
//! or with correlated ones, leaves an end open unless other points decide it.

use super::evidence::Evidence;
use super::ratio::{Paired, Points, Step, lost_of, ratio_of_all};
use super::reason::{NoVerdict, Reason};
use crate::metric::Better;
use crate::point::Point;
use crate::sharing::Sharing;
use crate::statistics::{CONFIDENCE, Interval, IntervalKind, Ratio, interval_rounds};
use crate::summary::{Contest, Pairing};

/// Ratio of two points, one of each side.
struct Rivals<'s> {
    above: &'s Point,
    below: &'s Point,
    /// Ratio with the interval that gives the lower end, and with that for the upper end.
    by_end: [Ratio; 2],
}

/// Ratios of every point of one side to every point of the other: a row per point of the numerator.
type Rows<'s> = Vec<Vec<Rivals<'s>>>;

impl Evidence<'_> {
    /// Returns the ratio of the best points of two sides in a state of the core; its points are those with the ratio of
    /// the best ones.
    pub(super) fn best_ratio<'s>(
        &self,
        above: &Points<'s>,
        below: &Points<'s>,
        state: Option<Sharing>,
    ) -> Result<Paired<'s>, NoVerdict> {
        let better = self.record.better;
        let choices = match better {
            Better::Higher => [above.len(), below.len()],
            Better::Lower => [below.len(), above.len()],
            Better::Neither => return Err(Reason::NoDirection.into()),
        };
        let confidences = choices.map(|points| 1.0 - (1.0 - CONFIDENCE) / points as f64);
        let rows = every_two(above, below, |a, b| {
            let pairs = Pairing::of(a.1, b.1).in_state(state);
            let [low, high] = confidences.map(|one| self.ratio(a, b, &pairs, one));
            Ok([low?, high?])
        })?;
        let (best, ratio) = of_best(&rows, better).ok_or_else(|| self.claim.not_measured())?;
        let with_lost = every_two(above, below, |a, b| {
            let [low, high] = confidences
                .map(|one| ratio_of_all(a.1, b.1, one).ok_or_else(|| self.claim.not_measured()));
            Ok([low?, high?])
        })?;
        let rounds_of = |one: &Point, side: &Points<'s>| {
            side.iter().find(|(point, _)| *point == one).map(|(_, rounds)| *rounds)
        };
        let best_rounds = rounds_of(best.above, above).zip(rounds_of(best.below, below));
        let counts = best_rounds.map(|(a, b)| Pairing::of(a, b).in_state(state).counts);
        let points = |side: &Points<'s>| side.iter().map(|(point, _)| *point).collect();
        let lost = rows.iter().flatten().map(|one| lost_of(&one.by_end[0]));
        Ok(Paired {
            above: best.above,
            below: best.below,
            baselines: None,
            ratio,
            sides: [points(above), points(below)],
            state,
            counts: counts.unwrap_or_default(),
            rounds_needed: confidences.map(interval_rounds).into_iter().max(),
            is_between_boots: false,
            lost: Contest::most_lost(lost),
            with_lost: of_best(&with_lost, better).map(|(_, ratio)| ratio),
        })
    }
}

/// Returns the ratios of every point of one side to every point of the other.
fn every_two<'s>(
    above: &Points<'s>,
    below: &Points<'s>,
    ratios: impl Fn(Step<'s>, Step<'s>) -> Result<[Ratio; 2], NoVerdict>,
) -> Result<Rows<'s>, NoVerdict> {
    let rivals = |a: Step<'s>, b: Step<'s>| -> Result<Rivals<'s>, NoVerdict> {
        Ok(Rivals { above: a.0, below: b.0, by_end: ratios(a, b)? })
    };
    above.iter().map(|a| below.iter().map(|b| rivals(*a, *b)).collect()).collect()
}

/// Returns the best points, and their ratio with the interval that follows from those of all pairs.
fn of_best<'r, 's>(rows: &'r Rows<'s>, better: Better) -> Option<(&'r Rivals<'s>, Ratio)> {
    let best = |value: &dyn Fn(&Rivals<'s>) -> f64| best_by(rows, better, value);
    let centre = best(&|one| one.by_end[0].ratio)?;
    let end = |value: &dyn Fn(&Rivals<'s>) -> f64| best(value).map_or(f64::NAN, value);
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
        (f64::NEG_INFINITY, f64::INFINITY) => Interval { kind: IntervalKind::Range, ..extremes },
        _ => {
            let kind = IntervalKind::Confidence;
            Interval { low, high, kind, coverage: CONFIDENCE, ..extremes }
        }
    };
    Some((centre, Ratio { interval, ..centre.by_end[0] }))
}

/// Returns the pair of the best points by a value: of each row the one whose rival is best, and of those the best.
fn best_by<'r, 's>(
    rows: &'r Rows<'s>,
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
