//! Reading a journal: whoever reads never writes.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};

use super::{JournalError, MAX_LINE, RunRecord, SAMPLES, UNREADABLE, system};
use crate::point::Point;
use crate::sample::Sample;
use crate::terminal;

/// A run as it stands in its folder.
#[derive(Debug, Clone)]
pub struct Run {
    /// The folder.
    pub folder: PathBuf,
    /// What the samples share.
    pub record: RunRecord,
    /// Every sample, in the order in which it was written.
    pub samples: Vec<Sample>,
}

/// Reads a run. A last line that was cut short is passed over: its sample was under way.
///
/// # Errors
/// When the run is newer, or damaged elsewhere than in its last line.
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

/// Lets a sample share its point with those before it.
fn share(points: &mut HashSet<Point>, sample: &mut Sample) {
    match points.get(&sample.point) {
        Some(known) => sample.point = known.clone(),
        None => {
            points.insert(sample.point.clone());
        }
    }
}

/// Gives each sample with the offset behind its line, and at last the offset behind the last
/// whole line.
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
