//! One session of a run: what is still to be measured, round by round.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::hand::{Hand, Said};
use super::{Ended, Event, Lab, RunError, Wanted, Watch, stopping};
use crate::descendants;
use crate::experiment::Experiment;
use crate::journal::{FORMAT, Journal, RunRecord, latest};
use crate::metric::{Better, Metric, MetricRecord};
use crate::plan::{self, Item};
use crate::point::Point;
use crate::sample::{FailureKind, Sample};
use crate::suite;

/// The experiment under which the lab journals its own cost.
pub(super) const SESSION: &str = "lab/session";

/// What the lab measures of itself.
const METRICS: [Metric; 2] = [
    Metric {
        name: "outside_samples",
        unit: "1",
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

pub(super) struct Session<'a> {
    pub(super) lab: &'a Lab<'a>,
    pub(super) wanted: &'a Wanted<'a>,
    pub(super) watch: &'a mut dyn Watch,
    pub(super) journal: Journal,
    pub(super) hands: Vec<Hand>,
    pub(super) started: u64,
    pub(super) sender: Sender<Said>,
    pub(super) said: Receiver<Said>,
    pub(super) environment: String,
    pub(super) ended: Ended,
    /// What this machine cannot measure is asked once a session.
    pub(super) unavailable: HashSet<(String, Item)>,
    begun: Instant,
    inside: f64,
    ahead: Ahead,
}

/// What lies ahead, for the time left.
#[derive(Default)]
struct Ahead {
    done: u64,
    /// Samples left and seconds a sample, by experiment.
    left: BTreeMap<String, (u64, f64)>,
}

impl<'a> Session<'a> {
    pub(super) fn open(
        lab: &'a Lab<'a>,
        wanted: &'a Wanted<'a>,
        watch: &'a mut dyn Watch,
    ) -> Result<Self, RunError> {
        descendants::adopt().map_err(|e| RunError::Worker(e.to_string()))?;
        let (sender, said) = channel();
        let hand = Hand::start(0, sender.clone()).map_err(RunError::Worker)?;
        let here = hand.hello.environment.clone();
        let environment = here.id();
        let place = latest(
            &wanted.results,
            &here.hostname,
            wanted.profile,
            wanted.fresh,
        )?;
        let name = place
            .folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let new = || new_record(lab, wanted, name, here.hostname.clone());
        let mut journal = Journal::open(&place.folder, new)?;
        journal
            .record
            .environments
            .insert(environment.clone(), here);
        describe(&mut journal.record, lab, wanted);
        journal.save_record()?;
        watch.event(Event::Opened {
            folder: &place.folder,
            samples: journal.lines(),
        });
        let ended = Ended {
            folder: place.folder,
            environment: environment.clone(),
            samples: 0,
            faults: Vec::new(),
            interrupted: false,
        };
        Ok(Self {
            lab,
            wanted,
            watch,
            journal,
            hands: vec![hand],
            started: 1,
            sender,
            said,
            environment,
            ended,
            unavailable: HashSet::new(),
            begun: Instant::now(),
            inside: 0.0,
            ahead: Ahead::default(),
        })
    }

    pub(super) fn run(mut self) -> Result<Ended, RunError> {
        self.look_ahead();
        for experiment in &self.wanted.experiments {
            if !self.interrupted() {
                self.experiment(experiment)?;
            }
        }
        self.hands.clear();
        if self.ended.samples > 0 {
            let own = self.own_cost();
            self.journal.append(&own)?;
        }
        self.journal.sync()?;
        self.ended.interrupted = self.interrupted();
        Ok(self.ended)
    }

    pub(super) fn interrupted(&self) -> bool {
        self.wanted.interrupted.load(Ordering::Relaxed)
    }

    fn experiment(&mut self, experiment: &Experiment) -> Result<(), RunError> {
        self.watch.event(Event::Experiment { experiment });
        let items = plan::items(experiment);
        let mut values = vec![Vec::new(); items.len()];
        let mut enough = vec![false; items.len()];
        let mut told = false;
        for round in 0..experiment.effort.rounds {
            self.round(experiment, &items, &enough, round)?;
            if self.interrupted() {
                return Ok(());
            }
            for (at, item) in items.iter().enumerate() {
                if enough[at] {
                    continue;
                }
                let value = self
                    .journal
                    .value(&experiment.id(), item, round, &self.environment);
                values[at].extend(value.filter(|value| value.is_finite()));
                enough[at] = self.is_unavailable(experiment, item)
                    || stopping::narrow(&values[at], &experiment.effort);
            }
            self.tell_left(experiment, &enough, experiment.effort.rounds - round - 1);
            if round + 1 == experiment.effort.min_rounds && !told {
                told = true;
                self.tell_projected(experiment, &values, &enough, round + 1);
            }
            if enough.iter().all(|enough| *enough) {
                break;
            }
        }
        Ok(())
    }

    fn round(
        &mut self,
        experiment: &Experiment,
        items: &[Item],
        enough: &[bool],
        round: u32,
    ) -> Result<(), RunError> {
        let order = plan::order(experiment, items.len(), round, self.journal.record.seed);
        let pending: Vec<_> = order
            .into_iter()
            .enumerate()
            .filter(|(_, at)| !enough[*at] && !self.is_measured(experiment, &items[*at], round))
            .map(|(position, at)| (position as u32, items[at].clone()))
            .collect();
        for batch in pending.chunks(experiment.batch) {
            self.carry_out(experiment, round, batch)?;
            if self.interrupted() {
                break;
            }
        }
        if !pending.is_empty() {
            self.journal.sync()?;
        }
        Ok(())
    }

    fn is_measured(&self, experiment: &Experiment, item: &Item, round: u32) -> bool {
        self.is_unavailable(experiment, item)
            || self
                .journal
                .value(&experiment.id(), item, round, &self.environment)
                .is_some()
    }

    fn is_unavailable(&self, experiment: &Experiment, item: &Item) -> bool {
        self.unavailable.contains(&(
            experiment.id(),
            Item {
                twin: false,
                ..item.clone()
            },
        ))
    }

    /// Journals a sample as soon as it is there.
    pub(super) fn keep(&mut self, sample: Sample) -> Result<(), RunError> {
        self.journal.append(&sample)?;
        self.watch.event(Event::Sample(&sample));
        self.inside += sample.seconds;
        self.ended.samples += 1;
        self.note_pace(&sample);
        match sample.error.as_ref().map(|failure| failure.kind) {
            Some(FailureKind::Unavailable | FailureKind::Unsupported) => {
                let item = Item {
                    point: sample.point,
                    twin: false,
                };
                self.unavailable.insert((sample.experiment, item));
            }
            Some(_) => self.ended.faults.push(sample),
            None => {}
        }
        Ok(())
    }

    fn look_ahead(&mut self) {
        for experiment in &self.wanted.experiments {
            let Some(suite) = suite::find(self.lab.suites, &experiment.suite) else {
                continue;
            };
            let all = plan::items(experiment).len() as u64 * u64::from(experiment.effort.rounds);
            let time = plan::expected(experiment, suite).as_secs_f64();
            self.ahead
                .left
                .insert(experiment.id(), (all, time / all.max(1) as f64));
        }
    }

    fn note_pace(&mut self, sample: &Sample) {
        self.ahead.done += 1;
        if let Some((left, pace)) = self.ahead.left.get_mut(&sample.experiment) {
            *left = left.saturating_sub(1);
            // The pace follows what is measured; one sample moves it a little.
            *pace += (sample.seconds - *pace) / 20.0;
        }
    }

    fn tell_left(&mut self, experiment: &Experiment, enough: &[bool], rounds: u32) {
        let open = enough.iter().filter(|enough| !**enough).count() as u64;
        if let Some((left, _)) = self.ahead.left.get_mut(&experiment.id()) {
            *left = open * u64::from(rounds);
        }
        let left: u64 = self.ahead.left.values().map(|(left, _)| left).sum();
        let time = self
            .ahead
            .left
            .values()
            .map(|(left, pace)| *left as f64 * pace)
            .sum::<f64>();
        self.watch.event(Event::Left {
            done: self.ahead.done,
            all: self.ahead.done + left,
            time: Duration::from_secs_f64(time.max(0.0)),
        });
    }

    fn tell_projected(
        &mut self,
        experiment: &Experiment,
        values: &[Vec<f64>],
        enough: &[bool],
        rounds: u32,
    ) {
        let effort = &experiment.effort;
        let needed: Vec<_> = values
            .iter()
            .zip(enough)
            .filter(|(_, enough)| !**enough)
            .filter_map(|(values, _)| stopping::projected(values, effort))
            .collect();
        let Some(&most) = needed.iter().max() else {
            return;
        };
        let limit = effort.rounds as usize;
        let left: usize = needed
            .iter()
            .map(|all| all.min(&limit).saturating_sub(rounds as usize))
            .sum();
        let pace = self
            .ahead
            .left
            .get(&experiment.id())
            .map_or(0.0, |(_, pace)| *pace);
        self.watch.event(Event::Projected {
            experiment,
            rounds: most.min(limit),
            time: Duration::from_secs_f64(left as f64 * pace.max(0.0)),
            limited: most > limit,
        });
    }

    /// What the lab itself cost, as a sample.
    fn own_cost(&self) -> Sample {
        let wall = self.begun.elapsed().as_secs_f64();
        let values = [
            (
                "outside_samples".to_string(),
                (1.0 - self.inside / wall).max(0.0),
            ),
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

fn now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |time| time.as_secs_f64())
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

fn new_record(lab: &Lab, wanted: &Wanted, name: String, host: String) -> RunRecord {
    let clock = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(1, |t| t.as_nanos() as u64)
    };
    RunRecord {
        format: FORMAT,
        program: lab.version.into(),
        name,
        host,
        profile: wanted.profile,
        // 53 bits, so that every reader of JSON keeps it.
        seed: wanted.seed.unwrap_or_else(clock) & ((1 << 53) - 1),
        begun: jiff::Timestamp::now()
            .strftime("%Y-%m-%dT%H:%M:%SZ")
            .to_string(),
        environments: BTreeMap::new(),
        experiments: BTreeMap::new(),
        metrics: BTreeMap::new(),
    }
}

/// Writes down the experiments as run and their metrics.
fn describe(record: &mut RunRecord, lab: &Lab, wanted: &Wanted) {
    for experiment in &wanted.experiments {
        let Some(suite) = suite::find(lab.suites, &experiment.suite) else {
            continue;
        };
        let known = record.metrics.entry(experiment.suite.clone()).or_default();
        known.extend(
            suite
                .metrics()
                .iter()
                .map(|m| (m.name.into(), MetricRecord::from(m))),
        );
        let mut experiment = experiment.clone();
        if let Some(before) = record.experiments.get(&experiment.id()) {
            join(&mut experiment.points, &before.points);
            join(&mut experiment.twins, &before.twins);
        }
        record.experiments.insert(experiment.id(), experiment);
    }
    let own = METRICS
        .iter()
        .map(|m| (m.name.into(), MetricRecord::from(m)));
    record.metrics.entry("lab".into()).or_default().extend(own);
    let session = Experiment {
        suite: "lab".into(),
        name: "session".into(),
        about: "What the lab itself costs".into(),
        metric: METRICS[0].name.into(),
        baseline: Point::from([("profile", wanted.profile.name())]),
        sweeps: vec![vec!["profile".into()]],
        points: vec![Point::from([("profile", wanted.profile.name())])],
        twins: Vec::new(),
        roles: Vec::new(),
        batch: 1,
        limit: None,
        effort: wanted.profile.effort(),
    };
    record.experiments.insert(SESSION.into(), session);
}

/// Adds the points of an earlier session that this one leaves out.
fn join(points: &mut Vec<Point>, before: &[Point]) {
    let missing: Vec<_> = before
        .iter()
        .filter(|point| !points.contains(point))
        .cloned()
        .collect();
    points.extend(missing);
}
