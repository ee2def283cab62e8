//! Values of one node: from its journal to an estimate per point.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use machine::proximity::Class;

use super::machines::{self, BootSpan};
use super::reduced::{self, Reduced};
use super::settings::Settings;
use crate::experiment::Experiment;
use crate::journal::{JournalError, Run, RunRecord, SessionRecord};
use crate::metric::MetricRecord;
use crate::point::Point;
use crate::sample::Sample;
use crate::sharing::SharingCounts;
use crate::statistics::IntervalKind;
use crate::summary::{Floors, Observed, Rounds, Samples, Unit, alike, chosen_state};

/// A run of one node, as far as nodes are compared.
#[derive(Debug)]
pub(super) struct NodeRun {
    /// Host name of the node.
    pub(super) node: String,
    /// Identity that copies of the run have in common.
    pub(super) identity: String,
    pub(super) folder: PathBuf,
    /// Number of lines of its journal: of two copies, the longer one was made later.
    pub(super) lines: u64,
    pub(super) settings: Settings,
    pub(super) experiments: Vec<Measured>,
    pub(super) boots: Vec<BootSpan>,
}

/// An experiment as a node measured it.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) id: String,
    pub(super) definition: Definition,
    /// Levels that all points share.
    pub(super) defaults: Point,
    /// Start of its last sample, in seconds since 1970.
    pub(super) at: f64,
    pub(super) values: Vec<PointValue>,
    /// Number of points, of each class, without a value or with too few rounds for an interval.
    pub(super) without_value: usize,
    /// Number of samples that failed.
    pub(super) failed: usize,
}

/// How an experiment is measured: values of different definitions are not compared.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Definition {
    pub(super) metric: String,
    pub(super) unit: String,
    pub(super) better: &'static str,
    method: String,
    budget: String,
    limit: String,
}

impl Definition {
    fn of(experiment: &Experiment, record: &MetricRecord) -> Self {
        Self {
            metric: experiment.metric.clone(),
            unit: record.unit.clone(),
            better: record.better.word(),
            method: experiment.method.clone(),
            budget: format!("{:?}", experiment.effort.budget),
            limit: format!("{:?}", experiment.limit),
        }
    }

    /// Names the first property in which it differs from another.
    pub(super) fn difference(&self, other: &Self) -> String {
        let properties = |one: &Self| {
            let Self { metric, unit, better, method, budget, limit } = one.clone();
            [
                ("method", method),
                ("metric", metric),
                ("unit", unit),
                ("better direction", better.into()),
                ("budget of a sample", budget),
                ("limit of a sample", limit),
            ]
        };
        let mut pairs = properties(self).into_iter().zip(properties(other));
        let differing = pairs.find(|(one, other)| one.1 != other.1);
        differing.map_or_else(String::new, |((what, one), (_, other))| {
            format!("{what} {one} instead of {other}")
        })
    }
}

/// Estimate of a point on the logarithmic scale.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PointValue {
    pub(super) point: Point,
    /// Proximity of the cores.
    pub(super) class: Option<Class>,
    /// Logarithm of the median.
    pub(super) value: f64,
    /// Distances to the ends of the interval; infinite if an end is open.
    pub(super) below: f64,
    pub(super) above: f64,
    /// Noise floor; `None` without twins.
    pub(super) floor: Option<f64>,
}

/// Why the values of a run are not compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Excluded {
    Sides,
    Guest,
    /// Its samples are of several hosts together.
    Hosts,
}

/// Reads a run: the values of each host that measured in it, or why they are not compared.
///
/// # Errors
/// Returns an error if the run has another format or is damaged.
pub(super) fn read(
    folder: &Path,
    is_cancelled: &AtomicBool,
) -> Result<Result<Vec<NodeRun>, Excluded>, JournalError> {
    let Reduced { record, hosts, lines } = reduced::read(folder, is_cancelled)?;
    if !record.sides.is_empty() {
        return Ok(Err(Excluded::Sides));
    }
    if record.guests.is_some() {
        return Ok(Err(Excluded::Guest));
    }
    let names: BTreeSet<&str> = record.hosts.iter().map(|host| host.name.as_str()).collect();
    if names.len() > 1 {
        return Ok(Err(Excluded::Hosts));
    }
    let mut run =
        Run { folder: folder.into(), record, samples: Vec::new(), inconsistencies: Vec::new() };
    let mut runs = Vec::new();
    for (host, samples) in hosts {
        run.samples = samples;
        let identity = identity(&run.record, &host);
        runs.push(node_run(&run, host, identity, lines));
    }
    Ok(Ok(runs))
}

/// Returns what copies of a run have in common: host, seed, and its first session.
fn identity(record: &RunRecord, host: &str) -> String {
    let first = record.sessions.first();
    let session = first.map(|SessionRecord { start, boot_id, .. }| format!("{start} {boot_id}"));
    format!("{host} {} {} {}", record.host, record.seed, session.unwrap_or_default())
}

pub(super) fn node_run(run: &Run, node: String, identity: String, lines: u64) -> NodeRun {
    let ids: BTreeSet<&str> = run.samples.iter().map(|one| one.experiment.as_str()).collect();
    let mut sharing = SharingCounts::default();
    let mut experiments = Vec::new();
    for id in ids {
        let Some(samples) = Samples::newest(run, id) else { continue };
        sharing = sharing.and(samples.sharing());
        experiments.extend(measured(&samples));
    }
    let last = run.samples.iter().max_by(|a, b| a.at.total_cmp(&b.at));
    let environment = last.and_then(|sample| run.record.environments.get(&sample.environment));
    let settings = Settings { sharing: sharing.share(), ..Settings::of(&run.record, environment) };
    let boots = machines::boots(run);
    NodeRun { node, identity, folder: run.folder.clone(), lines, settings, experiments, boots }
}

/// Estimates each point of an experiment; `None` if the run does not describe it.
fn measured(samples: &Samples) -> Option<Measured> {
    let experiment = samples.declared()?;
    let record = samples.metric(&experiment.metric)?;
    let observed = samples.observed(&experiment.metric, Unit::Own);
    let floors = Floors::of(&observed);
    let (mut values, mut without_value) = (Vec::new(), 0);
    for point in samples.points() {
        let Some(rounds) = observed.points.get(point) else {
            without_value += 1;
            continue;
        };
        for (class, rounds) in by_class(rounds) {
            let value = value(point, class, &rounds, observed.drift, &floors);
            without_value += usize::from(value.is_none());
            values.extend(value);
        }
    }
    let has_failed = |sample: &&Sample| sample.has_failed();
    Some(Measured {
        id: samples.experiment.into(),
        definition: Definition::of(experiment, record),
        defaults: experiment.defaults.clone(),
        at: samples.all().map(|one| one.at).fold(0.0, f64::max),
        values,
        without_value,
        failed: samples.all().filter(has_failed).count(),
    })
}

/// Divides rounds by the proximity of their cores.
fn by_class(rounds: &Rounds) -> Vec<(Option<Class>, Rounds)> {
    let classes: BTreeSet<Option<Class>> = rounds.values().map(|one| one.class).collect();
    let of_class = |class: Option<Class>| {
        let of_class = rounds.iter().filter(|(_, one)| one.class == class);
        (class, of_class.map(|(round, one)| (*round, one.clone())).collect())
    };
    classes.into_iter().map(of_class).collect()
}

/// Estimates a point from the rounds in one state of the core; `None` if they are too few for an interval, or if a value
/// has no logarithm.
fn value(
    point: &Point,
    class: Option<Class>,
    rounds: &Rounds,
    drift: f64,
    floors: &Floors,
) -> Option<PointValue> {
    let state = chosen_state(rounds);
    let observed = Observed { drift, ..Observed::default() };
    let estimate = observed.estimate(&alike(rounds))?;
    let interval = estimate.interval;
    if interval.kind != IntervalKind::Confidence || estimate.median <= 0.0 {
        return None;
    }
    let value = estimate.median.ln();
    // An end below zero is infinitely far on the logarithmic scale.
    let below = if interval.low > 0.0 { value - interval.low.ln() } else { f64::INFINITY };
    let above = if interval.high.is_finite() { interval.high.ln() - value } else { f64::INFINITY };
    let floor = floors.near(&[point], state).map(|floor| floor.floor);
    Some(PointValue { point: point.clone(), class, value, below, above, floor })
}
