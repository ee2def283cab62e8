//! The run record of a session: how its samples are measured, and whether samples of an earlier session may be reused.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use super::{Lab, MAX_SEED, METRICS, RunRequest, SESSION};
use crate::artefact;
use crate::experiment::{Experiment, Profile};
use crate::guest::{self, Guests, GuestsRecord};
use crate::host::{self, HostRecord, Hosts};
use crate::journal::{self, FORMAT, RunRecord};
use crate::metric::MetricRecord;
use crate::option::{self, ALLOW_CODE};
use crate::point::Point;
use crate::side::{self, SideRecord};
use crate::suite;

/// The conditions under which all samples of a run are measured.
#[derive(Debug, Clone, Default)]
pub(super) struct Conditions {
    /// The options that have a value, set by the user or by default.
    pub(super) options: BTreeMap<String, String>,
    /// The nice value of the measuring processes.
    pub(super) nice: i32,
    /// The digests of the code files, by path.
    pub(super) code: BTreeMap<String, String>,
    /// The sides of a comparison; empty without one.
    pub(super) sides: Vec<SideRecord>,
    /// The guests in which the run is measured; `None` for hosts.
    pub(super) guests: Option<GuestsRecord>,
    /// The hosts on which the run is measured; empty for this host or guests.
    pub(super) hosts: Vec<HostRecord>,
}

impl Conditions {
    /// Determines the conditions of a request.
    ///
    /// # Errors
    /// Returns the error of `getpriority(2)`.
    pub(super) fn current(
        lab: &Lab,
        request: &RunRequest,
        options: &BTreeMap<String, String>,
        sides: Vec<SideRecord>,
    ) -> Result<Self, machine::SysError> {
        Ok(Self {
            options: option::values(options),
            nice: match &request.hosts {
                Some(hosts) => hosts.nice,
                None => machine::priority::current()?,
            },
            code: code_digests(lab, &request.experiments, options),
            sides,
            guests: request.guests.as_ref().map(Guests::record),
            hosts: request.hosts.as_ref().map(Hosts::records).unwrap_or_default(),
        })
    }
}

/// Returns the digest of every code file that the experiments may load. A file that cannot be read has none: its points
/// fail.
fn code_digests(
    lab: &Lab,
    experiments: &[Experiment],
    options: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut digests = BTreeMap::new();
    if !option::is_allowed(options, ALLOW_CODE) {
        return digests;
    }
    for experiment in experiments {
        let method = suite::find_method(lab.suites, &experiment.suite, &experiment.method);
        let Ok(method) = method else { continue };
        for file in experiment.points.iter().filter_map(|point| method.code(point, options)) {
            if digests.contains_key(&file) {
                continue;
            }
            let opened = fs::canonicalize(&file).and_then(|path| machine::file::open(&path));
            if let Ok((digest, _)) = opened.and_then(|mut opened| artefact::digest(&mut opened)) {
                digests.insert(file, digest);
            }
        }
    }
    digests
}

pub(super) fn new_record(
    lab: &Lab,
    profile: Profile,
    seed: Option<u64>,
    name: String,
    host: String,
    conditions: &Conditions,
) -> RunRecord {
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |t| t.as_nanos() as u64);
    RunRecord {
        format: FORMAT,
        program: lab.version.into(),
        name,
        host,
        profile,
        seed: seed.unwrap_or_else(clock) % MAX_SEED,
        start: journal::now(),
        options: conditions.options.clone(),
        nice: conditions.nice,
        code: conditions.code.clone(),
        sides: conditions.sides.clone(),
        guests: conditions.guests.clone(),
        hosts: conditions.hosts.clone(),
        sessions: Vec::new(),
        environments: BTreeMap::new(),
        experiments: BTreeMap::new(),
        metrics: BTreeMap::new(),
    }
}

/// Checks whether new samples of a request may join the samples of the record: everything that the journal's key of a sample
/// (experiment, point, twin, round, environment) lacks must be equal. Another build of the program is another environment.
/// Rounds may be added, and the target interval may change: they determine how many samples there are, not what they are.
///
/// # Errors
/// Returns one line that names the first difference.
pub(super) fn check_resumable(
    record: &RunRecord,
    request: &RunRequest,
    conditions: &Conditions,
) -> Result<(), String> {
    let (before, now) = (record.profile.name(), request.profile.name());
    if before != now {
        return Err(format!("profile: the run has '{before}', now it is '{now}'"));
    }
    let seed = request.seed.unwrap_or(record.seed);
    if seed != record.seed {
        return Err(format!("--seed: the run has {}, now it is {seed}", record.seed));
    }
    if record.nice != conditions.nice {
        let (before, now) = (record.nice, conditions.nice);
        return Err(format!("nice value: the run has {before}, now it is {now}"));
    }
    if let Some(difference) = side::difference(&record.sides, &conditions.sides) {
        return Err(difference);
    }
    if let Some(difference) = guest::difference(record.guests.as_ref(), conditions.guests.as_ref())
    {
        return Err(difference);
    }
    if let Some(difference) = host::difference(&record.hosts, &conditions.hosts) {
        return Err(difference);
    }
    let options = option::differences(&record.options, &conditions.options);
    if let Some((name, before, now)) = options.first() {
        return Err(format!("--set {name}: the run has {before}, now it is {now}"));
    }
    let is_changed = |(file, now): &(&String, &String)| {
        record.code.get(*file).is_some_and(|before| before != *now)
    };
    if let Some((file, _)) = conditions.code.iter().find(is_changed) {
        return Err(format!("{file}: its content changed since the run began"));
    }
    for experiment in &request.experiments {
        let id = experiment.id();
        let Some(before) = record.experiments.get(&id) else { continue };
        check_definition(before, experiment).map_err(|difference| format!("{id}: {difference}"))?;
    }
    Ok(())
}

/// Checks that an experiment is defined as in an earlier session.
///
/// # Errors
/// Returns one line that names the first difference.
fn check_definition(before: &Experiment, now: &Experiment) -> Result<(), String> {
    // Not rounded, so that every change is seen.
    let budget = |one: &Experiment| format!("{:?}", one.effort.budget);
    let limit = |one: &Experiment| match one.limit {
        Some(limit) => format!("{limit:?}"),
        None => "default".into(),
    };
    for (what, before, now) in [
        ("method", before.method.clone(), now.method.clone()),
        ("metric", before.metric.clone(), now.metric.clone()),
        ("budget", budget(before), budget(now)),
        ("limit", limit(before), limit(now)),
        ("batch", before.batch.to_string(), now.batch.to_string()),
        ("roles", before.roles.join(", "), now.roles.join(", ")),
    ] {
        if before != now {
            return Err(format!("{what}: the run has '{before}', now it is '{now}'"));
        }
    }
    Ok(())
}

/// Adds the experiments of this session, their metrics and their code files to the record.
pub(super) fn describe(
    record: &mut RunRecord,
    lab: &Lab,
    experiments: &[Experiment],
    code: &BTreeMap<String, String>,
) {
    record.code.extend(code.clone());
    let profile = record.profile;
    for experiment in experiments {
        let Some(suite) = suite::find(lab.suites, &experiment.suite) else {
            continue;
        };
        let metrics = record.metrics.entry(experiment.suite.clone()).or_default();
        metrics
            .extend(suite::metrics(suite).iter().map(|m| (m.name.into(), MetricRecord::from(m))));
        let mut experiment = experiment.clone();
        if let Some(before) = record.experiments.get(&experiment.id()) {
            add_missing(&mut experiment.points, &before.points);
            add_missing(&mut experiment.twins, &before.twins);
            add_missing(&mut experiment.skipped, &before.skipped);
        }
        let points: BTreeSet<_> = experiment.points.iter().collect();
        experiment.skipped.retain(|point| !points.contains(point));
        record.experiments.insert(experiment.id(), experiment);
    }
    let metrics = METRICS.iter().map(|m| (m.name.into(), MetricRecord::from(m)));
    record.metrics.entry("lab".into()).or_default().extend(metrics);
    let session = Experiment {
        suite: "lab".into(),
        name: "session".into(),
        method: "session".into(),
        about: "Overhead of the lab".into(),
        metric: METRICS[0].name.into(),
        baseline: Point::from([("profile", profile.name())]),
        defaults: Point::default(),
        sweeps: vec![vec!["profile".into()]],
        points: vec![Point::from([("profile", profile.name())])],
        twins: Vec::new(),
        roles: Vec::new(),
        skipped: Vec::new(),
        blocking: Vec::new(),
        alternatives: None,
        compared: Vec::new(),
        batch: 1,
        limit: None,
        effort: profile.effort(),
    };
    record.experiments.insert(SESSION.into(), session);
}

/// Adds the points of an earlier session that this session does not measure.
fn add_missing(points: &mut Vec<Point>, before: &[Point]) {
    let missing: Vec<_> = before.iter().filter(|point| !points.contains(point)).cloned().collect();
    points.extend(missing);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::factor::Factor;
    use crate::method::{Method, Params, Probe};
    use crate::metric::Metric;
    use crate::sample::Failure;
    use crate::suite::{Data, Suite};
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    const LAB: Lab = Lab { suites: &[], version: "1" };

    fn experiment() -> Experiment {
        Experiment {
            suite: "toy".into(),
            name: "one".into(),
            method: "loop".into(),
            about: String::new(),
            metric: "time".into(),
            baseline: Point::from([("length", "1 B")]),
            defaults: Point::default(),
            sweeps: Vec::new(),
            points: vec![Point::from([("length", "1 B")])],
            twins: Vec::new(),
            roles: Vec::new(),
            skipped: Vec::new(),
            blocking: Vec::new(),
            alternatives: None,
            compared: Vec::new(),
            batch: 1,
            limit: None,
            effort: Profile::Quick.effort(),
        }
    }

    fn request(experiment: &Experiment, seed: Option<u64>) -> RunRequest<'static> {
        static INTERRUPTED: AtomicBool = AtomicBool::new(false);
        RunRequest {
            experiments: vec![experiment.clone()],
            profile: Profile::Quick,
            results: "results".into(),
            fresh: false,
            seed,
            time: None,
            min_rounds: BTreeMap::new(),
            is_enough: None,
            lacking: None,
            sides: Vec::new(),
            guests: None,
            hosts: None,
            waits: false,
            lock: None,
            options: BTreeMap::new(),
            interrupted: &INTERRUPTED,
        }
    }

    fn map(name: &str, value: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(name.to_owned(), value.to_owned())])
    }

    fn record(conditions: &Conditions) -> RunRecord {
        let (name, host) = ("run".into(), "here".into());
        let mut record = new_record(&LAB, Profile::Quick, Some(1), name, host, conditions);
        record.code = conditions.code.clone();
        record.experiments.insert("toy/one".into(), experiment());
        record
    }

    struct Toy;

    static TOY: Suite = Suite::new("toy", "Loads code", Data::EMPTY, &[&Toy]);

    struct ToyParams {
        file: Option<String>,
    }

    impl Params for ToyParams {
        const FACTORS: &'static [Factor] = &[];

        fn from_point(point: &Point) -> Result<Self, Failure> {
            Ok(Self { file: point.get("file").map(|file| file.as_str().to_owned()) })
        }
    }

    impl Method for Toy {
        type Params = ToyParams;

        fn name(&self) -> &'static str {
            "loop"
        }
        fn how(&self) -> &'static str {
            "A test. Nothing is timed."
        }

        fn metrics(&self) -> &'static [Metric] {
            &[]
        }

        fn code(&self, params: &ToyParams, _: &BTreeMap<String, String>) -> Option<String> {
            params.file.clone()
        }

        fn probe(&self) -> Result<Box<dyn Probe<ToyParams>>, Failure> {
            Err(Failure::failed("a toy"))
        }
    }

    #[test]
    fn a_changed_code_file_is_not_resumed() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link] = ["mine.so.1", "mine.so"].map(|name| folder.path().join(name));
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let points = [&link, &folder.path().join("absent.so")];
        let points = points.map(|path| Point::from([("file", path.to_str().unwrap())]));
        let experiment = Experiment { points: points.into(), ..experiment() };
        let request = request(&experiment, None);
        let lab = Lab { suites: &[&TOY], version: "1" };
        let current = |content: &str| {
            fs::write(&file, content).unwrap();
            let allowed = map(ALLOW_CODE, "yes");
            Conditions::current(&lab, &request, &allowed, Vec::new()).unwrap()
        };
        let before = current("before");
        assert_eq!(before.code.len(), 1);
        let record = record(&before);
        let check = |now: &Conditions| check_resumable(&record, &request, now);
        assert_eq!(check(&current("before")), Ok(()));
        let why = check(&current("after")).unwrap_err();
        assert_eq!(why, format!("{}: its content changed since the run began", link.display()));
        let not_allowed =
            Conditions::current(&lab, &request, &BTreeMap::new(), Vec::new()).unwrap();
        assert_eq!(not_allowed.code, BTreeMap::new(), "a file that is not loaded is not read");
    }

    #[test]
    fn a_resumed_run_keeps_its_seed() {
        let conditions = Conditions::default();
        let record = record(&conditions);
        let check = |seed| check_resumable(&record, &request(&experiment(), seed), &conditions);
        assert_eq!(check(None), Ok(()));
        assert_eq!(check(Some(1)), Ok(()));
        assert_eq!(check(Some(2)), Err("--seed: the run has 1, now it is 2".into()));
    }

    #[test]
    fn samples_of_another_definition_are_not_reused() {
        let conditions = Conditions {
            options: map("folder", "/tmp"),
            nice: 0,
            code: map("./mine.so", "digest"),
            sides: Vec::new(),
            guests: None,
            hosts: Vec::new(),
        };
        let record = record(&conditions);
        let check = |experiment: &Experiment, conditions: &Conditions| {
            check_resumable(&record, &request(experiment, None), conditions)
        };
        assert_eq!(check(&experiment(), &conditions), Ok(()));
        assert_eq!(
            check(&experiment(), &Conditions { code: BTreeMap::new(), ..conditions.clone() }),
            Ok(())
        );
        let code = map("./other.so", "digest");
        assert_eq!(check(&experiment(), &Conditions { code, ..conditions.clone() }), Ok(()));

        let mut budget = experiment();
        budget.effort.budget = Duration::from_micros(2400);
        let method = Experiment { method: "call".into(), ..experiment() };
        let batch = Experiment { batch: 8, ..experiment() };
        let limit = Experiment { limit: Some(Duration::from_secs(5)), ..experiment() };
        let mut rounds = experiment();
        (rounds.effort.rounds, rounds.effort.min_rounds) = (99, 20);
        assert_eq!(check(&rounds, &conditions), Ok(()), "rounds may be added");
        for (experiment, difference) in [
            (batch, "toy/one: batch: the run has '1', now it is '8'"),
            (limit, "toy/one: limit: the run has 'default', now it is '5s'"),
            (budget, "toy/one: budget: the run has '2ms', now it is '2.4ms'"),
            (method, "toy/one: method: the run has 'loop', now it is 'call'"),
        ] {
            assert_eq!(check(&experiment, &conditions), Err(difference.into()));
        }
        for (changed, difference) in [
            (
                Conditions { options: map("folder", "/mnt"), ..conditions.clone() },
                "--set folder: the run has /tmp, now it is /mnt",
            ),
            (
                Conditions { options: BTreeMap::new(), ..conditions.clone() },
                "--set folder: the run has /tmp, now it is not set",
            ),
            (
                Conditions { nice: 19, ..conditions.clone() },
                "nice value: the run has 0, now it is 19",
            ),
            (
                Conditions { code: map("./mine.so", "changed"), ..conditions.clone() },
                "./mine.so: its content changed since the run began",
            ),
        ] {
            assert_eq!(check(&experiment(), &changed), Err(difference.into()));
        }
    }
}
