//! Exports: the samples of runs as CSV, JSON or Parquet, one row a sample, nothing left out.
//!
//! CSV and Parquet hold the same columns; JSON keeps the structure of the journal.

mod cell;
mod column;
mod csv;
mod json;
mod parquet;

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use lab::journal::Run;
use lab::sample::Sample;
use machine::file::Output;

/// The form of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Comma-separated, with a header.
    Csv,
    /// One object: the runs' records and their samples.
    Json,
    /// Typed columns, compressed.
    Parquet,
}

impl Format {
    /// The formats by the words of the command line, which are the files' endings too.
    pub const ALL: [(&'static str, Self); 3] =
        [("csv", Self::Csv), ("json", Self::Json), ("parquet", Self::Parquet)];

    /// The format of a word: `csv`, `json`, `parquet`.
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(name, _)| *name == word).map(|(_, format)| *format)
    }
}

/// Why nothing, or not all, was exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// No sample is wanted.
    #[error("no sample to export; 'tollgate list' names what can be measured")]
    Nothing,
    /// The file cannot be made or written.
    #[error("{}: {why}; {}", path.display(), machine::file::remedy(why))]
    File {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        why: std::io::Error,
    },
    /// What reads the export went away, or the disk is full.
    #[error("the export broke off: {0}; {remedy}", remedy = machine::file::remedy(.0))]
    Write(#[from] std::io::Error),
    /// The format cannot hold it.
    #[error("the export broke off: {0}; export as json instead")]
    Encode(String),
}

/// Which samples are exported.
pub type Wanted<'a> = &'a dyn Fn(&Sample) -> bool;

/// Writes the wanted samples of some runs, row by row (Parquet: some thousand rows at a time).
///
/// # Errors
/// When there are none, or when `out` does not take them.
pub fn write(
    runs: &[Run],
    wanted: Wanted<'_>,
    format: Format,
    out: &mut (dyn Write + Send),
) -> Result<(), ExportError> {
    if rows(runs, wanted).next().is_none() {
        return Err(ExportError::Nothing);
    }
    match format {
        Format::Csv => csv::write(runs, wanted, out),
        Format::Json => json::write(runs, wanted, out),
        Format::Parquet => parquet::write(runs, wanted, out),
    }
}

/// Writes the wanted samples into a file, as a whole or not at all. `create` opens it: [`Output::create`]
/// for a path that a user named, [`Output::replace`] in a results folder.
///
/// # Errors
/// When there are none, or when the file cannot be written.
pub fn to_file(
    runs: &[Run],
    wanted: Wanted<'_>,
    format: Format,
    path: &Path,
    create: impl FnOnce(&Path) -> std::io::Result<Output>,
) -> Result<(), ExportError> {
    let fault = |why: std::io::Error| ExportError::File { path: path.into(), why };
    let mut out = create(path).map_err(fault)?;
    let written = write(runs, wanted, format, &mut out).and_then(|()| Ok(out.finish()?));
    match written {
        // Who reads a FIFO or standard output may have seen enough; the caller decides.
        Err(ExportError::Write(e)) if e.kind() == ErrorKind::BrokenPipe => {
            Err(ExportError::Write(e))
        }
        Err(ExportError::Write(e)) => Err(fault(e)),
        other => other,
    }
}

/// The wanted samples with the name of their run.
fn rows<'a>(runs: &'a [Run], wanted: Wanted<'a>) -> impl Iterator<Item = cell::Row<'a>> + Clone {
    runs.iter().flat_map(move |run| {
        run.samples
            .iter()
            .filter(move |sample| wanted(sample))
            .map(move |sample| cell::Row { run: &run.record.name, sample })
    })
}
