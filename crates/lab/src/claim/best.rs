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
use crate::sharing::{Sharing, SharingCounts};
use crate::statistics::{CONFIDENCE, Interval, IntervalKind, Ratio, interval_rounds};
use crate::summary::{Contest, Pairing};

/// Ratio of two points, one of each side.
struct Rivals<'s> {
    above: &'s Point,
    below: &'s Point,
    /// Number of its rounds by state of the core.
    counts: SharingCounts,
    /// Ratio with the interval that gives the lower end, and with that for the upper end.
    by_end: [Ratio; 2],
    /// The same with every round in which both points have a value.
    with_lost: [Ratio; 2],
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
        let row =
            |a: &Step<'s>| below.iter().map(|b| self.rivals(*a, *b, confidences, state)).collect();
        let rows: Rows = above.iter().map(row).collect::<Result<_, _>>()?;
        let (best, ratio) =
            of_best(&rows, better, |one| &one.by_end).ok_or_else(|| self.claim.not_measured())?;
        let points = |side: &Points<'s>| side.iter().map(|(point, _)| *point).collect();
        let lost = rows.iter().flatten().map(|one| lost_of(&one.by_end[0]));
        Ok(Paired {
            above: best.above,
            below: best.below,
            baselines: None,
            ratio,
            sides: [points(above), points(below)],
            state,
            counts: best.counts,
            rounds_needed: confidences.map(interval_rounds).into_iter().max(),
            is_between_boots: false,
            lost: Contest::most_lost(lost),
            with_lost: of_best(&rows, better, |one| &one.with_lost).map(|(_, ratio)| ratio),
        })
    }

    /// Returns the ratio of two points in a state of the core, with an interval for each end.
    fn rivals<'s>(
        &self,
        above: Step<'s>,
        below: Step<'s>,
        confidences: [f64; 2],
        state: Option<Sharing>,
    ) -> Result<Rivals<'s>, NoVerdict> {
        let pairs = Pairing::of(above.1, below.1).in_state(state);
        let [low, high] = confidences.map(|one| self.ratio(above, below, &pairs, one));
        let by_end = [low?, high?];
        let [low, high] = confidences.map(|one| ratio_of_all(above.1, below.1, one));
        let with_lost = low.zip(high).ok_or_else(|| self.claim.not_measured())?.into();
        Ok(Rivals { above: above.0, below: below.0, counts: pairs.counts, by_end, with_lost })
    }
}

/// Returns the best points, and their ratio with the interval that follows from those of all pairs. `by_end` returns the
/// ratio of a pair with the interval for each end.
fn of_best<'r, 's>(
    rows: &'r Rows<'s>,
    better: Better,
    by_end: impl for<'a> Fn(&'a Rivals<'s>) -> &'a [Ratio; 2],
) -> Option<(&'r Rivals<'s>, Ratio)> {
    let best = |value: &dyn Fn(&Rivals<'s>) -> f64| best_by(rows, better, value);
    let centre = best(&|one| by_end(one)[0].ratio)?;
    let end = |value: &dyn Fn(&Rivals<'s>) -> f64| best(value).map_or(f64::NAN, value);
    // A pair without an interval leaves its end open.
    let is_known = |ratio: &Ratio| ratio.interval.kind == IntervalKind::Confidence;
    let low = end(&|one| match &by_end(one)[0] {
        low if is_known(low) => low.interval.low,
        _ => f64::NEG_INFINITY,
    });
    let high = end(&|one| match &by_end(one)[1] {
        high if is_known(high) => high.interval.high,
        _ => f64::INFINITY,
    });
    let ratio = by_end(centre)[0];
    let extremes = ratio.interval;
    let interval = match (low, high) {
        (f64::NEG_INFINITY, f64::INFINITY) => Interval { kind: IntervalKind::Range, ..extremes },
        _ => {
            let kind = IntervalKind::Confidence;
            Interval { low, high, kind, coverage: CONFIDENCE, ..extremes }
        }
    };
    Some((centre, Ratio { interval, ..ratio }))
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
