//! Conditions on single points: differences of twins, and the spread of rounds.

use std::iter;

use super::evidence::Evidence;
use super::reason::{NoVerdict, Reason};
use super::verdict::{Judgement, MeasuredValue, Statistic};
use super::{Bounds, SpreadUnit};
use crate::point::Point;
use crate::sample::Sample;
use crate::statistics::{estimate_at, spread};
use crate::summary::{Rounds, alike, pairs, resolution};

/// Maximum share of a sample's time during which its thread waited for a core that counts as idle.
const MAX_WAITED: f64 = 0.01;
/// Tolerance for rounding in floating point, as a share.
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
        let pairs = pairs(rounds, twin);
        let differences: Vec<f64> = pairs.pairs.iter().map(|(point, twin)| point - twin).collect();
        let (confidence, looks) = self.confidence(rounds);
        let estimate = match estimate_at(&differences, confidence) {
            Ok(estimate) => estimate.widened_if_correlated(confidence),
            Err(error) => {
                let lack = Reason::NotSummarised { error }.into();
                return MeasuredValue::missing(self.label(point), lack);
            }
        };
        let unit = self.record.unit.clone();
        let bounds = Bounds { at_least: Some(-max), at_most: Some(max) };
        let mut kind = bounds.judge(&estimate.interval);
        let claimed = Reason::Claimed { bounds, unit: unit.clone() };
        let mut reasons: Vec<_> = iter::once(claimed).chain(looks).collect();
        self.limit_failures_of(point, &mut kind, &mut reasons);
        self.require_rounds(&mut kind, estimate.rounds, &mut reasons);
        let correlation = (estimate.lag_1, estimate.rounds);
        self.require_interval(&mut kind, &estimate.interval, correlation, &mut reasons);
        MeasuredValue {
            label: self.label(point),
            value: Some(estimate.median),
            interval: (estimate.rounds > 1).then_some(estimate.interval),
            unit,
            class: self.class_of([rounds]),
            rounds: estimate.rounds,
            lost: pairs.lost.total(),
            statistic: Some(Statistic::TwinDifference),
            kind,
            reasons,
        }
    }

    /// Judges the spread of each point's rounds on an idle core.
    pub(super) fn judge_spreads(&self, max: f64, unit: SpreadUnit) -> Vec<Judgement> {
        let judge = |part: &Self, point: &Point| {
            let rounds = part.observed.points.get(point).ok_or_else(|| part.lack_of(point));
            match rounds.and_then(|rounds| part.spread_value(point, rounds, max, unit)) {
                Ok(value) => Judgement::of_all(vec![value]),
                Err(lack) => Judgement::missing(part.label(point), lack),
            }
        };
        self.known.iter().map(|point| self.by_class(|part| judge(part, point))).collect()
    }

    fn spread_value(
        &self,
        point: &Point,
        rounds: &Rounds,
        max: f64,
        unit: SpreadUnit,
    ) -> Result<MeasuredValue, NoVerdict> {
        let sample = |round: u32| self.sample(point, round);
        let is_idle = |round: &u32| sample(*round).is_some_and(|sample| is_idle(sample, unit));
        let idle = rounds.iter().filter(|(round, _)| is_idle(round));
        let idle = alike(&idle.map(|(round, one)| (*round, one.clone())).collect());
        let values: Vec<f64> = idle.values().map(|one| one.value).collect();
        let (confidence, looks) = self.confidence(&idle);
        let spread = spread(&values, confidence).map_err(|_| Reason::NeverIdle)?;
        let step = idle.keys().find_map(|round| step_of(sample(*round)?));
        let (name, size, step) = match unit {
            SpreadUnit::Steps => ("steps", step.unwrap_or(f64::NAN), step),
            SpreadUnit::Share if spread.centre == 0.0 => return Err(Reason::ZeroMedian.into()),
            SpreadUnit::Share => ("share", spread.centre.abs(), None),
        };
        // The width is twice a difference of values.
        let spread = spread.with_resolution(2.0 * resolution(&idle)).in_units_of(size);
        let at_most = |max: f64| Bounds { at_least: None, at_most: Some(max) };
        let mut kind = at_most(max * (1.0 + ROUNDING)).judge(&spread.interval);
        let claimed = Reason::Claimed { bounds: at_most(max), unit: name.into() };
        let mut reasons: Vec<_> = iter::once(claimed).chain(looks).collect();
        self.limit_failures_of(point, &mut kind, &mut reasons);
        self.require_rounds(&mut kind, spread.rounds, &mut reasons);
        Ok(MeasuredValue {
            label: self.label(point),
            value: Some(spread.width),
            interval: (spread.rounds > 1).then_some(spread.interval),
            unit: name.into(),
            class: self.class_of([rounds]),
            rounds: spread.rounds,
            lost: rounds.len() - spread.rounds,
            statistic: Some(Statistic::Spread { step, recorded: rounds.len() }),
            kind,
            reasons,
        })
    }
}

/// Returns the step of the time-stamp counter during a sample, in ns.
fn step_of(sample: &Sample) -> Option<f64> {
    let clock = sample.clock?;
    Some(clock.tsc_step as f64 * 1e9 / clock.tsc_hertz)
}

/// Returns whether a sample's core was idle otherwise, according to the noise recorded, and its spread has a unit.
/// Unknown steal time may be any.
fn is_idle(sample: &Sample, unit: SpreadUnit) -> bool {
    if unit == SpreadUnit::Steps && sample.clock.is_none() {
        return false;
    }
    let Some(noise) = sample.noise else { return false };
    let idle = match noise.waited_ns {
        Some(waited) => waited as f64 <= MAX_WAITED * sample.seconds * 1e9,
        None => noise.involuntary_switches == 0,
    };
    idle && noise.steal_ns == Some(0)
}
