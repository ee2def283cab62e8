//! Values that their search or the instrument limited: the true ones may be better, so that they decide in one direction
//! only. Their intervals are open there; this module states why.

use super::VerdictKind;
use super::evidence::Evidence;
use super::reason::Reason;
use crate::point::Point;
use crate::summary::Limit;

impl Evidence<'_> {
    /// Adds which rounds of the points of a value, or of the two sides of a ratio, are limited: by their search if that
    /// leaves the result open, and by the instrument in any case.
    pub(super) fn add_limits(
        &self,
        [above, below]: [&[&Point]; 2],
        kind: VerdictKind,
        reasons: &mut Vec<Reason>,
    ) {
        let count = |points: &[&Point], limit| -> usize {
            points.iter().map(|point| self.limited_rounds(point, limit)).sum()
        };
        let is_open = kind == VerdictKind::Inconclusive;
        for limit in [Limit::Search, Limit::Instrument] {
            let (above, below) = (count(above, limit), count(below, limit));
            if above + below > 0 && (is_open || limit == Limit::Instrument) {
                reasons.push(Reason::Limited { limit, above, below });
            }
        }
    }

    /// Counts the valid rounds in which the value of a point is limited.
    fn limited_rounds(&self, point: &Point, limit: Limit) -> usize {
        let rounds = self.observed.points.get(point).into_iter().flatten();
        let samples = rounds.filter_map(|(round, _)| self.sample(point, *round));
        samples.filter(|sample| Limit::of(sample, self.metric) == Some(limit)).count()
    }
}
