//! What kernels and planted bugs under mechanisms came to.

use std::collections::BTreeMap;

use lab::journal::Run;
use lab::point::Point;
use lab::sample::Failure;
use lab::statistics::{Ratio, median};
use lab::summary::{Observed, Rounds, Unit, newest_environment, paired, rounds, samples};

use super::detection::BUGS;
use super::kernel::NAMES;
use super::manifest::Mechanism;

const KERNELS: &str = "bounds/kernels";
const DETECTION: &str = "bounds/detection";

/// What a run has of both experiments.
pub(super) struct Outcomes {
    /// ns an operation.
    pub(super) times: Observed,
    pub(super) caught: Observed,
    /// The first thing that went wrong with each mechanism.
    pub(super) failures: BTreeMap<String, Failure>,
}

impl Outcomes {
    pub(super) fn of(run: &Run) -> Self {
        Self {
            times: observed(run, KERNELS, "per_operation"),
            caught: observed(run, DETECTION, "caught"),
            failures: failures(run),
        }
    }

    /// The kernels that have times, the source's first.
    pub(super) fn kernels(&self) -> Vec<&'static str> {
        let is_there = |name: &&str| has_level(&self.times, "kernel", name);
        NAMES.iter().copied().filter(is_there).collect()
    }

    /// Whether it holds anything of a mechanism but failures.
    pub(super) fn has(&self, mechanism: &Mechanism) -> bool {
        [&self.times, &self.caught].iter().any(|it| has_level(it, "mechanism", &mechanism.name))
    }

    /// Size and pages, which all rows share.
    pub(super) fn setting(&self) -> String {
        let first = self.times.points.keys().next();
        first.map_or_else(String::new, |point| {
            format!("; {} of {} pages", point.text("size"), point.text("pages"))
        })
    }

    /// The rounds of a kernel under a mechanism.
    fn rounds_of(&self, mechanism: &str, kernel: &str) -> Option<&Rounds> {
        let is =
            |point: &Point| point.text("mechanism") == mechanism && point.text("kernel") == kernel;
        self.times.points.iter().find(|(point, _)| is(point)).map(|(_, rounds)| rounds)
    }

    /// How many times as long a mechanism makes a kernel as its baseline does.
    pub(super) fn overhead(&self, mechanism: &Mechanism, kernel: &str) -> Option<Ratio> {
        let own = self.rounds_of(&mechanism.name, kernel)?;
        paired(own, self.rounds_of(mechanism.baseline.as_deref()?, kernel)?).ok()
    }

    /// ns an operation.
    pub(super) fn time(&self, mechanism: &Mechanism, kernel: &str) -> Option<f64> {
        let rounds = self.rounds_of(&mechanism.name, kernel)?;
        median(&rounds.values().map(|it| it.value).collect::<Vec<_>>())
    }

    /// Whether a mechanism caught a bug in every round; nothing where it was not tried.
    pub(super) fn catches(&self, mechanism: &Mechanism, bug: &str) -> Option<bool> {
        let point = Point::from([("bug", bug), ("mechanism", mechanism.name.as_str())]);
        let rounds = self.caught.points.get(&point)?;
        Some(rounds.values().all(|it| it.value == 1.0))
    }

    /// Where a mechanism catches more or less than the manifest expects: another version of it may.
    pub(super) fn surprise(&self, mechanism: &Mechanism) -> Option<String> {
        let expected = |bug: &str| mechanism.catches.iter().any(|one| one == bug);
        let differs = |bug: &&&str| {
            self.catches(mechanism, bug).is_some_and(|caught| caught != expected(bug))
        };
        let bugs: Vec<_> = BUGS.iter().filter(differs).copied().collect();
        let name = &mechanism.name;
        let told = || format!("{name}: unlike what mechanisms.toml expects: {}", bugs.join(", "));
        (!bugs.is_empty()).then(told)
    }
}

/// The first thing that went wrong with each mechanism.
fn failures(run: &Run) -> BTreeMap<String, Failure> {
    let mut failures = BTreeMap::new();
    for experiment in [KERNELS, DETECTION] {
        let environment = newest_environment(run, experiment).unwrap_or_default();
        for sample in samples(run, experiment, environment) {
            if let Some(failure) = &sample.error {
                let mechanism = sample.point.text("mechanism").to_owned();
                failures.entry(mechanism).or_insert_with(|| failure.clone());
            }
        }
    }
    failures
}

/// What a run has of a metric: nothing where the experiment was not measured.
fn observed(run: &Run, experiment: &str, metric: &str) -> Observed {
    let environment = newest_environment(run, experiment);
    environment.map_or_else(Observed::default, |environment| {
        rounds(run, experiment, metric, environment, Unit::Own)
    })
}

fn has_level(observed: &Observed, factor: &str, level: &str) -> bool {
    observed.points.keys().any(|point| point.text(factor) == level)
}
