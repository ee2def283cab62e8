//! Values that are the limit of their search: the true values may be higher, so that they decide in
//! one direction only.

use super::evidence::Evidence;
use super::reason::Reason;
use super::{Bounds, VerdictKind};
use crate::point::Point;
use crate::statistics::Interval;
use crate::summary::is_capped;

/// Numbers of rounds whose value is the limit of its search.
#[derive(Debug, Clone, Copy)]
pub(super) struct Capped {
    /// Rounds of a value, or of the numerator of a ratio.
    pub(super) above: usize,
    /// Rounds of the denominator of a ratio.
    pub(super) below: usize,
}

impl Evidence<'_> {
    /// Counts the valid rounds in which the value of a point is the limit of its search.
    pub(super) fn capped(&self, point: &Point) -> usize {
        let rounds = self.observed.points.get(point).into_iter().flatten();
        let samples = rounds.filter_map(|(round, _)| self.sample(point, *round));
        samples.filter(|sample| is_capped(sample, self.metric)).count()
    }
}

impl Capped {
    /// Returns the same for the inverse of the ratio.
    pub(super) fn inverted(self) -> Self {
        Self { above: self.below, below: self.above }
    }

    /// Makes a result inconclusive if other true values would change it: higher ones of `above`, or
    /// of `below`, which make the ratio lower.
    pub(super) fn weaken(
        self,
        bounds: &Bounds,
        interval: &Interval,
        kind: &mut VerdictKind,
        reasons: &mut Vec<Reason>,
    ) {
        let (may_be_higher, may_be_lower) = (self.above > 0, self.below > 0);
        let is_above = bounds.at_most.is_some_and(|bound| interval.low > bound);
        let is_open = match kind {
            VerdictKind::Reproduced => {
                (may_be_higher && bounds.at_most.is_some())
                    || (may_be_lower && bounds.at_least.is_some())
            }
            VerdictKind::Contradicted if is_above => may_be_lower,
            VerdictKind::Contradicted => may_be_higher,
            VerdictKind::Inconclusive | VerdictKind::Incomparable | VerdictKind::Unmeasurable => {
                false
            }
        };
        if is_open {
            *kind = VerdictKind::Inconclusive;
            reasons.push(Reason::Capped { above: self.above, below: self.below });
        }
    }
}
