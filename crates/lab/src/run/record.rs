//! What a session writes down besides samples: the run's record, and what the lab itself cost.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use super::Lab;
use super::session::Session;
use crate::experiment::{Experiment, Profile};
use crate::journal::{FORMAT, RunRecord};
use crate::metric::{Better, Metric, MetricRecord};
use crate::option;
use crate::point::Point;
use crate::quantity::format_duration;
use crate::sample::Sample;
use crate::suite;

/// The experiment under which the lab journals its own cost.
pub(crate) const SESSION: &str = "lab/session";

/// What the lab measures of itself.
pub(crate) const METRICS: [Metric; 2] = [
    Metric {
        name: "outside_samples",
        unit: "share",
        better: Better::Lower,
        about: "The share of the session's wall time that was not spent inside a sample",
    },
    Metric {
        name: "peak_memory",
        unit: "B",
        better: Better::Lower,
        about: "The largest resident memory of the lab's process",
    },
];

impl Session<'_> {
    /// What the lab itself cost, as a sample.
    pub(super) fn own_cost(&self) -> Sample {
        let wall = self.begun.elapsed().as_secs_f64();
        let values = [
            ("outside_samples".to_string(), (1.0 - self.inside / wall).max(0.0)),
            ("peak_memory".to_string(), peak_memory()),
        ];
        Sample {
            experiment: SESSION.into(),
            point: Point::from([("profile", self.wanted.profile.name())]),
            round: u32::try_from(self.journal.lines()).unwrap_or(u32::MAX),
            host: self.journal.record.host.clone(),
            environment: self.environment.clone(),
            attempt: 1,
            at: now(),
            seconds: wall,
            values: values.into(),
            ..Sample::default()
        }
    }
}

pub(super) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

/// The largest resident memory of this process, in bytes.
fn peak_memory() -> f64 {
    // SAFETY: getrusage fills the struct that it is given.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    usage.ru_maxrss as f64 * 1024.0
}

/// How all samples of a run are measured.
pub(super) struct Shared {
    /// What the user set by name.
    pub(super) options: BTreeMap<String, String>,
    /// The nice value of the processes that measure.
    pub(super) nice: i32,
}

pub(super) fn new_record(
    lab: &Lab,
    (profile, seed): (Profile, Option<u64>),
    name: String,
    host: String,
    shared: &Shared,
) -> RunRecord {
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |t| t.as_nanos() as u64);
    RunRecord {
        format: FORMAT,
        program: lab.version.into(),
        name,
        host,
        profile,
        // 53 bits, so that every reader of JSON keeps it.
        seed: seed.unwrap_or_else(clock) & ((1 << 53) - 1),
        begun: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        options: shared.options.clone(),
        nice: shared.nice,
        environments: BTreeMap::new(),
        experiments: BTreeMap::new(),
        metrics: BTreeMap::new(),
    }
}

/// Whether samples of these experiments, measured this way, may stand beside those of the record.
///
/// # Errors
/// One line: what was changed since, which would make them samples of something else.
pub(super) fn same_definitions(
    record: &RunRecord,
    experiments: &[Experiment],
    shared: &Shared,
) -> Result<(), String> {
    if record.nice != shared.nice {
        return Err(format!("nice value: the run has {}, now it is {}", record.nice, shared.nice));
    }
    let options = option::differences(&record.options, &shared.options);
    if let Some((name, before, now)) = options.first() {
        return Err(format!("--set {name}: the run has {before}, now it is {now}"));
    }
    for experiment in experiments {
        let id = experiment.id();
        let Some(before) = record.experiments.get(&id) else { continue };
        let budget = |one: &Experiment| format_duration(one.effort.budget);
        for (what, before, now) in [
            ("method", before.method.clone(), experiment.method.clone()),
            ("metric", before.metric.clone(), experiment.metric.clone()),
            ("budget", budget(before), budget(experiment)),
            ("roles", before.roles.join(", "), experiment.roles.join(", ")),
        ] {
            if before != now {
                return Err(format!("{id}: {what}: the run has '{before}', now it is '{now}'"));
            }
        }
    }
    Ok(())
}

/// Writes down the experiments as run and their metrics.
pub(super) fn describe(record: &mut RunRecord, lab: &Lab, experiments: &[Experiment]) {
    let profile = record.profile;
    for experiment in experiments {
        let Some(suite) = suite::find(lab.suites, &experiment.suite) else {
            continue;
        };
        let known = record.metrics.entry(experiment.suite.clone()).or_default();
        known.extend(suite::metrics(suite).iter().map(|m| (m.name.into(), MetricRecord::from(m))));
        let mut experiment = experiment.clone();
        if let Some(before) = record.experiments.get(&experiment.id()) {
            join(&mut experiment.points, &before.points);
            join(&mut experiment.twins, &before.twins);
        }
        record.experiments.insert(experiment.id(), experiment);
    }
    let own = METRICS.iter().map(|m| (m.name.into(), MetricRecord::from(m)));
    record.metrics.entry("lab".into()).or_default().extend(own);
    let session = Experiment {
        suite: "lab".into(),
        name: "session".into(),
        method: "session".into(),
        about: "What the lab itself costs".into(),
        metric: METRICS[0].name.into(),
        baseline: Point::from([("profile", profile.name())]),
        defaults: Point::default(),
        sweeps: vec![vec!["profile".into()]],
        points: vec![Point::from([("profile", profile.name())])],
        twins: Vec::new(),
        roles: Vec::new(),
        blocking: Vec::new(),
        batch: 1,
        limit: None,
        effort: profile.effort(),
    };
    record.experiments.insert(SESSION.into(), session);
}

/// Adds the points of an earlier session that this one leaves out.
fn join(points: &mut Vec<Point>, before: &[Point]) {
    let missing: Vec<_> = before.iter().filter(|point| !points.contains(point)).cloned().collect();
    points.extend(missing);
}
