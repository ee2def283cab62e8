//! Results of a run's kernels and planted bugs by mechanism.

use std::collections::BTreeMap;

use lab::journal::Run;
use lab::point::Point;
use lab::sample::Failure;
use lab::statistics::{Ratio, median};
use lab::summary::{Observed, Rounds, Samples, Unit, paired};

use super::manifest::Mechanism;
use super::programs::{Bug, Kernel};

const KERNELS: &str = "bounds/kernels";
const DETECTION: &str = "bounds/detection";

/// Results of both experiments of a run.
pub(super) struct Outcomes {
    /// ns per operation.
    pub(super) times: Observed,
    pub(super) caught: Observed,
    /// The first failure of each mechanism.
    pub(super) failures: BTreeMap<String, Failure>,
}

impl Outcomes {
    pub(super) fn from_run(run: &Run) -> Self {
        Self {
            times: observed(run, KERNELS, "per_operation"),
            caught: observed(run, DETECTION, "caught"),
            failures: failures(run),
        }
    }

    /// Returns the kernels that have times.
    pub(super) fn kernels(&self) -> Vec<Kernel> {
        let is_timed = |kernel: &Kernel| has_level(&self.times, "kernel", kernel.name());
        Kernel::ALL.into_iter().filter(is_timed).collect()
    }

    /// Returns whether a mechanism has times or bugs.
    pub(super) fn has(&self, mechanism: &Mechanism) -> bool {
        [&self.times, &self.caught].iter().any(|it| has_level(it, "mechanism", &mechanism.name))
    }

    /// Describes the size and pages that all rows have in common.
    pub(super) fn conditions(&self) -> String {
        let first = self.times.points.keys().next();
        first.map_or_else(String::new, |point| {
            format!("; {} of {} pages", point.text("size"), point.text("pages"))
        })
    }

    /// Returns the rounds of a kernel under a mechanism.
    fn rounds_of(&self, mechanism: &str, kernel: Kernel) -> Option<&Rounds> {
        let is = |point: &Point| {
            point.text("mechanism") == mechanism && point.text("kernel") == kernel.name()
        };
        self.times.points.iter().find(|(point, _)| is(point)).map(|(_, rounds)| rounds)
    }

    /// Returns the ratio of a kernel's time under a mechanism to that under its baseline.
    pub(super) fn overhead(&self, mechanism: &Mechanism, kernel: Kernel) -> Option<Ratio> {
        let rounds = self.rounds_of(&mechanism.name, kernel)?;
        paired(rounds, self.rounds_of(mechanism.baseline.as_deref()?, kernel)?).ok()
    }

    /// Returns ns per operation.
    pub(super) fn time(&self, mechanism: &Mechanism, kernel: Kernel) -> Option<f64> {
        let rounds = self.rounds_of(&mechanism.name, kernel)?;
        median(&rounds.values().map(|it| it.value).collect::<Vec<_>>())
    }

    /// Returns whether a mechanism caught a bug in every round; `None` if it was not measured.
    pub(super) fn catches(&self, mechanism: &Mechanism, bug: Bug) -> Option<bool> {
        let point = Point::from([("bug", bug.name()), ("mechanism", mechanism.name.as_str())]);
        let rounds = self.caught.points.get(&point)?;
        Some(rounds.values().all(|it| it.value == 1.0))
    }

    /// Describes the bugs for which a mechanism differs from the manifest, e.g. because its version is another.
    pub(super) fn unexpected(&self, mechanism: &Mechanism) -> Option<String> {
        let differs = |bug: &Bug| {
            let caught = self.catches(mechanism, *bug);
            caught.is_some_and(|caught| caught != mechanism.catches.contains(bug))
        };
        let bugs: Vec<_> = Bug::ALL.into_iter().filter(differs).map(Bug::name).collect();
        let text = || {
            format!("{}: mechanisms.toml expects otherwise: {}", mechanism.name, bugs.join(", "))
        };
        (!bugs.is_empty()).then(text)
    }
}

/// Returns the first failure of each mechanism.
fn failures(run: &Run) -> BTreeMap<String, Failure> {
    let mut failures = BTreeMap::new();
    for experiment in [KERNELS, DETECTION] {
        let samples = Samples::newest(run, experiment);
        for sample in samples.iter().flat_map(Samples::all) {
            if let Some(failure) = &sample.error {
                let mechanism = sample.point.text("mechanism").to_owned();
                failures.entry(mechanism).or_insert_with(|| failure.clone());
            }
        }
    }
    failures
}

/// Returns the values of a metric; empty if the experiment was not measured.
fn observed(run: &Run, experiment: &str, metric: &str) -> Observed {
    let samples = Samples::newest(run, experiment);
    samples.map_or_else(Observed::default, |samples| samples.observed(metric, Unit::Own))
}

fn has_level(observed: &Observed, factor: &str, level: &str) -> bool {
    observed.points.keys().any(|point| point.text(factor) == level)
}
