//! The samples and the time that a run still needs.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Event;
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
    seconds_per_sample: f64,
}

impl RemainingWork {
    /// Estimates the work of whole experiments.
    pub(super) fn of(experiments: &[Experiment], suites: &[&Suite]) -> Self {
        let remaining = |experiment: &Experiment| {
            let suite = suite::find(suites, &experiment.suite)?;
            let items = plan::items(experiment).len() as u64;
            let samples = items * u64::from(experiment.effort.rounds);
            let seconds = plan::expected(experiment, suite).as_secs_f64();
            let seconds_per_sample = seconds / samples.max(1) as f64;
            Some((experiment.id(), Remaining { samples, seconds_per_sample }))
        };
        Self { done: 0, experiments: experiments.iter().filter_map(remaining).collect() }
    }

    /// Records a sample.
    pub(super) fn record(&mut self, sample: &Sample) {
        self.done += 1;
        if let Some(remaining) = self.experiments.get_mut(&sample.experiment) {
            remaining.samples = remaining.samples.saturating_sub(1);
            if sample.error.is_none() {
                // An exponential moving average: one slow sample changes the estimate by a twentieth.
                let difference = sample.seconds - remaining.seconds_per_sample;
                remaining.seconds_per_sample += difference / 20.0;
            }
        }
    }

    /// Sets the remaining samples of an experiment.
    pub(super) fn set(&mut self, experiment: &Experiment, samples: u64) {
        if let Some(remaining) = self.experiments.get_mut(&experiment.id()) {
            remaining.samples = samples;
        }
    }

    /// Estimates the time of `samples` samples of an experiment.
    pub(super) fn time(&self, experiment: &Experiment, samples: usize) -> Duration {
        let remaining = self.experiments.get(&experiment.id());
        let seconds = remaining.map_or(0.0, |remaining| remaining.seconds_per_sample);
        duration(samples as f64 * seconds)
    }

    /// Returns the state for the observer.
    pub(super) fn event(&self) -> Event<'static> {
        let all = self.experiments.values();
        let samples: u64 = all.clone().map(|one| one.samples).sum();
        let seconds: f64 = all.map(|one| one.samples as f64 * one.seconds_per_sample).sum();
        Event::Left { done: self.done, all: self.done + samples, time: duration(seconds) }
    }
}

/// Converts seconds; saturates at [`Duration::MAX`].
fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX)
}
