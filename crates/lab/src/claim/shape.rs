//! Trends of values along the levels of a factor. Every two levels are compared in one state of the core.

use super::evidence::{Evidence, includes};
use super::ratio::{Step, inverted};
use super::reason::{LeftOut, NoVerdict, Reason, Relation};
use super::states::States;
use super::verdict::{Judgement, MeasuredValue};
use super::{Bounds, Trend, VerdictKind};
use crate::point::{Level, Point};
use crate::statistics::{CONFIDENCE, Ratio, Resolution, Unresolved, holm};
use crate::summary::Pairing;

/// The points of a trend in the order of their levels.
struct Steps<'a> {
    points: Vec<Step<'a>>,
    /// States of the core in which every two of them are compared.
    states: States,
}

impl Evidence<'_> {
    /// Judges the trend of the values of one combination of levels along a factor.
    pub(super) fn judge_shape(
        &self,
        form: Trend,
        along: &str,
        beyond: Option<&Level>,
        within: Option<f64>,
        combination: &Point,
    ) -> Judgement {
        let missing = |lack| vec![MeasuredValue::missing(combination.to_string(), lack)];
        let (steps, left_out) = match self.steps(along, combination) {
            Ok(steps) => steps,
            Err(lack) => return Judgement::of_all(missing(lack)),
        };
        let values = match form {
            Trend::Rises => {
                self.monotonic(&steps.points, steps.states, combination, Relation::Higher)
            }
            Trend::Falls => {
                self.monotonic(&steps.points, steps.states, combination, Relation::Lower)
            }
            Trend::Flat => self.flat(&steps, combination, within.unwrap_or_default()),
            Trend::Saturates => {
                let knee = beyond.and_then(Level::number).unwrap_or_default();
                self.saturated(&steps, along, knee, combination, within.unwrap_or_default())
            }
        };
        let mut judgement = Judgement::of_all(values.unwrap_or_else(missing));
        self.limit_failed_steps(&steps, &mut judgement);
        Judgement { left_out, ..judgement }
    }

    /// Weakens a trend if too many rounds of a level failed, also of one between those whose ratio it states.
    fn limit_failed_steps(&self, steps: &Steps, judgement: &mut Judgement) {
        for (point, _) in &steps.points {
            let mut reasons = Vec::new();
            if matches!(judgement.kind, VerdictKind::Reproduced | VerdictKind::Contradicted) {
                self.limit_failures_of(point, &mut judgement.kind, &mut reasons);
            }
            let label = self.name(point, &Point::default());
            let at = |why| Reason::At { label: label.clone(), why: Box::new(why) };
            judgement.reasons.extend(reasons.into_iter().map(at));
        }
    }

    /// Returns the points with values in the order of their levels, at least two, and the levels
    /// that this machine cannot measure.
    fn steps(
        &self,
        along: &str,
        combination: &Point,
    ) -> Result<(Steps<'_>, Vec<LeftOut>), NoVerdict> {
        self.require_fixed(combination, &[along])?;
        let points = self.observed.points.iter();
        let points = points.filter(|(point, _)| includes(point, combination));
        let mut points: Vec<_> = points.collect();
        points.sort_by(|(a, _), (b, _)| number(a, along).total_cmp(&number(b, along)));
        if points.len() < 2 {
            return Err(self.lack(|point| includes(point, combination)));
        }
        let missing = self
            .missing(|point| includes(point, combination), |point| self.name(point, combination));
        match missing.open {
            Some(lack) => Err(lack),
            None => {
                let every_two = points.iter().enumerate().flat_map(|(at, below)| {
                    points[at + 1..].iter().map(move |above| (*above, *below))
                });
                let states = self.states(&every_two.collect::<Vec<_>>());
                Ok((Steps { points, states }, missing.left_out))
            }
        }
    }

    /// Fails if factors other than `named` vary, which the claim must fix.
    pub(super) fn require_fixed(
        &self,
        combination: &Point,
        named: &[&str],
    ) -> Result<(), NoVerdict> {
        let factors = self.open_factors(combination, named);
        if factors.is_empty() { Ok(()) } else { Err(Reason::OpenFactors { factors }.into()) }
    }

    /// Judges the last level over the first, and adds every two levels whose interval is on the other side of 1, the
    /// widest difference first: it contradicts if it is resolved and the p-value of its sign test passes Holm's
    /// correction for all pairs, and leaves the trend open otherwise.
    fn monotonic(
        &self,
        steps: &[Step],
        states: States,
        combination: &Point,
        relation: Relation,
    ) -> Result<Vec<MeasuredValue>, NoVerdict> {
        let judged = |below: &Step, above: &Step| -> Result<(Ratio, MeasuredValue), NoVerdict> {
            let paired = self.paired_points(*above, *below, states)?;
            let directed = match relation {
                Relation::Higher => paired.ratio,
                Relation::Lower => inverted(&paired.ratio),
                Relation::Better => self.improvement(&paired.ratio)?,
            };
            Ok((directed, self.resolved(&paired, &directed, relation, combination)))
        };
        let last = steps.len() - 1;
        let mut values = vec![judged(&steps[0], &steps[last])?.1];
        let others =
            (0..=last).flat_map(|below| (below + 1..=last).map(move |above| (below, above)));
        let others = others.filter(|pair| *pair != (0, last)).map(|(below, above)| {
            let (ratio, value) = judged(&steps[below], &steps[above])?;
            // A difference in the claimed direction is no evidence against the trend.
            let pairing = Pairing::of(steps[above].1, steps[below].1);
            let p = pairing.in_state(states.within_rounds).sign_test().ok();
            Ok((ratio, p.filter(|_| ratio.ratio < 1.0).unwrap_or(1.0), value))
        });
        let others = others.collect::<Result<Vec<_>, NoVerdict>>()?;
        let p_values: Vec<f64> = others.iter().map(|(_, p, _)| *p).collect();
        let (count, certain) = (others.len(), holm(&p_values, 1.0 - CONFIDENCE));
        let mut against: Vec<_> = others.into_iter().zip(certain).collect();
        against
            .retain(|((ratio, _, value), _)| ratio.interval.high < 1.0 && !value.is_below_floor());
        against.sort_by(|((a, ..), _), ((b, ..), _)| a.ratio.total_cmp(&b.ratio));
        for ((_, _, mut value), is_certain) in against {
            if value.kind == VerdictKind::Contradicted && !is_certain {
                value.kind = VerdictKind::Inconclusive;
                value.reasons.push(Reason::OneOfPairs { pairs: count });
            }
            values.push(value);
        }
        Ok(values)
    }

    fn flat(
        &self,
        steps: &Steps,
        combination: &Point,
        within: f64,
    ) -> Result<Vec<MeasuredValue>, NoVerdict> {
        let bounds = Bounds { at_least: Some(1.0 / (1.0 + within)), at_most: Some(1.0 + within) };
        let value = |step: &Step| {
            let paired = self.paired_points(*step, steps.points[0], steps.states)?;
            let claimed = Reason::Claimed { bounds, unit: "1".into() };
            Ok(self.bounded(&paired, &paired.ratio, &bounds, claimed, combination))
        };
        steps.points[1..].iter().map(value).collect()
    }

    fn saturated(
        &self,
        steps: &Steps,
        along: &str,
        knee: f64,
        combination: &Point,
        within: f64,
    ) -> Result<Vec<MeasuredValue>, NoVerdict> {
        let Steps { points: steps, states } = steps;
        let reached = steps.partition_point(|(point, _)| number(point, along) <= knee);
        if reached < 2 || reached == steps.len() {
            let (needed, above) = if reached < 2 { (2, false) } else { (1, true) };
            let factor = along.into();
            return Err(Reason::TooFewLevels { factor, needed, above, level: knee }.into());
        }
        let mut values =
            self.monotonic(&steps[..reached], *states, combination, Relation::Better)?;
        let knee = steps[reached - 1];
        let bounds = Bounds { at_least: None, at_most: Some(1.0 + within) };
        for step in &steps[reached..] {
            let paired = self.paired_points(*step, knee, *states)?;
            let better = self.improvement(&paired.ratio)?;
            let claimed = match better == paired.ratio {
                true => Reason::Claimed { bounds, unit: "1".into() },
                false => Reason::ClaimedImprovement { bounds },
            };
            values.push(self.bounded(&paired, &better, &bounds, claimed, combination));
        }
        Ok(values)
    }
}

impl MeasuredValue {
    /// Returns whether the value is a ratio that differs from 1 by less than the noise floor.
    fn is_below_floor(&self) -> bool {
        const BELOW: Resolution = Resolution::Unresolved { why: Unresolved::BelowFloor };
        let is_below = |one: &Reason| matches!(one, Reason::Resolved { resolution: BELOW, .. });
        self.reasons.iter().any(is_below)
    }
}

/// Returns the number of a level; infinity for other levels, which come last.
pub(super) fn number(point: &Point, along: &str) -> f64 {
    point.get(along).and_then(Level::number).unwrap_or(f64::INFINITY)
}
