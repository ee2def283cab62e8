//! Reading a journal, without side effects.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};

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
}

/// Reads a run. An incomplete last line is ignored: its sample was in flight when the lab was killed.
///
/// # Errors
/// Returns an error if the run has another format or is damaged elsewhere.
pub fn open(folder: &Path) -> Result<Run, JournalError> {
    let record = RunRecord::read(folder)?;
    let path = folder.join(SAMPLES);
    let mut samples = Vec::new();
    match machine::file::open(&path) {
        Ok(file) => {
            let mut points = HashSet::new();
            each_line(&path, file, |mut sample, _| {
                share(&mut points, &mut sample);
                samples.push(sample);
            })?;
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => return Err(system(&path, UNREADABLE)(e)),
    }
    Ok(Run { folder: folder.into(), record, samples })
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

/// Passes each sample to `each` with the offset of the end of its line; returns the offset of the end of the last
/// complete line.
pub(super) fn each_line(
    path: &Path,
    file: File,
    mut each: impl FnMut(Sample, u64),
) -> Result<u64, JournalError> {
    let mut reader = BufReader::new(file);
    let mut whole = 0;
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let read = reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line);
        let read = read.map_err(system(path, UNREADABLE))?;
        if read as u64 == MAX_LINE {
            return Err(JournalError::Damaged {
                path: path.into(),
                what: format!("line {number} is longer than {MAX_LINE} bytes; delete that line"),
            });
        }
        if read == 0 || line.last() != Some(&b'\n') {
            break;
        }
        match serde_json::from_slice(&line) {
            Ok(sample) => {
                whole += read as u64;
                each(sample, whole);
            }
            Err(e) => {
                return Err(JournalError::Damaged {
                    path: path.into(),
                    what: format!(
                        "line {number} is not a sample ({}); delete that line",
                        terminal::one_line(&e.to_string())
                    ),
                });
            }
        }
    }
    Ok(whole)
}
