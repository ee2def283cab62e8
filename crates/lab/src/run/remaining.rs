//! The samples and the time that a run still needs.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Event, RunRequest};
use crate::experiment::Experiment;
use crate::plan;
use crate::sample::Sample;
use crate::suite::{self, Suite};

/// The remaining samples of each experiment and how long they take.
pub(super) struct RemainingWork {
    done: u64,
    experiments: BTreeMap<String, Remaining>,
}

struct Remaining {
    samples: u64,
    /// Samples that are measured even if no time is left.
    required: u64,
    /// Wall time per sample, s: expected, then measured.
    seconds_per_sample: f64,
    /// Rounds measured in this session.
    rounds: u32,
}

impl RemainingWork {
    /// Estimates the work of whole experiments.
    pub(super) fn of(request: &RunRequest, suites: &[&Suite]) -> Self {
        let remaining = |experiment: &Experiment| {
            let suite = suite::find(suites, &experiment.suite)?;
            let items = plan::items(experiment).len() as u64;
            let samples = items * u64::from(experiment.effort.rounds);
            let seconds = plan::expected(experiment, suite).as_secs_f64();
            let seconds_per_sample = seconds / samples.max(1) as f64;
            let required = items * u64::from(request.required_rounds(experiment));
            let remaining = Remaining { samples, required, seconds_per_sample, rounds: 0 };
            Some((experiment.id(), remaining))
        };
        Self { done: 0, experiments: request.experiments.iter().filter_map(remaining).collect() }
    }

    /// Records a sample.
    pub(super) fn record(&mut self, sample: &Sample) {
        self.done += 1;
        if let Some(remaining) = self.experiments.get_mut(&sample.experiment) {
            remaining.samples = remaining.samples.saturating_sub(1);
            remaining.required = remaining.required.saturating_sub(1);
        }
    }

    /// Records the wall time of a round with `samples` samples.
    pub(super) fn record_round(&mut self, experiment: &Experiment, samples: usize, wall: Duration) {
        let Some(remaining) = self.experiments.get_mut(&experiment.id()) else { return };
        let seconds = wall.as_secs_f64() / samples.max(1) as f64;
        remaining.rounds += 1;
        // The first round includes preparation that no other does. Later rounds are averaged exponentially.
        let weight = if remaining.rounds <= 2 { 1.0 } else { 0.25 };
        remaining.seconds_per_sample += weight * (seconds - remaining.seconds_per_sample);
    }

    /// Returns whether this session measured a round of an experiment.
    pub(super) fn has_round(&self, experiment: &Experiment) -> bool {
        self.experiments.get(&experiment.id()).is_some_and(|remaining| remaining.rounds > 0)
    }

    /// Sets the remaining samples of an experiment, `required` of them even if no time is left.
    pub(super) fn set(&mut self, experiment: &Experiment, samples: u64, required: u64) {
        if let Some(remaining) = self.experiments.get_mut(&experiment.id()) {
            (remaining.samples, remaining.required) = (samples, required);
        }
    }

    /// Estimates the time of `samples` samples of an experiment.
    pub(super) fn time(&self, experiment: &Experiment, samples: usize) -> Duration {
        let remaining = self.experiments.get(&experiment.id());
        let seconds = remaining.map_or(0.0, |remaining| remaining.seconds_per_sample);
        duration(samples as f64 * seconds)
    }

    /// Returns the state for the observer. If less time is left than the work takes, part of the work will be done.
    pub(super) fn event(&self, time_left: Option<Duration>) -> Event<'static> {
        let all = self.experiments.values();
        let samples: f64 = all.clone().map(|one| one.samples as f64).sum();
        let required: f64 =
            all.clone().map(|one| one.required as f64 * one.seconds_per_sample).sum();
        let seconds: f64 = all.map(|one| one.samples as f64 * one.seconds_per_sample).sum();
        let left = time_left.map_or(seconds, |left| seconds.min(left.as_secs_f64().max(required)));
        let share = if seconds > 0.0 { left / seconds } else { 1.0 };
        let all = self.done + (samples * share).round() as u64;
        Event::Left { done: self.done, all, time: duration(left) }
    }
}

/// Converts seconds; saturates at [`Duration::MAX`].
fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX)
}
