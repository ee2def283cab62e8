//! Reading a journal, without side effects.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use super::written::Lines;
use super::{JournalError, MAX_LINE, MAX_RECORD, RECORD, RunRecord, SAMPLES, UNREADABLE, system};
use crate::point::Point;
use crate::run::{SESSION, is_lab_experiment};
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
    // Samples of another format are not read. What a session that ends in between wrote may not be read completely.
    let before = RunRecord::read(folder)?;
    let read = read_samples(folder, Samples::read)?;
    // A session that starts in between is in the newer record.
    let record = RunRecord::read(folder)?;
    read.of(folder, record, &before)
}

/// Passes each of some experiments to `each`, with a run that has only its samples, and those of the lab itself, without
/// histograms and trials. That is all that verdicts on the experiment need, and a lab that measures has little memory. The
/// lines are not compared with what the sessions wrote.
///
/// # Errors
/// See [`open`].
pub fn each_experiment<'e>(
    folder: &Path,
    experiments: impl IntoIterator<Item = &'e str>,
    mut each: impl FnMut(&'e str, &Run),
) -> Result<(), JournalError> {
    let record = RunRecord::read(folder)?;
    let mut run =
        Run { folder: folder.into(), record, samples: Vec::new(), inconsistencies: Vec::new() };
    let places = read_samples(folder, |path, file| Places::of(path, file).map(Some))?;
    for experiment in experiments {
        run.samples = match &places {
            Some(places) => places.samples_of(experiment, &run.record)?,
            None => Vec::new(),
        };
        each(experiment, &run);
    }
    Ok(())
}

/// Where the lines of each experiment are in a file of samples.
struct Places {
    path: PathBuf,
    file: File,
    lines: HashMap<String, Vec<Place>>,
}

/// A line of a file: its number, its offset and its length in bytes.
struct Place {
    number: usize,
    offset: u64,
    length: usize,
}

impl Places {
    fn of(path: &Path, file: File) -> Result<Self, JournalError> {
        let mut lines: HashMap<String, Vec<Place>> = HashMap::new();
        let mut offset = 0;
        let reader = file.try_clone().map_err(system(path, UNREADABLE))?;
        complete_lines(path, reader, RESTORE, |number, line| {
            let place = Place { number, offset, length: line.len() };
            offset += line.len() as u64;
            let experiment = match first_field(line) {
                Some(experiment) => experiment,
                None => &parse(line).map_err(|why| damaged(path, number, &why))?.experiment,
            };
            match lines.get_mut(experiment) {
                Some(places) => places.push(place),
                None => {
                    lines.insert(experiment.into(), vec![place]);
                }
            }
            Ok(())
        })?;
        Ok(Self { path: path.into(), file, lines })
    }

    /// Reads the samples of an experiment and of the lab itself.
    fn samples_of(
        &self,
        experiment: &str,
        record: &RunRecord,
    ) -> Result<Vec<Sample>, JournalError> {
        let of = |id: &str| self.lines.get(id).map_or(&[][..], Vec::as_slice);
        let of_lab = if is_lab_experiment(experiment) { &[][..] } else { of(SESSION) };
        let (mut points, mut line) = (HashSet::new(), Vec::new());
        let read = |place: &Place| {
            line.resize(place.length, 0);
            self.file
                .read_exact_at(&mut line, place.offset)
                .map_err(system(&self.path, UNREADABLE))?;
            let sample = parse(&line).and_then(|sample| {
                record.check_session(&sample)?;
                Ok(sample)
            });
            let mut sample = sample.map_err(|why| damaged(&self.path, place.number, &why))?;
            share(&mut points, &mut sample);
            (sample.histograms, sample.trials) = Default::default();
            Ok(sample)
        };
        let places = of(experiment);
        // A vector that grows takes twice the memory while it is copied.
        let mut samples = Vec::with_capacity(places.len() + of_lab.len());
        for sample in places.iter().chain(of_lab).map(read) {
            samples.push(sample?);
        }
        Ok(samples)
    }
}

/// Returns the experiment of a line as tollgate writes it, with the experiment first.
fn first_field(line: &[u8]) -> Option<&str> {
    let id = line.strip_prefix(br#"{"experiment":""#)?;
    let end = id.iter().position(|byte| *byte == b'"')?;
    let id = std::str::from_utf8(&id[..end]).ok()?;
    (!id.contains('\\')).then_some(id)
}

/// Reads the file of samples of a run; no samples if it does not exist yet.
fn read_samples<T: Default>(
    folder: &Path,
    read: impl FnOnce(&Path, File) -> Result<T, JournalError>,
) -> Result<T, JournalError> {
    let path = folder.join(SAMPLES);
    match machine::file::open(&path) {
        Ok(file) => read(&path, file),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(T::default()),
        Err(e) => Err(system(&path, UNREADABLE)(e)),
    }
}

/// Reads a run from its two files, which are not in a folder. `path` is their place for people.
///
/// # Errors
/// See [`open`].
pub fn open_files(path: &Path, record: File, samples: File) -> Result<Run, JournalError> {
    let place = path.join(RECORD);
    let mut text = Vec::new();
    let read = record.take(MAX_RECORD.saturating_add(1)).read_to_end(&mut text);
    let read = read.map_err(system(&place, UNREADABLE))?;
    if read as u64 > MAX_RECORD {
        let what = "larger than a run record may be; get it again".into();
        return Err(JournalError::Damaged { path: place, what });
    }
    let record = RunRecord::parse(place, &text)?;
    let before = record.clone();
    Samples::read(&path.join(SAMPLES), samples)?.of(path, record, &before)
}

/// Samples as read, with the lines of their sessions.
#[derive(Default)]
struct Samples {
    samples: Vec<Sample>,
    lines: Lines,
}

impl Samples {
    fn read(path: &Path, file: File) -> Result<Self, JournalError> {
        let (mut read, mut points) = (Self::default(), HashSet::new());
        each_line(path, file, &mut read.lines, |mut sample| {
            share(&mut points, &mut sample);
            read.samples.push(sample);
            Ok(())
        })?;
        Ok(read)
    }

    /// Joins the samples with their record. `before` is the record that was read before the samples.
    fn of(self, folder: &Path, record: RunRecord, before: &RunRecord) -> Result<Run, JournalError> {
        let Self { samples, lines } = self;
        for (index, sample) in samples.iter().enumerate() {
            let path = folder.join(SAMPLES);
            record.check_session(sample).map_err(|why| damaged(&path, index + 1, &why))?;
        }
        let name = |line: &String| format!("{}: {line}", folder.display());
        let inconsistencies = lines.inconsistencies(before).iter().map(name).collect();
        Ok(Run { folder: folder.into(), record, samples, inconsistencies })
    }
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
        let kept = parse(line).and_then(|sample| {
            lines.add(lines.key_of_new(&sample)?, sample.session, line);
            each(sample)
        });
        kept.map_err(|why| damaged(path, number, &why))
    })
}

/// Returns the sample of a line.
fn parse(line: &[u8]) -> Result<Sample, String> {
    let sample: Sample = serde_json::from_slice(line).map_err(|why| why.to_string())?;
    sample.check_ranges()?;
    Ok(sample)
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
