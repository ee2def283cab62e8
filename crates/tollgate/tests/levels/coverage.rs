//! The levels that experiments declare, and what runs have measured of them.

use std::collections::{BTreeMap, BTreeSet};

use lab::catalogue::Catalogue;
use lab::experiment::Profile;
use lab::journal::Run;
use lab::point::Point;
use lab::sample::{Failure, FailureKind, Sample};
use lab::suite::Suite;

use crate::lists::{Absence, FAILS};

/// The suites that measure a boundary. A test compares them with those of the program.
pub(crate) static SUITES: [&Suite; 5] =
    [&copy::SUITE, &crossing::SUITE, &enclave::SUITE, &bounds::SUITE, &stream::SUITE];
/// The profiles, first that of most levels.
const PROFILES: [Profile; 3] = [Profile::Full, Profile::Standard, Profile::Quick];

/// An experiment, a factor of it, and a level.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ExperimentLevel {
    pub(crate) experiment: String,
    pub(crate) factor: String,
    pub(crate) level: String,
}

impl ExperimentLevel {
    fn new(experiment: &str, factor: &str, level: &str) -> Self {
        let [experiment, factor, level] = [experiment, factor, level].map(str::to_owned);
        Self { experiment, factor, level }
    }

    /// Parses `FACTOR=LEVEL` of an experiment.
    pub(crate) fn parse(experiment: &str, text: &str) -> Self {
        let (factor, level) = text.split_once('=').unwrap();
        Self::new(experiment, factor, level)
    }

    fn all(experiment: &str, point: &Point) -> Vec<Self> {
        let levels = point.levels();
        levels.map(|(factor, level)| Self::new(experiment, factor, level.as_str())).collect()
    }
}

impl std::fmt::Display for ExperimentLevel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}={}", self.experiment, self.factor, self.level)
    }
}

/// The point with a level that differs least from the baseline, and a profile that has it: apart from the level, it needs
/// as little as possible.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Nearest {
    pub(crate) profile: Profile,
    pub(crate) point: Point,
    distance: usize,
}

/// A point and its place: this machine or a guest by name, an experiment, and the point.
pub(crate) type PlacedPoint = (Option<String>, String, Point);

/// The declared levels, and those that runs have measured.
#[derive(Default)]
pub(crate) struct Coverage {
    /// Reasons for which this machine and the guests may lack levels.
    reasons: Vec<Absence>,
    /// The levels of all profiles.
    pub(crate) declared: BTreeMap<ExperimentLevel, Nearest>,
    pub(crate) measured: BTreeSet<ExperimentLevel>,
    /// Levels that ran and had values, but only on a busy machine, which made their samples void; with the cause.
    pub(crate) busy: BTreeMap<ExperimentLevel, String>,
    /// The failures of each point.
    failures: BTreeMap<PlacedPoint, Vec<Failure>>,
    /// Points that failed by a fault, without those that were measured later in the same place.
    pub(crate) faults: BTreeMap<PlacedPoint, Failure>,
}

impl Coverage {
    /// Collects the levels that the experiments of boundaries have in any profile; levels may be absent for these reasons.
    pub(crate) fn of_all_profiles(reasons: Vec<Absence>) -> Self {
        let catalogue = Catalogue::load(&SUITES, &[]).unwrap();
        let mut coverage = Self { reasons, ..Self::default() };
        for profile in PROFILES {
            for experiment in catalogue.experiments(profile).unwrap() {
                for point in &experiment.points {
                    let distance = point.differing(&experiment.baseline);
                    let nearest = Nearest { profile, point: point.clone(), distance };
                    coverage.declare(&experiment.id(), &nearest);
                }
            }
        }
        coverage
    }

    fn declare(&mut self, experiment: &str, candidate: &Nearest) {
        for level in ExperimentLevel::all(experiment, &candidate.point) {
            let nearest = self.declared.entry(level).or_insert_with(|| candidate.clone());
            if candidate.distance < nearest.distance {
                *nearest = candidate.clone();
            }
        }
    }

    /// Adds the samples of a run in a guest, or on this host.
    pub(crate) fn add(&mut self, run: &Run) {
        let guest = run.record.guests.as_ref().map(|guests| guests.name.as_str());
        self.add_samples(guest, &run.samples);
    }

    pub(crate) fn add_samples(&mut self, guest: Option<&str>, samples: &[Sample]) {
        let of_suites = samples.iter().filter(|one| !lab::run::is_lab_experiment(&one.experiment));
        for sample in of_suites {
            let place = guest.map(str::to_owned);
            let key = (place, sample.experiment.clone(), sample.point.clone());
            match (&sample.error, &sample.void) {
                (None, _) if sample.values.is_empty() => {}
                // The level works. That the machine was busy decides about its values only.
                (None, Some(cause)) => {
                    let levels = ExperimentLevel::all(&key.1, &key.2).into_iter();
                    self.busy.extend(levels.map(|level| (level, cause.clone())));
                    self.faults.remove(&key);
                }
                (None, None) => {
                    self.measured.extend(ExperimentLevel::all(&key.1, &key.2));
                    self.faults.remove(&key);
                }
                (Some(failure), _) => {
                    if failure.kind.is_fault() && failure.kind != FailureKind::Void {
                        self.faults.insert(key.clone(), failure.clone());
                    }
                    self.failures.entry(key).or_default().push(failure.clone());
                }
            }
        }
    }

    /// Returns the failures of the nearest point with a level in a guest, or on this host.
    pub(crate) fn failures(&self, guest: Option<&str>, level: &ExperimentLevel) -> &[Failure] {
        let point = self.declared[level].point.clone();
        let key = (guest.map(str::to_owned), level.experiment.clone(), point);
        self.failures.get(&key).map_or(&[], Vec::as_slice)
    }

    /// Returns why this host lacks a level, or a guest that should have it: its nearest point failed, and only for listed
    /// reasons. Failures of other points may be due to other levels.
    pub(crate) fn absence(
        &self,
        guest: Option<&str>,
        level: &ExperimentLevel,
    ) -> Option<(&Failure, Option<&'static str>)> {
        let failures = self.failures(guest, level).iter();
        let explain = |failure| {
            let text = Failure::to_string(failure);
            let listed = self.reasons.iter().find(|one| one.explains(level, &text))?;
            (!failure.kind.is_fault()).then_some((failure, listed.guest))
        };
        let explained = failures.filter(|one| one.kind != FailureKind::Void).map(explain);
        explained.collect::<Option<Vec<_>>>()?.into_iter().next()
    }

    /// Returns why no machine here can run a level: this host lacks it, and so does the guest that has what this host lacks.
    pub(crate) fn why_absent(&self, level: &ExperimentLevel) -> Option<String> {
        match self.absence(None, level)? {
            (failure, None) => Some(failure.to_string()),
            (here, Some(guest)) => match self.absence(Some(guest), level)? {
                (there, None) => Some(format!("{here}; in the guest {guest}: {there}")),
                (_, Some(_)) => None,
            },
        }
    }

    /// Returns whether each point with a level failed as [`FAILS`] states.
    fn fails_as_expected(&self, level: &ExperimentLevel) -> bool {
        let (experiment, selected, why) = FAILS;
        let failures = self.failures(None, level);
        *level == ExperimentLevel::parse(experiment, selected)
            && !failures.is_empty()
            && failures.iter().all(|failure| failure.to_string().contains(why))
    }

    /// Returns whether a sample with a level has values.
    pub(crate) fn has_run(&self, level: &ExperimentLevel) -> bool {
        self.measured.contains(level) || self.busy.contains_key(level)
    }

    /// Returns whether the nearest point with a level was tried, and void each time.
    pub(crate) fn is_void(&self, level: &ExperimentLevel) -> bool {
        let failures = self.failures(None, level);
        !failures.is_empty() && failures.iter().all(|one| one.kind == FailureKind::Void)
    }

    /// Returns the levels that need a further run.
    pub(crate) fn unsettled(&self) -> Vec<ExperimentLevel> {
        let is_settled = |level: &ExperimentLevel| {
            self.has_run(level) || self.fails_as_expected(level) || self.why_absent(level).is_some()
        };
        self.declared.keys().filter(|level| !is_settled(level)).cloned().collect()
    }

    /// Returns the experiments without a measured level.
    pub(crate) fn experiments_without_a_level(&self) -> BTreeSet<&str> {
        let declared: BTreeSet<_> =
            self.declared.keys().map(|level| level.experiment.as_str()).collect();
        let measured = self.measured.iter().chain(self.busy.keys());
        let measured = measured.map(|level| level.experiment.as_str()).collect();
        declared.difference(&measured).copied().collect()
    }
}
