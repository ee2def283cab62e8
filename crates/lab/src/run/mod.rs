//! A run: experiments become orders for workers, and their samples are journalled.
//!
//! A [`Session`](session::Session) connects the parts: it passes through all experiments round by round (`passes`), the
//! scheduler of each experiment decides what is measured in a round, the dispatcher turns it into orders that the
//! supervisor's workers execute (`execution`), and the sink journals the samples.

mod dispatcher;
mod execution;
mod further;
mod import;
mod location;
mod machine_lock;
mod passes;
mod record;
mod remaining;
mod scheduler;
#[cfg(test)]
pub(crate) mod scripted;
mod session;
mod sink;
mod supervisor;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::claim::LackingRounds;
use crate::experiment::{Experiment, Profile};
use crate::guest::Guests;
use crate::host::Hosts;
use crate::journal::JournalError;
use crate::sample::{Failure, Sample};
use crate::side::Side;
use crate::suite::Lab;

pub use import::Imported;
pub(crate) use machine_lock::has_purpose;
pub use machine_lock::{LockRequest, MachineLock, purpose_of_run};
pub use scheduler::is_narrow;
pub use sink::is_lab_experiment;
pub(crate) use sink::{METRICS, OUTSIDE_SAMPLES, SESSION};

/// A request to measure experiments.
#[derive(Clone)]
pub struct RunRequest<'a> {
    /// The experiments.
    pub experiments: Vec<Experiment>,
    /// The profile that they were resolved for.
    pub profile: Profile,
    /// The folder of all runs.
    pub results: PathBuf,
    /// Whether to start a new run instead of resuming the last.
    pub fresh: bool,
    /// The seed of a new run, below [`MAX_SEED`]; the time if absent. A resumed run keeps its seed.
    pub seed: Option<u64>,
    /// Time to spend: rounds continue until it is used up, whatever the numbers of rounds of the experiments. `None`
    /// to measure those numbers.
    pub time: Option<Duration>,
    /// With a time to spend: rounds by experiment ID that are measured even if they take longer; none of an experiment
    /// that is absent.
    pub min_rounds: BTreeMap<String, u32>,
    /// With a time to spend: whether the run in a folder is precise enough to end before. It is asked after fixed
    /// numbers of rounds only (the experiments' own, then twice as many, and so on), and points do not stop before.
    pub is_enough: Option<&'a dyn Fn(&Path) -> bool>,
    /// With a time to spend: the rounds that claims lack for a verdict, given the folder of the run. A share of the time is
    /// reserved for them.
    pub lacking: Option<&'a FindLacking<'a>>,
    /// The two sides of a comparison, with which the experiments are crossed ([`cross`](crate::side::cross)); empty
    /// without one.
    pub sides: Vec<Side>,
    /// The guests in which the run is measured; `None` for this host.
    pub guests: Option<Guests>,
    /// The hosts on which the run is measured; `None` for this host or guests.
    pub hosts: Option<Hosts>,
    /// Whether to wait while another run measures on this machine; otherwise the run is refused.
    pub waits: bool,
    /// The lock of the machine, if the caller has it already.
    pub lock: Option<Arc<MachineLock>>,
    /// The options that the user enabled or set.
    pub options: BTreeMap<String, String>,
    /// Set by Ctrl-C: ends the run cleanly.
    pub interrupted: &'a AtomicBool,
}

impl RunRequest<'_> {
    /// Returns the number of rounds of an experiment that are measured even if no time is left.
    fn required_rounds(&self, experiment: &Experiment) -> u32 {
        let required = self.min_rounds.get(&experiment.id()).copied().unwrap_or_default();
        required.min(experiment.effort.rounds)
    }
}

/// Finds the claims on the run in a folder that lack rounds.
pub type FindLacking<'a> = dyn Fn(&Path) -> Vec<LackingRounds> + 'a;

/// Above all seeds: JSON readers that use doubles keep 53 bits.
pub const MAX_SEED: u64 = 1 << 53;

/// An event of a run.
#[derive(Debug)]
pub enum Event<'a> {
    /// The run waits for another one on this machine, with this process, start and folder.
    Waiting(&'a str),
    /// The run's journal is open.
    Opened {
        /// The folder.
        folder: &'a std::path::Path,
        /// The number of samples from earlier sessions.
        samples: u64,
    },
    /// A round of an experiment starts.
    Round {
        /// The experiment.
        experiment: &'a Experiment,
        /// The round, from 0.
        round: u32,
        /// The pass through all experiments, from 0.
        pass: u32,
        /// The number of passes; `None` if rounds continue until the time is used up.
        passes: Option<u32>,
    },
    /// A round of a part of an experiment starts, because claims lack rounds for a verdict.
    FurtherRound {
        /// The experiment.
        experiment: &'a Experiment,
        /// The round, from 0.
        round: u32,
        /// The number of claims for which further rounds are measured.
        claims: usize,
    },
    /// A host makes an artefact with this name.
    Preparing(&'a str),
    /// A sample was journalled.
    Sample(&'a Sample),
    /// The remaining work changed.
    Left {
        /// Samples of this session so far.
        done: u64,
        /// Samples of this session in total, estimated.
        all: u64,
        /// Remaining time, estimated.
        time: Duration,
    },
    /// The rounds until the target interval were projected, for the point that needs the most.
    Projected {
        /// The experiment.
        experiment: &'a Experiment,
        /// Rounds in total.
        rounds: usize,
        /// Remaining time.
        time: Duration,
        /// Whether the maximum number of rounds comes first.
        limited: bool,
    },
    /// The start of a worker is delayed.
    Delayed(&'a Delay),
    /// A worker was lost, for this reason; another replaces it.
    WorkerLost(&'a str),
    /// A system setting that a killed run had changed was restored: its file.
    Restored(&'a Path),
}

/// What delays the start of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delay {
    /// The kernel of a guest panicked as it booted, for this reason; it is started again.
    BootRepeated(String),
    /// A host cannot be reached, for this reason; the lab connects again.
    Reconnecting(String),
    /// Another run measures on a host: the worker there, and the process, start and folder of that run.
    Waiting(String),
}

/// An observer of a run, e.g. a progress bar.
pub trait RunObserver {
    /// Observes an event.
    fn event(&mut self, event: Event<'_>);
}

/// An observer that ignores all events.
pub struct NoObserver;

impl RunObserver for NoObserver {
    fn event(&mut self, _: Event<'_>) {}
}

/// The result of a session.
#[derive(Debug, Clone)]
pub struct RunSummary {
    /// The run's folder.
    pub folder: PathBuf,
    /// The id of the environment of this session.
    pub environment: String,
    /// The number of samples of this session.
    pub samples: u64,
    /// The failed samples of this session.
    pub faults: Vec<Sample>,
    /// Its wall time, without the wait for another run and the start of the workers.
    pub time: Duration,
    /// Whether the user interrupted it.
    pub interrupted: bool,
}

/// Why a run ended early, in one line.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The journal cannot be read or written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// An experiment exceeds a limit.
    #[error("{0}")]
    Limits(String),
    /// A definition differs from that of the run to be resumed.
    #[error("{}: {what}; start a new run with --fresh", folder.display())]
    Changed {
        /// The run's folder.
        folder: PathBuf,
        /// The difference.
        what: String,
    },
    /// Another run measures on this machine: its process, start and folder.
    #[error(
        "another run measures on this machine: {0}; two would disturb each other, so repeat this later, or wait with \
         'tollgate run --wait'"
    )]
    Busy(String),
    /// The lock of the machine cannot be used.
    #[error("{}: {error}; remove it, or name another file in TOLLGATE_LOCK", path.display())]
    Lock {
        /// The file.
        path: PathBuf,
        /// The error.
        error: std::io::Error,
    },
    /// A worker does not start.
    #[error("cannot start: {0}")]
    Start(String),
    /// The user interrupted the run before its first sample.
    #[error("interrupted; run again to resume")]
    Interrupted,
    /// Settings that a killed run had changed cannot be restored.
    #[error("{}", join_lines(.0))]
    Settings(Vec<machine::SysError>),
    /// Several consecutive workers were lost, or the environment changed.
    #[error("{0}")]
    Lost(String),
}

fn join_lines(errors: &[machine::SysError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; also: ")
}

/// Checks that the guests have enough hosts for an experiment at least; points of the others are unavailable. Hosts must
/// have the roles of every experiment.
///
/// # Errors
/// Returns [`RunError::Limits`] before a guest boots, or a connection is made, for nothing.
fn check_roles(request: &RunRequest) -> Result<(), RunError> {
    if let Some(hosts) = &request.hosts {
        return request.experiments.iter().try_for_each(|experiment| {
            let checked = hosts.check_roles(&experiment.roles);
            checked
                .map_err(|why| RunError::Limits(format!("experiment '{}': {why}", experiment.id())))
        });
    }
    let Some(guests) = &request.guests else { return Ok(()) };
    let mut first = None;
    for experiment in &request.experiments {
        let Err(failure) = guests.check_roles(experiment.roles.len()) else { return Ok(()) };
        let Failure { why, remedy, .. } = failure;
        let remedy = remedy.unwrap_or_default();
        first.get_or_insert_with(|| {
            RunError::Limits(format!("experiment '{}': {why}; {remedy}", experiment.id()))
        });
    }
    first.map_or(Ok(()), Err)
}

impl Lab<'_> {
    /// Measures what the journal lacks of the request. All samples are journalled, also those before an error.
    ///
    /// # Errors
    /// Returns an error if the journal cannot be written or resumed, a worker does not start, or a setting that a killed run
    /// had changed cannot be restored.
    pub fn run(
        &self,
        request: &RunRequest,
        observer: &mut dyn RunObserver,
    ) -> Result<RunSummary, RunError> {
        for experiment in &request.experiments {
            experiment.within_limits().map_err(|what| {
                RunError::Limits(format!("experiment '{}': {what}", experiment.id()))
            })?;
        }
        check_roles(request)?;
        session::Session::open(self, request, observer)?.run()
    }
}
