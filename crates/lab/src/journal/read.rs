//! Reading a journal, without side effects.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};

use super::{JournalError, MAX_LINE, RunRecord, SAMPLES, SessionRecord, UNREADABLE, system};
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

impl Run {
    /// Returns one line per session whose number of samples differs from what it wrote: lines were deleted or added, and
    /// the values and verdicts may depend on which.
    pub fn line_warnings(&self) -> Vec<String> {
        let mut lines: HashMap<u32, u64> = HashMap::new();
        for sample in &self.samples {
            *lines.entry(sample.session).or_default() += 1;
        }
        let changed = |(session, record): (u32, &SessionRecord)| {
            let (wrote, found) = (record.lines?, lines.get(&session).copied().unwrap_or_default());
            let file = self.folder.join(SAMPLES);
            let text = format!(
                "warning: {}: session {session} wrote {wrote} lines, and the file has {found} of it; restore the file, \
                 or measure again with --fresh",
                file.display()
            );
            (wrote != found).then_some(text)
        };
        (1..).zip(&self.record.sessions).filter_map(changed).collect()
    }
}

/// Reads a run. An incomplete last line is ignored: its sample was in flight when the lab was killed.
///
/// # Errors
/// Returns an error if the run has another format or is damaged elsewhere.
pub fn open(folder: &Path) -> Result<Run, JournalError> {
    // Samples of another format are not read.
    let before = RunRecord::read(folder)?;
    let path = folder.join(SAMPLES);
    let mut samples: Vec<Sample> = Vec::new();
    match machine::file::open(&path) {
        Ok(file) => {
            let mut points = HashSet::new();
            each_line(&path, file, |mut sample| {
                share(&mut points, &mut sample);
                samples.push(sample);
                Ok(())
            })?;
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => return Err(system(&path, UNREADABLE)(e)),
    }
    // A session that starts meanwhile is in the newer record.
    let mut record = RunRecord::read(folder)?;
    for (index, session) in record.sessions.iter_mut().enumerate() {
        // A session that ended meanwhile has lines that were not read.
        session.lines = before.sessions.get(index).and_then(|session| session.lines);
    }
    for (index, sample) in samples.iter().enumerate() {
        record.check_session(sample).map_err(|why| damaged(&path, index + 1, &why))?;
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

/// Passes each sample to `each`, which may refuse it; returns the offset of the end of the last complete line.
pub(super) fn each_line(
    path: &Path,
    file: File,
    mut each: impl FnMut(Sample) -> Result<(), String>,
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
                what: format!("line {number} is longer than {MAX_LINE} bytes; delete that line"),
            });
        }
        if read == 0 || line.last() != Some(&b'\n') {
            break;
        }
        let sample = serde_json::from_slice::<Sample>(&line).map_err(|why| why.to_string());
        let kept = sample.and_then(|sample| {
            sample.check_ranges()?;
            each(sample)
        });
        kept.map_err(|why| damaged(path, number, &why))?;
        whole += read;
    }
    Ok(whole)
}

/// Returns the error of a line that is not a sample.
fn damaged(path: &Path, line: usize, why: &str) -> JournalError {
    let why = terminal::one_line(why);
    let what = format!("line {line} is not a sample ({why}); delete that line");
    JournalError::Damaged { path: path.into(), what }
}
