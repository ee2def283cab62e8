//! Index of the samples of one experiment in one environment of a run.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use machine::environment::Environment;
use machine::proximity::Class;
use schemars::JsonSchema;
use serde::Serialize;

use super::environments::{OtherEnvironment, boots};
use super::{Observation, Observed, Rounds, SummaryError, Unit};
use crate::experiment::Experiment;
use crate::journal::Run;
use crate::measure::{CAPPED, LIMITED};
use crate::metric::{Better, MetricRecord, RESOLUTION};
use crate::point::Point;
use crate::proximity::Classes;
use crate::sample::{Clock, Sample};
use crate::sharing::{self, Sharing, SharingCounts};
use crate::statistics::{self, Censored};

/// Samples of one experiment that belong together, indexed by point, twin and round.
///
/// These are the samples of one environment and, if factors of the experiment are chosen at boot,
/// of its other boots; of a comparison within the run, those of both sides in one boot.
pub struct Samples<'a> {
    /// The run.
    pub run: &'a Run,
    /// ID of the experiment.
    pub experiment: &'a str,
    /// ID of the environment.
    pub environment: &'a str,
    /// Environments that count together, each with the ID of its boot.
    boots: BTreeMap<&'a str, &'a str>,
    /// Every sample in the order of the journal.
    all: Vec<&'a Sample>,
    /// Best rate of independent adds of the machine in this run, in adds per cycle.
    best_rate: OnceCell<f64>,
    /// The same of machines of roles, by environment.
    part_rates: OnceCell<BTreeMap<String, f64>>,
    /// See [`Observed::drift`].
    clock_drift: OnceCell<f64>,
    /// Classes of the machine's samples in this run, by the proximity of their cores.
    classes: OnceCell<Classes>,
    /// The last sample of each point, twin and round, which is the one that counts; of several boots, those of the
    /// last boot that measured the point.
    last: LastSamples<'a>,
    /// The same of each boot, by its ID; empty unless several boots count together.
    by_boot: BTreeMap<&'a str, LastSamples<'a>>,
}

/// By what samples of a machine are classified.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// See [`Samples::classes`].
    classes: Classes,
    /// Best rate of independent adds, in adds per cycle.
    best_rate: f64,
}

impl Limits {
    /// Returns the limits of all samples of a machine, in the environments of several runs.
    pub(crate) fn of<'s, 'a: 's>(runs: impl Iterator<Item = &'s Samples<'a>> + Clone) -> Self {
        let all = || runs.clone().flat_map(Samples::of_machine);
        Self { classes: Classes::of(all()), best_rate: sharing::best_rate(all()) }
    }
}

/// The last sample of each point, twin and round.
type LastSamples<'a> = BTreeMap<(&'a Point, bool), BTreeMap<u32, &'a Sample>>;

impl<'a> Samples<'a> {
    /// Indexes the samples of an experiment in the environment that measured it last; `None`
    /// without samples.
    pub fn newest(run: &'a Run, experiment: &'a str) -> Option<Self> {
        Some(Self::in_environment(run, experiment, Self::newest_environment(run, experiment)?))
    }

    /// Indexes the samples of an experiment in the environment that measured it last.
    ///
    /// # Errors
    /// Returns an error without samples.
    pub(crate) fn of(run: &'a Run, experiment: &'a str) -> Result<Self, SummaryError> {
        Self::newest(run, experiment).ok_or_else(|| SummaryError::NoSamples {
            run: run.record.name.clone(),
            experiment: experiment.into(),
        })
    }

    /// Classifies the samples by limits in place of those of their run.
    pub(crate) fn with_limits(self, limits: Limits) -> Self {
        let Limits { classes, best_rate } = limits;
        Self { classes: OnceCell::from(classes), best_rate: OnceCell::from(best_rate), ..self }
    }

    /// Returns the ID of the environment that measured an experiment last; `None` without samples.
    pub(crate) fn newest_environment(run: &'a Run, experiment: &str) -> Option<&'a str> {
        let last = run.samples.iter().rev().find(|s| s.experiment == experiment)?;
        Some(&last.environment)
    }

    /// Indexes the samples of an experiment in an environment.
    pub fn in_environment(run: &'a Run, experiment: &'a str, environment: &'a str) -> Self {
        let boots = boots(run, experiment, environment);
        let has_boots = boots.values().collect::<BTreeSet<_>>().len() > 1;
        let is_in = |sample: &&Sample| {
            sample.experiment == experiment && boots.contains_key(sample.environment.as_str())
        };
        let mut all: Vec<&Sample> = run.samples.iter().filter(is_in).collect();
        let mut superseded = BTreeSet::new();
        if has_boots {
            // A point that one boot lacks does not replace the values of another; nor does a fault, which counts all the
            // same.
            let valid = all.iter().filter(|s| s.is_valid());
            let measured: BTreeSet<_> = valid.map(|s| &s.point).collect();
            let is_absence = |s: &Sample| s.error.as_ref().is_some_and(|it| !it.kind.is_fault());
            all.retain(|s| !is_absence(s) || !measured.contains(&s.point));
            superseded.extend(measured);
        }
        let (mut last, mut by_boot) = (LastSamples::new(), BTreeMap::<_, LastSamples>::new());
        let counts = |s: &&&Sample| s.error.is_none() || !superseded.contains(&s.point);
        for sample in all.iter().filter(counts) {
            let item = (&sample.point, sample.twin);
            let boot_of = |sample: &Sample| boots.get(sample.environment.as_str()).copied();
            let boot = boot_of(sample);
            if let (Some(boot), true) = (boot, has_boots) {
                let of_boot = by_boot.entry(boot).or_default();
                of_boot.entry(item).or_default().insert(sample.round, *sample);
            }
            let rounds = last.entry(item).or_default();
            if has_boots {
                rounds.retain(|_, earlier| boot_of(earlier) == boot);
            }
            rounds.insert(sample.round, *sample);
        }
        let (best_rate, part_rates, clock_drift, classes) = Default::default();
        Self {
            run,
            experiment,
            environment,
            best_rate,
            part_rates,
            clock_drift,
            classes,
            boots,
            all,
            last,
            by_boot,
        }
    }

    /// Returns the samples of all experiments of the machine.
    fn of_machine(&self) -> impl Iterator<Item = &'a Sample> {
        let is_in = |sample: &&Sample| self.boots.contains_key(sample.environment.as_str());
        self.run.samples.iter().filter(is_in)
    }

    fn best_rate(&self) -> f64 {
        *self.best_rate.get_or_init(|| sharing::best_rate(self.of_machine()))
    }

    /// Returns the drift of the core clock over the valid samples of the machine.
    fn clock_drift(&self) -> f64 {
        let clocks = || self.of_machine().filter(|sample| sample.is_valid());
        let clocks = || clocks().filter_map(|sample| sample.clock);
        *self
            .clock_drift
            .get_or_init(|| statistics::clock_drift(clocks().map(|clock| clock.core_hertz())))
    }

    /// Returns the other environments of the run with valid or failed samples of some points of the experiment.
    pub fn other_environments(&self, is_wanted: impl Fn(&Point) -> bool) -> Vec<OtherEnvironment> {
        let is_other = |sample: &&Sample| {
            sample.experiment == self.experiment
                && !self.boots.contains_key(sample.environment.as_str())
                && is_wanted(&sample.point)
        };
        OtherEnvironment::of(self.run.samples.iter().filter(is_other), self)
    }

    /// Returns the experiment as declared in the run.
    pub fn declared(&self) -> Option<&'a Experiment> {
        self.run.record.experiments.get(self.experiment)
    }

    /// Returns the machine and program that measured them, if the run records it.
    pub fn machine(&self) -> Option<&'a Environment> {
        self.run.record.environments.get(self.environment)
    }

    /// Returns the unit and the direction of a metric as recorded in the run.
    pub fn metric(&self, metric: &str) -> Option<&'a MetricRecord> {
        self.run.record.metric(self.experiment, metric)
    }

    /// Returns every sample in the order of the journal, repeated attempts included.
    pub fn all(&self) -> impl Iterator<Item = &'a Sample> {
        self.all.iter().copied()
    }

    /// Counts the samples by whether a busy SMT sibling shared their core.
    pub fn sharing(&self) -> SharingCounts {
        SharingCounts::of_samples(self.all(), self.best_rate())
    }

    /// Returns whether a busy SMT sibling shared the core of what measured a metric of a sample, if known.
    pub(super) fn sharing_of(&self, sample: &Sample, metric: &str) -> Option<Sharing> {
        let (clock, environment) = sample.clock_of(metric)?;
        let is_other = environment != sample.environment;
        let of_part = || self.part_rates().get(environment).copied();
        Sharing::of(&clock, if is_other { of_part()? } else { self.best_rate() })
    }

    /// Returns the best rates of the machines of roles, by environment.
    fn part_rates(&self) -> &BTreeMap<String, f64> {
        self.part_rates.get_or_init(|| {
            let mut clocks: BTreeMap<String, Vec<Clock>> = BTreeMap::new();
            let valid = self.of_machine().filter(|sample| sample.is_valid());
            for part in valid.flat_map(|sample| sample.parts.values()) {
                clocks.entry(part.environment.clone()).or_default().extend(part.clock);
            }
            let rate = |(of, clocks): (_, Vec<_>)| (of, sharing::best_rate_of(clocks.into_iter()));
            clocks.into_iter().map(rate).collect()
        })
    }

    /// Returns the classes of the machine's samples by the proximity of their cores.
    pub fn classes(&self) -> Classes {
        *self.classes.get_or_init(|| Classes::of(self.of_machine()))
    }

    /// Returns the proximity of the cores of a sample; `None` if it used one core, or if it is unknown.
    pub fn class(&self, sample: &Sample) -> Option<Class> {
        self.classes().class(sample)
    }

    /// Returns the points with samples, without their twins.
    pub fn points(&self) -> impl Iterator<Item = &'a Point> {
        self.last.keys().filter(|(_, twin)| !twin).map(|(point, _)| *point)
    }

    /// Returns the sample that counts for each round of a point, or of its twin.
    pub fn rounds<'s>(
        &'s self,
        point: &'s Point,
        twin: bool,
    ) -> impl DoubleEndedIterator<Item = (u32, &'a Sample)> + 's {
        let rounds = self.last.get(&(point, twin)).into_iter().flatten();
        rounds.map(|(round, sample)| (*round, *sample))
    }

    /// Returns the sample that counts for a round of a point.
    pub fn sample(&self, point: &Point, round: u32) -> Option<&'a Sample> {
        self.last.get(&(point, false))?.get(&round).copied()
    }

    /// Returns the resolution of a metric in a sample, in the requested unit; 0 if it is not limited.
    pub(super) fn resolution(&self, sample: &Sample, metric: &str, unit: Unit) -> f64 {
        let limit = || {
            let record = self.metric(metric)?;
            match &record.rate_of {
                None if record.unit == "ns" => value(sample, RESOLUTION, unit),
                None => None,
                Some(time) => {
                    let [step, time] =
                        [RESOLUTION, time].map(|name| value(sample, name, Unit::Own));
                    let share = step? / time.filter(|time| *time > 0.0)?;
                    Some(share * value(sample, metric, unit)?.abs())
                }
            }
        };
        limit().unwrap_or_default()
    }

    /// Returns how the true value of a metric may differ in a sample: it may be better if it is limited.
    fn censored(&self, sample: &Sample, metric: &str) -> Censored {
        let better = self.metric(metric).map_or(Better::Neither, |record| record.better);
        match (Limit::of(sample, metric), better) {
            (None, _) => Censored::default(),
            (Some(_), Better::Higher) => Censored { may_be_higher: true, may_be_lower: false },
            (Some(_), Better::Lower) => Censored { may_be_higher: false, may_be_lower: true },
            (Some(_), Better::Neither) => Censored { may_be_higher: true, may_be_lower: true },
        }
    }

    /// Returns the values of a metric by point and round. A round whose sample is void or failed,
    /// or has no clock to convert its value by, has none.
    pub fn observed(&self, metric: &str, unit: Unit) -> Observed {
        let depends = self.metric(metric).is_some_and(|record| unit.depends_on_clock(record));
        let drift = if depends { self.clock_drift() } else { 0.0 };
        let mut observed = Observed { drift, ..Observed::default() };
        let observation = |(round, sample): (&u32, &&Sample)| {
            let value = value(sample, metric, unit)?;
            let observation = Observation {
                value,
                resolution: self.resolution(sample, metric, unit),
                class: self.class(sample),
                session: sample.session,
                sharing: self.sharing_of(sample, metric),
                censored: self.censored(sample, metric),
            };
            Some((*round, observation))
        };
        let observe = |samples: &BTreeMap<u32, &Sample>| {
            let rounds: Rounds = samples.iter().filter_map(observation).collect();
            (!rounds.is_empty()).then_some(rounds)
        };
        for ((point, twin), samples) in &self.last {
            let side = if *twin { &mut observed.twins } else { &mut observed.points };
            side.extend(observe(samples).map(|rounds| (Point::clone(point), rounds)));
        }
        let items = self.by_boot.values().flatten();
        for ((point, _), samples) in items.filter(|((_, twin), _)| !twin) {
            observed.boots.entry(Point::clone(point)).or_default().extend(observe(samples));
        }
        observed
    }
}

/// Cause that limited the value of a metric in a sample, so that the true one may be better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// The largest load that the search tries.
    Search,
    /// The instrument, which was the bottleneck.
    Instrument,
}

impl Limit {
    /// Returns what limited a metric; `None` if nothing did.
    pub(crate) fn of(sample: &Sample, metric: &str) -> Option<Self> {
        let lists = |name: &str| {
            let metrics = sample.covariates.get(name);
            metrics.is_some_and(|metrics| metrics.as_str().split(' ').any(|one| one == metric))
        };
        let limits = [(CAPPED, Self::Search), (LIMITED, Self::Instrument)];
        limits.into_iter().find(|(name, _)| lists(name)).map(|(_, limit)| limit)
    }
}

/// Returns the finite value of a metric in a valid sample.
pub(super) fn value(sample: &Sample, metric: &str, unit: Unit) -> Option<f64> {
    sample.is_valid().then(|| recorded(sample, metric, unit))?
}

/// Returns the finite value of a metric in a sample, which may be void.
pub(crate) fn recorded(sample: &Sample, metric: &str, unit: Unit) -> Option<f64> {
    unit.convert(*sample.values.get(metric)?, metric, sample).filter(|value| value.is_finite())
}
