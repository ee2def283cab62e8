//! How far the rounds of a point lie apart, in steps of the time-stamp counter.

use super::evidence::Evidence;
use super::verdict::{Judgement, MeasuredValue, NoVerdict};
use super::{VerdictKind, words};
use crate::point::Point;
use crate::sample::Sample;

/// The share of a sample for which others may have had the core that is called idle.
const WAITED: f64 = 0.01;
/// Why a point has no round to judge.
pub(super) const NEVER_IDLE: &str = "in no round was the core known to be idle: others took it, \
     or the kernel counts no steal; measure again";
/// Of a step: what adding and subtracting floating-point numbers may leave.
const ROUNDING: f64 = 1e-6;

impl Evidence<'_> {
    /// One outcome for each point: the span of its rounds on an idle core, in steps of the counter.
    pub(super) fn judge_steps(&self, most: f64) -> Vec<Judgement> {
        let outcome = |point| Judgement::of_all(vec![self.steps_part(point, most)]);
        self.known.iter().map(outcome).collect()
    }

    fn steps_part(&self, point: &Point, most: f64) -> MeasuredValue {
        let label = self.label(point);
        let Some(rounds) = self.observed.points.get(point) else {
            return MeasuredValue::nothing(label, self.lack_of(point));
        };
        let idle: Vec<(f64, f64)> = rounds
            .iter()
            .filter_map(|(round, one)| Some((one.value, step(self.sample(point, *round)?)?)))
            .collect();
        let Some(&(_, step)) = idle.first() else {
            return MeasuredValue::nothing(label, NoVerdict::inconclusive(NEVER_IDLE));
        };
        let least = idle.iter().map(|(value, _)| *value).fold(f64::INFINITY, f64::min);
        let highest = idle.iter().map(|(value, _)| *value).fold(f64::NEG_INFINITY, f64::max);
        let apart = (highest - least) / step;
        let unit = &self.record.unit;
        let why = format!(
            "{} to {} over {} on an idle core (of {}): {} of {}, claimed at most {}",
            words::value(least, unit),
            words::value(highest, unit),
            words::rounds(idle.len()),
            rounds.len(),
            words::steps(apart),
            words::value(step, unit),
            words::steps(most),
        );
        let kind = match apart <= most + ROUNDING {
            true => VerdictKind::Reproduced,
            false => VerdictKind::Contradicted,
        };
        let (kind, why) = self.enough(kind, idle.len(), why);
        MeasuredValue {
            label,
            value: Some(highest - least),
            interval: None,
            unit: unit.clone(),
            rounds: idle.len(),
            lost: rounds.len() - idle.len(),
            kind,
            why,
        }
    }
}

/// One step of the counter under a sample, ns, where next to nothing else ran on its core.
fn step(sample: &Sample) -> Option<f64> {
    let clock = sample.clock?;
    is_idle(sample).then_some(clock.tsc_step as f64 * 1e9 / clock.tsc_hertz)
}

/// Whether next to nothing else ran on a sample's core, as far as it says. Unknown steal may be any.
pub(super) fn is_idle(sample: &Sample) -> bool {
    let Some(noise) = sample.noise else { return false };
    let idle = match noise.waited_ns {
        Some(waited) => waited as f64 <= WAITED * sample.seconds * 1e9,
        None => noise.involuntary_switches == 0,
    };
    idle && noise.steal_ns == Some(0)
}
