//! A run: plan, orders, answers, journal.

mod ahead;
mod hand;
mod import;
mod order;
mod record;
mod roles;
mod session;
mod silence;
mod stopping;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::experiment::{Experiment, Profile};
use crate::journal::JournalError;
use crate::sample::Sample;
use crate::suite::Suite;

pub use import::Imported;
pub(crate) use record::{METRICS, SESSION};
pub use stopping::narrow;

/// The suites, and the program that has them.
#[derive(Clone, Copy)]
pub struct Lab<'a> {
    /// All suites.
    pub suites: &'a [&'a dyn Suite],
    /// The program's version.
    pub version: &'a str,
}

/// What a person wants measured.
#[derive(Debug, Clone)]
pub struct RunRequest<'a> {
    /// The experiments, as planned.
    pub experiments: Vec<Experiment>,
    /// The profile they were read for.
    pub profile: Profile,
    /// The folder of all runs.
    pub results: PathBuf,
    /// Begin a new run, whatever is there.
    pub fresh: bool,
    /// The seed of a new run; chosen by the clock if absent.
    pub seed: Option<u64>,
    /// What the person allowed or set by name.
    pub options: BTreeMap<String, String>,
    /// Set by Ctrl-C: the run ends cleanly.
    pub interrupted: &'a AtomicBool,
}

/// What happens during a run, for whoever shows it.
#[derive(Debug)]
pub enum Event<'a> {
    /// The run's folder is open.
    Opened {
        /// The folder.
        folder: &'a std::path::Path,
        /// How many samples it holds already.
        samples: u64,
    },
    /// An experiment begins.
    Experiment {
        /// The experiment.
        experiment: &'a Experiment,
    },
    /// A host makes an artefact.
    Preparing(&'a str),
    /// A sample was journalled.
    Sample(&'a Sample),
    /// What is left of the run.
    Left {
        /// Samples done and samples in all, as far as known now.
        done: u64,
        /// See `done`.
        all: u64,
        /// Time left.
        time: Duration,
    },
    /// How many rounds the asked interval takes at the point that needs most.
    Projected {
        /// The experiment.
        experiment: &'a Experiment,
        /// Rounds in all.
        rounds: usize,
        /// Time from now.
        time: Duration,
        /// Whether the round limit comes first.
        limited: bool,
    },
    /// A worker died and another takes its place.
    WorkerLost(&'a str),
    /// A system setting was restored that a killed run had left changed: its file.
    Restored(&'a Path),
}

/// Shows a run to a person.
pub trait RunObserver {
    /// Takes note of an event.
    fn event(&mut self, event: Event<'_>);
}

/// Shows nothing.
pub struct NoObserver;

impl RunObserver for NoObserver {
    fn event(&mut self, _: Event<'_>) {}
}

/// How a run ended.
#[derive(Debug, Clone)]
pub struct RunSummary {
    /// Where its results lie.
    pub folder: PathBuf,
    /// The environment in which this session measured.
    pub environment: String,
    /// How many samples this session measured.
    pub samples: u64,
    /// The samples of this session whose measuring failed.
    pub faults: Vec<Sample>,
    /// Whether it was interrupted.
    pub interrupted: bool,
}

/// Why a run could not go on, in one line.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The journal cannot be read or written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// An experiment asks for more than can be done.
    #[error("{0}")]
    Limits(String),
    /// What is wanted is defined otherwise than in the run that would be resumed.
    #[error("{}: {what}; start a new run with --fresh", folder.display())]
    Changed {
        /// The run's folder.
        folder: PathBuf,
        /// What differs.
        what: String,
    },
    /// No worker starts.
    #[error("the worker does not start: {0}")]
    Worker(String),
    /// Settings that a killed run left changed cannot be restored: what is measured would pass for normal.
    #[error("{}", all_of(.0))]
    Settings(Vec<machine::SysError>),
    /// Worker after worker died, or one runs in another environment than the run.
    #[error("{0}")]
    Lost(String),
}

fn all_of(refusals: &[machine::SysError]) -> String {
    refusals.iter().map(ToString::to_string).collect::<Vec<_>>().join("; also: ")
}

impl Lab<'_> {
    /// Measures what is wanted and is not in the journal yet.
    ///
    /// # Errors
    /// When the journal cannot be written, no worker starts, or a setting that a killed run left changed
    /// cannot be restored; what was measured is in the journal.
    pub fn run(
        &self,
        wanted: &RunRequest,
        watch: &mut dyn RunObserver,
    ) -> Result<RunSummary, RunError> {
        for one in &wanted.experiments {
            let beyond = |what| RunError::Limits(format!("experiment '{}': {what}", one.id()));
            one.within_limits().map_err(beyond)?;
        }
        session::Session::open(self, wanted, watch)?.run()
    }
}
