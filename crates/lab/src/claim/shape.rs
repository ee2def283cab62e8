//! How values go along a factor's levels.

use super::evidence::{Evidence, includes};
use super::ratio::{Paired, inverted, resolved_higher, within_bounds};
use super::verdict::{Judgement, LeftOut, MeasuredValue, NoVerdict};
use super::{Bounds, Trend, VerdictKind};
use crate::point::{Level, Point};
use crate::statistics::Ratio;
use crate::summary::Rounds;

/// The point at one level.
type Step<'a> = (&'a Point, &'a Rounds);

impl Evidence<'_> {
    /// How the values of one combination of levels go along a factor.
    pub(super) fn judge_shape(
        &self,
        form: Trend,
        along: &str,
        beyond: Option<&Level>,
        within: Option<f64>,
        combination: &Point,
    ) -> Judgement {
        let nothing = |lack| vec![MeasuredValue::nothing(combination.to_string(), lack)];
        let (steps, left_out) = match self.steps(along, combination) {
            Ok(steps) => steps,
            Err(lack) => return Judgement::of_all(nothing(lack)),
        };
        let parts = match form {
            Trend::Rises => self.risen(&steps, combination, false),
            Trend::Falls => self.risen(&steps, combination, true),
            Trend::Flat => self.flat(&steps, combination, within.unwrap_or_default()),
            Trend::Saturates => {
                let last = beyond.and_then(Level::number).unwrap_or_default();
                self.saturated(&steps, along, last, combination, within.unwrap_or_default())
            }
        };
        Judgement { left_out, ..Judgement::of_all(parts.unwrap_or_else(nothing)) }
    }

    /// The points with values in the order of their levels, two or more, and the levels that this
    /// machine cannot measure.
    fn steps(
        &self,
        along: &str,
        combination: &Point,
    ) -> Result<(Vec<Step<'_>>, LeftOut), NoVerdict> {
        let open = self.open_factors(combination, &[along]);
        if !open.is_empty() {
            return Err(left_open(&open));
        }
        let points = self.observed.points.iter();
        let mut steps: Vec<_> = points.filter(|(point, _)| includes(point, combination)).collect();
        steps.sort_by(|(a, _), (b, _)| number(a, along).total_cmp(&number(b, along)));
        if steps.len() < 2 {
            return Err(self.lack(|point| includes(point, combination)));
        }
        let missing = self
            .missing(|point| includes(point, combination), |point| self.name(point, combination));
        match missing.open {
            Some(lack) => Err(lack),
            None => Ok((steps, missing.left_out)),
        }
    }

    fn risen(
        &self,
        steps: &[Step],
        combination: &Point,
        falls: bool,
    ) -> Result<Vec<MeasuredValue>, NoVerdict> {
        let paired = self.paired(&steps[steps.len() - 1..], &steps[..1])?;
        let rising = if falls { inverted(&paired.ratio) } else { paired.ratio };
        let word = if falls { "lower" } else { "higher" };
        let (kind, word) = resolved_higher(&rising, self.floor(&paired), word);
        let why = format!("{}, {word}", paired.told());
        Ok(vec![self.ratio_part(&paired, combination, kind, why)])
    }

    fn flat(
        &self,
        steps: &[Step],
        combination: &Point,
        within: f64,
    ) -> Result<Vec<MeasuredValue>, NoVerdict> {
        let bounds = Bounds { at_least: Some(1.0 / (1.0 + within)), at_most: Some(1.0 + within) };
        let part = |step: &Step| {
            let paired = self.paired(std::slice::from_ref(step), &steps[..1])?;
            Ok(self.bounded(&paired, &paired.ratio, &bounds, combination))
        };
        steps[1..].iter().map(part).collect()
    }

    fn saturated(
        &self,
        steps: &[Step],
        along: &str,
        last: f64,
        combination: &Point,
        within: f64,
    ) -> Result<Vec<MeasuredValue>, NoVerdict> {
        let reached = steps.partition_point(|(point, _)| number(point, along) <= last);
        if reached < 2 || reached == steps.len() {
            let side = if reached < 2 { "up to" } else { "beyond" };
            let count = if reached < 2 { "two levels" } else { "a level" };
            return Err(NoVerdict::inconclusive(format!(
                "it needs {count} of '{along}' {side} {last}"
            )));
        }
        let knee = std::slice::from_ref(&steps[reached - 1]);
        let paired = self.paired(knee, &steps[..1])?;
        let better = self.improvement(&paired.ratio)?;
        let (kind, word) = resolved_higher(&better, self.floor(&paired), "better");
        let why = format!("{}, {word}", paired.told());
        let mut parts = vec![self.ratio_part(&paired, combination, kind, why)];
        let bounds = Bounds { at_least: None, at_most: Some(1.0 + within) };
        for step in &steps[reached..] {
            let paired = self.paired(std::slice::from_ref(step), knee)?;
            let better = self.improvement(&paired.ratio)?;
            parts.push(self.bounded(&paired, &better, &bounds, combination));
        }
        Ok(parts)
    }

    /// A ratio of two levels against bounds on `judged`, which is the ratio or its inverse.
    fn bounded(
        &self,
        paired: &Paired,
        judged: &Ratio,
        bounds: &Bounds,
        combination: &Point,
    ) -> MeasuredValue {
        let (kind, unresolved) = within_bounds(judged, bounds, self.floor(paired));
        let what = if judged == &paired.ratio { "" } else { " times better" };
        let why = format!("{}, claimed {}{what}{unresolved}", paired.told(), bounds.told("1"));
        self.ratio_part(paired, combination, kind, why)
    }
}

/// A level's number; what is none comes last.
pub(super) fn number(point: &Point, along: &str) -> f64 {
    point.get(along).and_then(Level::number).unwrap_or(f64::INFINITY)
}

/// What to do about factors that vary and that the claim does not name.
pub(super) fn left_open(open: &[String]) -> NoVerdict {
    let factors = open.join(", ");
    NoVerdict {
        kind: VerdictKind::Inconclusive,
        why: format!("the claim leaves open: {factors}; fix it in 'where' or name it in 'each'"),
    }
}
