//! The journal: an append-only file of samples in a folder a run and host; the only store.
//!
//! `run.json` holds what the samples share (environments, seed, experiments as run, metrics);
//! `samples.jsonl` holds one sample a line. A line is written whole before the next order, so that
//! a kill at any moment loses at most the sample under way.

mod folder;
mod read;
mod record;
mod write;

pub use folder::{Place, check_host, latest, newest, runs};
pub use read::{Run, open};
pub use record::{FORMAT, RunRecord};
pub use write::{Journal, Settled, Voids};

use std::path::{Path, PathBuf};

/// The file that describes a run.
pub const RECORD: &str = "run.json";
/// The file of samples.
pub const SAMPLES: &str = "samples.jsonl";

/// The largest `run.json`, in bytes.
const MAX_RECORD: u64 = machine::file::MAX_WHOLE_BYTES;
/// The longest line of `samples.jsonl`, in bytes.
const MAX_LINE: u64 = 16 << 20;

/// Why a journal cannot be read or written, in one line.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The system refused.
    #[error("{}: {error}; {remedy}", path.display())]
    System {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// Another run writes to the folder.
    #[error("{}: another run writes here; wait for it to end, or use --fresh", .0.display())]
    Locked(PathBuf),
    /// A newer or an older program wrote it.
    #[error(
        "{}: format {found}, but this program reads {}; {}",
        path.display(),
        record::FORMAT,
        if *found > record::FORMAT { "use a newer tollgate" } else { "use the tollgate that wrote it, or measure again with --fresh" }
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
    },
    /// A line or file is not what it should be.
    #[error("{}: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong, where, and what to do.
        what: String,
    },
    /// A folder for runs is one of them.
    #[error("{}: it is the folder of one run; give the folder of all runs with --results", .0.display())]
    IsRun(PathBuf),
    /// There is no run.
    #[error("{}: no run here; measure first with 'tollgate run'", .0.display())]
    NoRun(PathBuf),
}

/// What to do about a file of a run that cannot be used.
const UNREADABLE: &str =
    "make it a regular file that you may read and write, or measure again with --fresh";

fn system(path: &Path, remedy: &'static str) -> impl FnOnce(std::io::Error) -> JournalError {
    move |error| JournalError::System { path: path.into(), error, remedy }
}
