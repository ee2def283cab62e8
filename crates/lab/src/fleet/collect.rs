//! Reading the journals of all nodes, with several at a time, into one table of estimates.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use machine::proximity::Class;

use super::find;
use super::machines::{self, BootSpan};
use super::settings::{Row, Table};
use super::values::{self, Definition, Excluded, Measured, NodeRun};
use crate::journal::JournalError;
use crate::point::Point;

/// Minimum number of readers: a shared folder is slow to answer, so that they mostly wait.
const MIN_READERS: usize = 4;
/// Maximum number of readers, each of which has one journal in memory.
const MAX_READERS: usize = 32;
/// Maximum number of runs that wait to be added to the table.
const QUEUE: usize = 64;

/// An error of a fleet, in one line.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// The folder cannot be read.
    #[error("{}: {error}; name the folder that has the results of all nodes", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The error.
        error: std::io::Error,
    },
    /// There is no run.
    #[error("{}: no run here; measure on each node with 'tollgate run --results DIR/NODE'", .0.display())]
    NoRun(PathBuf),
    /// No run can be read.
    #[error("{}: none of its {runs} runs can be read; the first: {first}", folder.display())]
    Unreadable {
        /// The folder.
        folder: PathBuf,
        /// Number of runs.
        runs: usize,
        /// The first error.
        first: String,
    },
    /// The time was too short.
    #[error(
        "{}: {read} of {runs} runs were read within {} s; use a longer --within, or a folder of fewer runs",
        folder.display(),
        time.as_secs_f64()
    )]
    Time {
        /// The folder.
        folder: PathBuf,
        /// Number of runs that were read.
        read: usize,
        /// Number of runs.
        runs: usize,
        /// The time.
        time: Duration,
    },
    /// A thread cannot be started.
    #[error("cannot start a reader: {0}; raise the limit of processes (ulimit -u)")]
    Thread(std::io::Error),
}

/// How to read a fleet.
#[derive(Clone, Copy, Default)]
pub struct Reading<'a> {
    /// Maximum time; `None` without limit.
    pub within: Option<Duration>,
    /// Which experiments are compared, by ID; `None` for all.
    pub selects: Option<&'a dyn Fn(&str) -> bool>,
}

/// The values of all nodes.
#[derive(Debug, Default)]
pub struct NodeRuns {
    pub(super) settings: Table,
    /// Every point of an experiment by its number, as measured with one definition.
    pub(super) points: Vec<PointKey>,
    /// Every experiment by its number, as measured with one definition.
    pub(super) experiments: Vec<ExperimentKey>,
    /// Runs, of which none is a copy of another, sorted by node and folder.
    pub(super) runs: Vec<StoredRun>,
    /// Number of runs that are copies of others.
    pub copies: usize,
    /// Number of runs that compare two sides.
    pub sides: usize,
    /// Number of runs in guests.
    pub guests: usize,
    /// Number of runs with roles on several hosts.
    pub several_hosts: usize,
    /// Runs that cannot be read, one line each.
    pub unreadable: Vec<String>,
    /// Host names of several machines, whose nodes have the name of their folder too.
    pub shared_names: Vec<String>,
    pub(super) limit: Option<Limit>,
}

/// The time of a reading and the comparison after it.
#[derive(Debug)]
pub(super) struct Limit {
    folder: PathBuf,
    time: Duration,
    pub(super) end: Instant,
}

impl Limit {
    /// Returns the error of a time that is over.
    pub(super) fn error(&self, read: usize, runs: usize) -> FleetError {
        FleetError::Time { folder: self.folder.clone(), read, runs, time: self.time }
    }
}

/// A point of an experiment in one definition.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PointKey {
    pub(super) experiment: u32,
    pub(super) point: Point,
    pub(super) class: Option<Class>,
}

/// An experiment in one definition.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ExperimentKey {
    pub(super) id: String,
    pub(super) definition: Definition,
    pub(super) defaults: Point,
}

/// A run in the table.
#[derive(Debug)]
pub(super) struct StoredRun {
    pub(super) node: String,
    pub(super) folder: PathBuf,
    lines: u64,
    pub(super) settings: Row,
    pub(super) experiments: Vec<StoredExperiment>,
    /// Boots of the machine in which it was measured.
    pub(super) boots: Vec<BootSpan>,
}

/// An experiment of a run.
#[derive(Debug)]
pub(super) struct StoredExperiment {
    /// Its number.
    pub(super) number: u32,
    /// Start of its last sample, in seconds since 1970.
    pub(super) at: f64,
    pub(super) without_value: u32,
    pub(super) failed: u32,
    pub(super) values: Vec<StoredValue>,
}

/// Value of a point on the logarithmic scale; see [`PointValue`](values::PointValue).
#[derive(Debug, Clone, Copy)]
pub(super) struct StoredValue {
    /// Number of the point.
    pub(super) point: u32,
    /// NaN without twins.
    pub(super) floor: f32,
    pub(super) below: f32,
    pub(super) above: f32,
    pub(super) value: f64,
}

/// Reads all runs below a folder. A run that cannot be read is listed, and does not hide the others.
///
/// # Errors
/// Returns an error without a run that can be read, or if the time is too short. In this case threads may still wait for
/// the file system.
pub fn read(folder: &Path, reading: Reading<'_>) -> Result<NodeRuns, FleetError> {
    let limit = reading.within.and_then(|time| {
        Some(Limit { folder: folder.into(), time, end: Instant::now().checked_add(time)? })
    });
    let search = Arc::new(Search::default());
    let outputs = start(folder, &search).map_err(FleetError::Thread)?;
    let (mut collector, mut read) = (Collector::default(), 0);
    loop {
        let output = match &limit {
            None => outputs.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(limit) => {
                outputs.recv_timeout(limit.end.saturating_duration_since(Instant::now()))
            }
        };
        match (output, &limit) {
            (Ok(Output::Run(answer)), _) => {
                read += 1;
                collector.add(answer, reading.selects);
            }
            (Ok(Output::Folder(error)), _) => {
                return Err(FleetError::Folder { folder: folder.into(), error });
            }
            (Err(RecvTimeoutError::Timeout), Some(limit)) => {
                search.is_cancelled.store(true, Ordering::Relaxed);
                return Err(limit.error(read, search.found.load(Ordering::Relaxed)));
            }
            // All are read.
            (Err(_), _) => break,
        }
    }
    if read == 0 {
        return Err(FleetError::NoRun(folder.into()));
    }
    let runs = NodeRuns { limit, ..collector.finish() };
    match runs.unreadable.first() {
        Some(first) if runs.unreadable.len() == read => {
            Err(FleetError::Unreadable { folder: folder.into(), runs: read, first: first.clone() })
        }
        _ => Ok(runs),
    }
}

pub(super) type Answer = Result<Result<Vec<NodeRun>, Excluded>, JournalError>;

/// What a thread sends.
enum Output {
    Run(Answer),
    /// The folder cannot be searched.
    Folder(std::io::Error),
}

/// The state that the threads share.
#[derive(Default)]
struct Search {
    /// Number of runs found so far.
    found: AtomicUsize,
    is_cancelled: AtomicBool,
}

/// Starts a thread that searches runs, and threads that read them and send what they read. They are not waited for: one
/// that waits for the file system must not delay the end of the program.
fn start(folder: &Path, search: &Arc<Search>) -> std::io::Result<Receiver<Output>> {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let (sender, outputs) = sync_channel(QUEUE);
    let (to_readers, runs) = sync_channel::<PathBuf>(QUEUE);
    let runs = Arc::new(Mutex::new(runs));
    for _ in 0..(2 * cpus).clamp(MIN_READERS, MAX_READERS) {
        let (runs, sender, search) = (Arc::clone(&runs), sender.clone(), Arc::clone(search));
        thread::Builder::new()
            .name("reader".into())
            .spawn(move || read_all(&runs, &sender, &search.is_cancelled))?;
    }
    let (folder, search) = (folder.to_owned(), Arc::clone(search));
    thread::Builder::new().name("search".into()).spawn(move || {
        let found = find::each_run(
            &folder,
            &mut |run| {
                search.found.fetch_add(1, Ordering::Relaxed);
                to_readers.send(run).is_ok()
            },
            &search.is_cancelled,
        );
        // The receiver is gone only if nobody reads.
        found.map_or_else(|error| drop(sender.send(Output::Folder(error))), |_| ())
    })?;
    Ok(outputs)
}

/// Reads the next run until there is none.
fn read_all(
    runs: &Mutex<Receiver<PathBuf>>,
    sender: &SyncSender<Output>,
    is_cancelled: &AtomicBool,
) {
    while !is_cancelled.load(Ordering::Relaxed) {
        let next = runs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(folder) = next else { return };
        if sender.send(Output::Run(values::read(&folder, is_cancelled))).is_err() {
            return;
        }
    }
}

/// Adds runs to the table as they are read.
#[derive(Default)]
pub(super) struct Collector {
    runs: NodeRuns,
    by_identity: HashMap<String, StoredRun>,
    points: BTreeMap<PointKey, u32>,
    experiments: BTreeMap<ExperimentKey, u32>,
}

impl Collector {
    pub(super) fn add(&mut self, answer: Answer, selects: Option<&dyn Fn(&str) -> bool>) {
        let runs = match answer {
            Ok(Ok(runs)) => runs,
            Ok(Err(Excluded::Sides)) => return self.runs.sides += 1,
            Ok(Err(Excluded::Guest)) => return self.runs.guests += 1,
            Ok(Err(Excluded::Hosts)) => return self.runs.several_hosts += 1,
            Err(why) => return self.runs.unreadable.push(why.to_string()),
        };
        for mut run in runs {
            if let Some(selects) = selects {
                run.experiments.retain(|measured| selects(&measured.id));
            }
            let identity = run.identity.clone();
            let stored = self.stored(run);
            match self.by_identity.get_mut(&identity) {
                None => drop(self.by_identity.insert(identity, stored)),
                Some(known) => {
                    self.runs.copies += 1;
                    // Of equally long copies the first in order, whichever was read first.
                    let is_later =
                        |one: &StoredRun| (one.lines, std::cmp::Reverse(one.folder.clone()));
                    if is_later(&stored) > is_later(known) {
                        *known = stored;
                    }
                }
            }
        }
    }

    fn stored(&mut self, run: NodeRun) -> StoredRun {
        let NodeRun { node, identity: _, folder, lines, settings, experiments, boots } = run;
        let settings = self.runs.settings.row(&settings);
        let experiments = experiments.into_iter().map(|one| self.stored_experiment(one)).collect();
        StoredRun { node, folder, lines, settings, experiments, boots }
    }

    fn stored_experiment(&mut self, measured: Measured) -> StoredExperiment {
        let Measured { id, definition, defaults, at, values, without_value, failed } = measured;
        let key = ExperimentKey { id, definition, defaults };
        let number = numbered(&mut self.experiments, &mut self.runs.experiments, key);
        let value = |one: values::PointValue| {
            let key = PointKey { experiment: number, point: one.point, class: one.class };
            StoredValue {
                point: numbered(&mut self.points, &mut self.runs.points, key),
                floor: one.floor.map_or(f32::NAN, |floor| floor as f32),
                below: one.below as f32,
                above: one.above as f32,
                value: one.value,
            }
        };
        let values = values.into_iter().map(value).collect();
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        StoredExperiment {
            number,
            at,
            without_value: count(without_value),
            failed: count(failed),
            values,
        }
    }

    pub(super) fn finish(self) -> NodeRuns {
        let Self { mut runs, by_identity, .. } = self;
        runs.runs = by_identity.into_values().collect();
        runs.shared_names = machines::separate(&mut runs.runs);
        runs.runs.sort_by(|a, b| a.node.cmp(&b.node).then_with(|| a.folder.cmp(&b.folder)));
        runs.unreadable.sort();
        runs
    }
}

/// Returns the number of a key, which is the next one if the key is new.
fn numbered<K: Clone + Ord>(numbers: &mut BTreeMap<K, u32>, keys: &mut Vec<K>, key: K) -> u32 {
    if let Some(number) = numbers.get(&key) {
        return *number;
    }
    let number = u32::try_from(keys.len()).unwrap_or(u32::MAX);
    keys.push(key.clone());
    numbers.insert(key, number);
    number
}

impl NodeRuns {
    /// Returns the newest run of each node that measured an experiment in a definition, and the number of older runs.
    pub(super) fn newest(
        &self,
        experiment: u32,
    ) -> (BTreeMap<&str, (&StoredRun, &StoredExperiment)>, usize) {
        let mut newest: BTreeMap<&str, (&StoredRun, &StoredExperiment)> = BTreeMap::new();
        let mut older = 0;
        for run in &self.runs {
            for one in run.experiments.iter().filter(|one| one.number == experiment) {
                match newest.get(run.node.as_str()) {
                    Some((_, known)) if known.at >= one.at => older += 1,
                    known => {
                        older += usize::from(known.is_some());
                        newest.insert(&run.node, (run, one));
                    }
                }
            }
        }
        (newest, older)
    }
}
