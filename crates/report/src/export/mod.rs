//! Exports: the samples of runs as CSV, JSON or Parquet, one row per sample, with all data; and the values of a run for
//! programs that track, store or show them.
//!
//! CSV and Parquet have the same columns. JSON has the structure of the journal:
//! `{"schema_version": ..., "runs": [{"record": ..., "samples": [...]}]}`.

mod column;
mod fleet;
mod markdown;
mod openmetrics;
mod parquet;
mod tracker;
mod value;

use std::borrow::Cow;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use lab::journal::{Run, RunRecord};
use lab::sample::Sample;
use lab::schema::{JsonOutput, Versioned};
use lab::spreadsheet;
use machine::file::Output;
use schemars::JsonSchema;
use serde::Serialize;

use column::{Cell, Row};

pub use fleet::{Partitions, fleet_openmetrics, parquet_by_host};
pub use markdown::Summary;
pub use openmetrics::openmetrics;
pub use tracker::{bmf, github_action_benchmark};
pub use value::{LeftOut, Values};

/// File format of an export of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Comma-separated values with a header.
    Csv,
    /// One object with the records of the runs and their samples.
    Json,
    /// Compressed columns with types.
    Parquet,
}

/// Error of an export.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// No sample passes the filter.
    #[error("no sample to export; 'tollgate list' lists the experiments")]
    Nothing,
    /// No point has a value.
    #[error("no value to export: {}; 'tollgate show' prints the reasons", describe(.0))]
    NoValue(LeftOut),
    /// The file cannot be created or written.
    #[error("{}: {why}; {}", path.display(), machine::file::remedy(why))]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        why: std::io::Error,
    },
    /// The output cannot be written, e.g. because its reader closed it.
    #[error("the export is incomplete: {0}; {remedy}", remedy = machine::file::remedy(.0))]
    Write(#[from] std::io::Error),
    /// The format cannot represent a value.
    #[error("the export is incomplete: {0}; export as json instead")]
    Encode(String),
}

/// Describes why there is no value.
fn describe(left_out: &LeftOut) -> String {
    match left_out.to_string() {
        text if text.is_empty() => "the run has no points, or a planted clock".into(),
        text => text,
    }
}

/// Output of `tollgate export json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SamplesOutput<'a> {
    runs: Vec<ExportedRun<'a>>,
}

impl JsonOutput for SamplesOutput<'_> {
    const NAME: &'static str = "export-json";
    const WRITTEN_BY: &'static str = "tollgate export json";
    const VERSION: u64 = 2;
}

/// A run with its samples.
#[derive(Debug, Serialize, JsonSchema)]
struct ExportedRun<'a> {
    /// Content of `run.json`.
    record: &'a RunRecord,
    /// Lines of `samples.jsonl`.
    samples: Vec<&'a Sample>,
}

/// Predicate that selects the samples to export.
pub type SampleFilter<'a> = &'a dyn Fn(&Sample) -> bool;

/// Writes the selected samples of the runs, row by row (Parquet: in groups of 8192 rows).
///
/// # Errors
/// Returns an error if no sample is selected or if `out` cannot be written.
pub fn write(
    runs: &[Run],
    filter: SampleFilter<'_>,
    format: Format,
    out: &mut (dyn Write + Send),
) -> Result<(), ExportError> {
    if rows(runs, filter).next().is_none() {
        return Err(ExportError::Nothing);
    }
    match format {
        Format::Csv => write_csv(runs, filter, out),
        Format::Json => write_json(runs, filter, out),
        Format::Parquet => parquet::write(runs, filter, out),
    }
}

/// Writes the selected samples to a file, either all or none. `create` opens it: [`Output::create`]
/// for a path named by the user, [`Output::replace`] in a results folder.
///
/// # Errors
/// Returns an error if no sample is selected or if the file cannot be written.
pub fn to_file(
    runs: &[Run],
    filter: SampleFilter<'_>,
    format: Format,
    path: &Path,
    create: impl FnOnce(&Path) -> std::io::Result<Output>,
) -> Result<(), ExportError> {
    let file_error = |why: std::io::Error| ExportError::File { path: path.into(), why };
    let mut out = create(path).map_err(file_error)?;
    let written = write(runs, filter, format, &mut out).and_then(|()| Ok(out.finish()?));
    match written {
        // The reader of a FIFO may close it early; the caller decides whether that is an error.
        Err(ExportError::Write(e)) if e.kind() == ErrorKind::BrokenPipe => {
            Err(ExportError::Write(e))
        }
        Err(ExportError::Write(e)) => Err(file_error(e)),
        other => other,
    }
}

/// Returns the selected samples with the names of their runs.
fn rows<'a>(runs: &'a [Run], filter: SampleFilter<'a>) -> impl Iterator<Item = Row<'a>> + Clone {
    runs.iter().flat_map(move |run| {
        let samples = run.samples.iter().filter(move |sample| filter(sample));
        let (run, guests) = (&run.record.name, run.record.guests.as_ref());
        samples.map(move |sample| Row { run, guests, sample })
    })
}

fn write_csv(
    runs: &[Run],
    filter: SampleFilter<'_>,
    out: &mut (dyn Write + Send),
) -> Result<(), ExportError> {
    let error = |error: csv::Error| match error.into_kind() {
        csv::ErrorKind::Io(error) => ExportError::Write(error),
        other => ExportError::Encode(format!("{other:?}")),
    };
    let columns = column::columns(rows(runs, filter));
    let mut writer = csv::Writer::from_writer(out);
    let names = columns.iter().map(|column| csv_text(&Cell::Text(Cow::Borrowed(&column.name))));
    writer.write_record(names).map_err(error)?;
    for row in rows(runs, filter) {
        for column in &columns {
            let text = column.cell(&row).map(|cell| csv_text(&cell)).unwrap_or_default();
            writer.write_field(text).map_err(error)?;
        }
        writer.write_record(None::<&[u8]>).map_err(error)?;
    }
    writer.flush()?;
    Ok(())
}

/// Formats a cell; spreadsheets do not take the text for a formula.
fn csv_text(cell: &Cell<'_>) -> String {
    match cell {
        Cell::Text(text) => spreadsheet::cell(text).into_owned(),
        number => number.to_string(),
    }
}

fn write_json(
    runs: &[Run],
    filter: SampleFilter<'_>,
    out: &mut (dyn Write + Send),
) -> Result<(), ExportError> {
    let runs = runs.iter().map(|Run { record, samples, .. }| {
        let samples = samples.iter().filter(|sample| filter(sample));
        ExportedRun { record, samples: samples.collect() }
    });
    let output = SamplesOutput { runs: runs.collect() };
    serde_json::to_writer(&mut *out, &Versioned::of(&output))
        .map_err(|error| ExportError::Write(error.into()))?;
    out.write_all(b"\n")?;
    out.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_texts_are_not_formulas_and_numbers_are_unchanged() {
        let text = |text: &'static str| csv_text(&Cell::Text(text.into()));
        assert_eq!(text("=1+1"), "'=1+1");
        assert_eq!(text("-1"), "-1");
        assert_eq!(csv_text(&Cell::Float(-1.5)), "-1.5");
        assert_eq!(csv_text(&Cell::Float(f64::NEG_INFINITY)), "-inf");
    }
}
