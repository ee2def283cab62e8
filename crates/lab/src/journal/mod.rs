//! The journal: a folder per run, the only store of samples.
//!
//! `run.json` has what the samples share: environments, seed, experiments and metrics. `samples.jsonl` has one sample
//! per line and is append-only. A sample is written before the next is measured, so that killing the lab loses at most
//! the sample in flight. `code.jsonl` has the generated code that was timed.

mod code;
mod folder;
mod read;
mod record;
mod write;
mod written;

pub(crate) use code::CodeLog;
pub use code::{CODE, open_code};
pub use folder::{RunLocation, check_host, latest, newest, runs};
pub(crate) use folder::{is_run, newest_of};
pub use read::{Run, each_experiment, open, open_files};
pub(crate) use record::now;
pub use record::{FORMAT, RunRecord, SessionRecord};
pub use write::{Journal, Settled, Voids};
pub use written::Written;

use std::path::{Path, PathBuf};

/// The name of the file that describes a run.
pub const RECORD: &str = "run.json";
/// The name of the file of samples.
pub const SAMPLES: &str = "samples.jsonl";

/// The maximum size of `run.json`, in bytes.
const MAX_RECORD: u64 = machine::file::MAX_WHOLE_BYTES;
/// The maximum length of a line of `samples.jsonl`, in bytes.
pub(crate) const MAX_LINE: u64 = 16 << 20;

/// Why a journal cannot be read or written, in one line.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// A system call failed.
    #[error("{}: {error}; {remedy}", path.display())]
    System {
        /// The file or folder.
        path: PathBuf,
        /// The error.
        error: std::io::Error,
        /// The remedy.
        remedy: &'static str,
    },
    /// Another run writes to the folder.
    #[error("{}: another run writes here; wait for it to end, or use --fresh", .0.display())]
    Locked(PathBuf),
    /// Another version of the program wrote it.
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
    /// A line or file is damaged.
    #[error("{}: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The damage, where it is, and the remedy.
        what: String,
    },
    /// The folder of one run was given as the folder of all runs.
    #[error("{}: this is the folder of one run; give the folder of all runs with --results", .0.display())]
    IsRun(PathBuf),
    /// There is no run.
    #[error("{}: no run here; measure first with 'tollgate run'", .0.display())]
    NoRun(PathBuf),
}

/// The remedy for an unusable file of a run.
const UNREADABLE: &str =
    "make it a regular file with read and write permission, or measure again with --fresh";

fn system(path: &Path, remedy: &'static str) -> impl FnOnce(std::io::Error) -> JournalError {
    move |error| JournalError::System { path: path.into(), error, remedy }
}
