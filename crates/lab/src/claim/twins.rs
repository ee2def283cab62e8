//! How far a point is from its twin, in the metric's unit.

use super::evidence::Evidence;
use super::verdict::{Judgement, MeasuredValue, NoVerdict};
use super::{Bounds, words};
use crate::point::Point;
use crate::statistics::{Estimate, estimate};
use crate::summary::{Rounds, pairs};

impl Evidence<'_> {
    /// One outcome for each point with a twin.
    pub(super) fn judge_twins(&self, most: f64) -> Vec<Judgement> {
        let twins = self.observed.twins.iter();
        let outcomes: Vec<_> = twins
            .map(|(point, twin)| Judgement::of_all(vec![self.twin_part(point, twin, most)]))
            .collect();
        if !outcomes.is_empty() {
            return outcomes;
        }
        let lack = match self.observed.points.is_empty() {
            true => self.lack(|_| true),
            false => NoVerdict::inconclusive("none of the points has a twin with values"),
        };
        vec![Judgement::of_all(vec![MeasuredValue::nothing("", lack)])]
    }

    fn twin_part(&self, point: &Point, twin: &Rounds, most: f64) -> MeasuredValue {
        let none = Rounds::new();
        let own = self.observed.points.get(point).unwrap_or(&none);
        let (estimate, lost) = match difference(own, twin) {
            Ok(difference) => difference,
            Err(lack) => return MeasuredValue::nothing(self.label(point), lack),
        };
        let unit = &self.record.unit;
        let bounds = Bounds { at_least: Some(-most), at_most: Some(most) };
        let figure = words::with_interval(estimate.median, &estimate.interval, unit);
        let allowed = words::value(most, unit);
        let why = format!(
            "twins differ by {figure} over {} rounds, claimed at most {allowed}",
            estimate.rounds
        );
        let kind = bounds.judge(&estimate.interval);
        let (kind, why) = self.enough(kind, estimate.rounds, why);
        MeasuredValue {
            label: self.label(point),
            value: Some(estimate.median),
            interval: (estimate.rounds > 1).then_some(estimate.interval),
            unit: unit.clone(),
            rounds: estimate.rounds,
            lost,
            kind,
            why,
        }
    }
}

/// The difference of a point to its twin inside rounds: the median with its interval by the rule
/// of any median, in the metric's unit; and how many rounds were lost.
fn difference(own: &Rounds, twin: &Rounds) -> Result<(Estimate, usize), NoVerdict> {
    let (pairs, lost) = pairs(own, twin);
    let differences: Vec<f64> = pairs.iter().map(|(own, twin)| own - twin).collect();
    let estimate =
        estimate(&differences).map_err(|error| NoVerdict::inconclusive(error.to_string()))?;
    Ok((estimate, lost))
}
