//! What lies ahead of a run: samples and time left.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Event;
use crate::experiment::Experiment;
use crate::plan;
use crate::sample::Sample;
use crate::suite::{self, Suite};

/// What lies ahead, by experiment.
pub(super) struct Ahead {
    done: u64,
    left: BTreeMap<String, Left>,
}

struct Left {
    samples: u64,
    /// Seconds a sample.
    pace: f64,
}

impl Ahead {
    pub(super) fn of(experiments: &[Experiment], suites: &[&dyn Suite]) -> Self {
        let left = |experiment: &Experiment| {
            let suite = suite::find(suites, &experiment.suite)?;
            let items = plan::items(experiment).len() as u64;
            let samples = items * u64::from(experiment.effort.rounds);
            let pace = plan::expected(experiment, suite).as_secs_f64() / samples.max(1) as f64;
            Some((experiment.id(), Left { samples, pace }))
        };
        Self { done: 0, left: experiments.iter().filter_map(left).collect() }
    }

    /// Takes note of a sample that was measured.
    pub(super) fn passed(&mut self, sample: &Sample) {
        self.done += 1;
        if let Some(left) = self.left.get_mut(&sample.experiment) {
            left.samples = left.samples.saturating_sub(1);
            if sample.error.is_none() {
                // The pace follows what is measured; one sample moves it a little.
                left.pace += (sample.seconds - left.pace) / 20.0;
            }
        }
    }

    /// Takes note of how many samples an experiment still has.
    pub(super) fn remains(&mut self, experiment: &Experiment, samples: u64) {
        if let Some(left) = self.left.get_mut(&experiment.id()) {
            left.samples = samples;
        }
    }

    /// How long so many samples of an experiment take.
    pub(super) fn time(&self, experiment: &Experiment, samples: usize) -> Duration {
        let pace = self.left.get(&experiment.id()).map_or(0.0, |left| left.pace);
        seconds(samples as f64 * pace)
    }

    pub(super) fn event(&self) -> Event<'static> {
        let samples: u64 = self.left.values().map(|left| left.samples).sum();
        let time: f64 = self.left.values().map(|left| left.samples as f64 * left.pace).sum();
        Event::Left { done: self.done, all: self.done + samples, time: seconds(time) }
    }
}

/// A time of so many seconds; the longest there is where they are too many.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX)
}
