//! Reading a journal, without side effects.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};

use super::written::Lines;
use super::{JournalError, MAX_LINE, RunRecord, SAMPLES, UNREADABLE, system};
use crate::point::Point;
use crate::sample::Sample;
use crate::terminal;

/// A run read from its folder.
#[derive(Debug, Clone)]
pub struct Run {
    /// The folder.
    pub folder: PathBuf,
    /// The run record.
    pub record: RunRecord,
    /// All samples, in the order in which they were written.
    pub samples: Vec<Sample>,
    /// Sessions whose lines are not those that they wrote, one line each.
    pub inconsistencies: Vec<String>,
}

/// Reads a run. An incomplete last line is ignored: its sample was in flight when the lab was killed.
///
/// # Errors
/// Returns an error if the run has another format or is damaged elsewhere.
pub fn open(folder: &Path) -> Result<Run, JournalError> {
    // Samples of another format are not read. What a session that ends meanwhile wrote may not be read completely.
    let before = RunRecord::read(folder)?;
    let path = folder.join(SAMPLES);
    let (mut samples, mut lines) = (Vec::<Sample>::new(), Lines::default());
    match machine::file::open(&path) {
        Ok(file) => {
            let mut points = HashSet::new();
            each_line(&path, file, &mut lines, |mut sample| {
                share(&mut points, &mut sample);
                samples.push(sample);
                Ok(())
            })?;
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => return Err(system(&path, UNREADABLE)(e)),
    }
    // A session that starts meanwhile is in the newer record.
    let record = RunRecord::read(folder)?;
    for (index, sample) in samples.iter().enumerate() {
        record.check_session(sample).map_err(|why| damaged(&path, index + 1, &why))?;
    }
    let name = |line: &String| format!("{}: {line}", folder.display());
    let inconsistencies = lines.inconsistencies(&before).iter().map(name).collect();
    Ok(Run { folder: folder.into(), record, samples, inconsistencies })
}

/// Replaces a sample's point by an equal point of an earlier sample, which saves memory.
fn share(points: &mut HashSet<Point>, sample: &mut Sample) {
    match points.get(&sample.point) {
        Some(known) => sample.point = known.clone(),
        None => {
            points.insert(sample.point.clone());
        }
    }
}

/// Adds each line to `lines` and passes its sample to `each`, which may refuse it; returns the offset of the end of the
/// last complete line.
pub(super) fn each_line(
    path: &Path,
    file: File,
    lines: &mut Lines,
    mut each: impl FnMut(Sample) -> Result<(), String>,
) -> Result<u64, JournalError> {
    complete_lines(path, file, RESTORE, |number, line| {
        let sample = serde_json::from_slice::<Sample>(line).map_err(|why| why.to_string());
        let kept = sample.and_then(|sample| {
            sample.check_ranges()?;
            lines.add(lines.key_of_new(&sample)?, sample.session, line);
            each(sample)
        });
        kept.map_err(|why| damaged(path, number, &why))
    })
}

/// Passes each line with its number to `each`; returns the offset of the end of the last complete line. An incomplete last
/// line was being written when the lab was killed. `restore` is the remedy for a line that is too long.
pub(super) fn complete_lines(
    path: &Path,
    file: File,
    restore: &str,
    mut each: impl FnMut(usize, &[u8]) -> Result<(), JournalError>,
) -> Result<u64, JournalError> {
    let mut reader = BufReader::new(file);
    let mut whole = 0;
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let read = reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line);
        let read = read.map_err(system(path, UNREADABLE))? as u64;
        if read == MAX_LINE {
            return Err(JournalError::Damaged {
                path: path.into(),
                what: format!("line {number} is longer than {MAX_LINE} bytes; {restore}"),
            });
        }
        if read == 0 || line.last() != Some(&b'\n') {
            break;
        }
        each(number, &line)?;
        whole += read;
    }
    Ok(whole)
}

/// The remedy for a damaged line.
const RESTORE: &str = "restore the file, or measure again with --fresh";

/// Returns the error of a line that is not a sample.
fn damaged(path: &Path, line: usize, why: &str) -> JournalError {
    let why = terminal::one_line(why);
    let what = format!("line {line} is not a sample ({why}); {RESTORE}");
    JournalError::Damaged { path: path.into(), what }
}
