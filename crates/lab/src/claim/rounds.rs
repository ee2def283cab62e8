//! Conditions on single points: differences of twins, and differences between rounds.

use super::evidence::Evidence;
use super::reason::{NoVerdict, Reason};
use super::verdict::{Judgement, MeasuredValue, Statistic};
use super::{Bounds, VerdictKind};
use crate::point::Point;
use crate::sample::Sample;
use crate::statistics::{estimate, median};
use crate::summary::{Rounds, pairs};

/// Maximum share of a sample's time during which its thread waited for a core that counts as idle.
const MAX_WAITED: f64 = 0.01;
/// Tolerance for rounding in floating point, in steps.
const ROUNDING: f64 = 1e-6;

impl Evidence<'_> {
    /// Judges the difference of each point and its twin, in the unit of the metric.
    pub(super) fn judge_twins(&self, max: f64) -> Vec<Judgement> {
        let judge = |part: &Self, point| Judgement::of_all(vec![part.twin_value(point, max)]);
        let twins = self.observed.twins.keys();
        let judgements: Vec<_> =
            twins.map(|point| self.by_class(|part| judge(part, point))).collect();
        if !judgements.is_empty() {
            return judgements;
        }
        let lack = match self.observed.points.is_empty() {
            true => self.lack(|_| true),
            false => Reason::NoTwins.into(),
        };
        vec![Judgement::missing("", lack)]
    }

    fn twin_value(&self, point: &Point, max: f64) -> MeasuredValue {
        let none = Rounds::new();
        let rounds = self.observed.points.get(point).unwrap_or(&none);
        let twin = self.observed.twins.get(point).unwrap_or(&none);
        let (pairs, lost) = pairs(rounds, twin);
        let differences: Vec<f64> = pairs.iter().map(|(point, twin)| point - twin).collect();
        let estimate = match estimate(&differences) {
            Ok(estimate) => estimate,
            Err(error) => {
                let lack = Reason::NotSummarised { error }.into();
                return MeasuredValue::missing(self.label(point), lack);
            }
        };
        let unit = self.record.unit.clone();
        let bounds = Bounds { at_least: Some(-max), at_most: Some(max) };
        let mut kind = bounds.judge(&estimate.interval);
        let mut reasons = vec![at_most(max, &unit)];
        self.require_rounds(&mut kind, estimate.rounds, &mut reasons);
        self.require_interval(&mut kind, &estimate.interval, estimate.lag_1, &mut reasons);
        MeasuredValue {
            label: self.label(point),
            value: Some(estimate.median),
            interval: (estimate.rounds > 1).then_some(estimate.interval),
            unit,
            class: self.class_of([rounds]),
            rounds: estimate.rounds,
            lost: lost.total(),
            statistic: Some(Statistic::TwinDifference),
            kind,
            reasons,
        }
    }

    /// Judges the span of each point's rounds on an idle core, in steps of the time-stamp counter.
    pub(super) fn judge_steps(&self, max: f64) -> Vec<Judgement> {
        self.judge_rounds(|part, point, rounds| part.steps_value(point, rounds, max))
    }

    /// Judges the spread of the middle half of each point's rounds on an idle core, as a share of
    /// their median.
    pub(super) fn judge_repeats(&self, max: f64) -> Vec<Judgement> {
        self.judge_rounds(|part, point, rounds| part.spread_value(point, rounds, max))
    }

    fn judge_rounds(
        &self,
        value: impl Fn(&Self, &Point, &Rounds) -> Result<MeasuredValue, NoVerdict>,
    ) -> Vec<Judgement> {
        let judge = |part: &Self, point: &Point| {
            let rounds = part.observed.points.get(point).ok_or_else(|| part.lack_of(point));
            match rounds.and_then(|rounds| value(part, point, rounds)) {
                Ok(value) => Judgement::of_all(vec![value]),
                Err(lack) => Judgement::missing(part.label(point), lack),
            }
        };
        self.known.iter().map(|point| self.by_class(|part| judge(part, point))).collect()
    }

    fn steps_value(
        &self,
        point: &Point,
        rounds: &Rounds,
        max: f64,
    ) -> Result<MeasuredValue, NoVerdict> {
        let idle: Vec<(f64, f64)> = rounds
            .iter()
            .filter_map(|(round, one)| Some((one.value, idle_step(self.sample(point, *round)?)?)))
            .collect();
        let &(_, step) = idle.first().ok_or(Reason::NeverIdle)?;
        let low = idle.iter().map(|(value, _)| *value).fold(f64::INFINITY, f64::min);
        let high = idle.iter().map(|(value, _)| *value).fold(f64::NEG_INFINITY, f64::max);
        let steps = (high - low) / step;
        let recorded = rounds.len();
        let mut kind = within(steps <= max + ROUNDING);
        let mut reasons = vec![at_most(max, "steps")];
        self.require_rounds(&mut kind, idle.len(), &mut reasons);
        Ok(MeasuredValue {
            label: self.label(point),
            value: Some(high - low),
            interval: None,
            unit: self.record.unit.clone(),
            class: self.class_of([rounds]),
            rounds: idle.len(),
            lost: recorded - idle.len(),
            statistic: Some(Statistic::Span { low, high, step, steps, recorded }),
            kind,
            reasons,
        })
    }

    fn spread_value(
        &self,
        point: &Point,
        rounds: &Rounds,
        max: f64,
    ) -> Result<MeasuredValue, NoVerdict> {
        let is_idle = |round: u32| self.sample(point, round).is_some_and(is_idle);
        let values = rounds.iter().filter(|(round, _)| is_idle(**round)).map(|(_, one)| one.value);
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let middle = median(&values).ok_or(Reason::NeverIdle)?;
        if middle == 0.0 {
            return Err(Reason::ZeroMedian.into());
        }
        let quarter = values.len() / 4;
        let spread = ((values[values.len() - 1 - quarter] - values[quarter]) / middle).abs();
        let mut kind = within(spread <= max);
        let mut reasons = vec![at_most(max, "share")];
        self.require_rounds(&mut kind, values.len(), &mut reasons);
        Ok(MeasuredValue {
            label: self.label(point),
            value: Some(spread),
            interval: None,
            unit: "share".into(),
            class: self.class_of([rounds]),
            rounds: values.len(),
            lost: rounds.len() - values.len(),
            statistic: Some(Statistic::Spread { recorded: rounds.len() }),
            kind,
            reasons,
        })
    }
}

fn at_most(max: f64, unit: &str) -> Reason {
    let bounds = Bounds { at_least: None, at_most: Some(max) };
    Reason::Claimed { bounds, unit: unit.into() }
}

fn within(is_within: bool) -> VerdictKind {
    if is_within { VerdictKind::Reproduced } else { VerdictKind::Contradicted }
}

/// Returns the step of the time-stamp counter during a sample on an idle core, in ns.
fn idle_step(sample: &Sample) -> Option<f64> {
    let clock = sample.clock?;
    is_idle(sample).then_some(clock.tsc_step as f64 * 1e9 / clock.tsc_hertz)
}

/// Returns whether a sample's core was idle otherwise, according to the noise recorded. Unknown
/// steal time may be any.
fn is_idle(sample: &Sample) -> bool {
    let Some(noise) = sample.noise else { return false };
    let idle = match noise.waited_ns {
        Some(waited) => waited as f64 <= MAX_WAITED * sample.seconds * 1e9,
        None => noise.involuntary_switches == 0,
    };
    idle && noise.steal_ns == Some(0)
}
