//! Reading a journal into what estimates need, in memory that does not grow with its number of samples.
//!
//! Each line is reduced as it is read: to the metric of its experiment, its clocks and its covariates. Of long runs only
//! every second round is kept, then every fourth, and so on, so that the kept rounds cover the whole time of the run.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::journal::{JournalError, MAX_LINE, RunRecord, SAMPLES};
use crate::measure::{CAPPED, LIMITED};
use crate::metric::RESOLUTION;
use crate::point::{Level, Point};
use crate::proximity::{ROUND_TRIP, SIBLINGS};
use crate::run::is_lab_experiment;
use crate::sample::{Clock, Failure, FailureKind, Sample};
use crate::terminal;

/// Maximum number of rounds of a point that are kept.
pub(super) const MAX_ROUNDS: usize = 256;
/// Covariates that estimates depend on.
const COVARIATES: [&str; 4] = [ROUND_TRIP, SIBLINGS, CAPPED, LIMITED];
/// How far in the future a sample may be, in seconds: clocks of hosts differ. Such a run would be the newest for ever.
const MAX_AHEAD: f64 = 86400.0;
/// Number of lines between two looks at whether the reading was cancelled.
const CANCEL_INTERVAL: u64 = 1024;

/// A journal, reduced.
pub(super) struct Reduced {
    /// Its run record.
    pub(super) record: RunRecord,
    /// Samples by the host that measured them: of each experiment and environment in the order of its rounds, and the
    /// environment that measured last in the end.
    pub(super) hosts: BTreeMap<String, Vec<Sample>>,
    /// Number of lines.
    pub(super) lines: u64,
}

/// The fields of a line that are read; the others are skipped.
#[derive(Deserialize)]
struct Line {
    experiment: String,
    point: Point,
    #[serde(default)]
    twin: bool,
    round: u32,
    session: u32,
    host: String,
    environment: String,
    attempt: u32,
    at: f64,
    #[serde(default)]
    values: BTreeMap<String, f64>,
    #[serde(default)]
    clock: Option<Clock>,
    #[serde(default)]
    covariates: BTreeMap<String, Level>,
    #[serde(default)]
    void: Option<IgnoredAny>,
    #[serde(default)]
    error: Option<ErrorLine>,
}

#[derive(Deserialize)]
struct ErrorLine {
    kind: FailureKind,
}

impl Line {
    /// Returns the sample with those values that an estimate of the experiment's metric needs.
    fn sample(self, record: &RunRecord) -> Result<Sample, String> {
        let metric = record.experiments.get(&self.experiment).map(|one| one.metric.as_str());
        let time = metric.and_then(|metric| record.metric(&self.experiment, metric));
        let time = time.and_then(|record| record.rate_of.as_deref());
        let needed = [metric, time, Some(RESOLUTION)];
        let (mut values, mut covariates) = (self.values, self.covariates);
        values.retain(|name, _| needed.contains(&Some(name)));
        covariates.retain(|name, _| COVARIATES.contains(&name.as_str()));
        let sample = Sample {
            experiment: self.experiment,
            point: self.point,
            twin: self.twin,
            round: self.round,
            session: self.session,
            host: self.host,
            environment: self.environment,
            attempt: self.attempt,
            at: self.at,
            values,
            clock: self.clock,
            covariates,
            void: self.void.map(|_| String::new()),
            error: self.error.map(|error| Failure::new(error.kind, String::new())),
            ..Sample::default()
        };
        sample.check_ranges()?;
        match (1..=record.last_session()).contains(&sample.session) {
            true => Ok(sample),
            false => Err(format!("'session' is {} of {}", sample.session, record.last_session())),
        }
    }
}

/// Samples of one experiment in one environment of a host.
struct Group {
    host: String,
    experiment: String,
    environment: String,
    /// Rounds whose number is a multiple of it are kept.
    stride: u32,
    /// Number of its last line.
    last: u64,
    items: BTreeMap<(Point, bool), BTreeMap<u32, Sample>>,
}

impl Group {
    fn is_of(&self, sample: &Sample) -> bool {
        self.experiment == sample.experiment
            && self.environment == sample.environment
            && self.host == sample.host
    }

    /// Adds a sample: the last one of each round counts.
    fn add(&mut self, sample: Sample) {
        if !sample.round.is_multiple_of(self.stride) {
            return;
        }
        let rounds = self.items.entry((sample.point.clone(), sample.twin)).or_default();
        rounds.insert(sample.round, sample);
        if rounds.len() > MAX_ROUNDS {
            // The same for all points, so that their rounds still pair.
            self.stride = self.stride.saturating_mul(2);
            let stride = self.stride;
            let all = self.items.values_mut();
            all.for_each(|rounds| rounds.retain(|round, _| round.is_multiple_of(stride)));
        }
    }

    fn into_samples(self) -> impl Iterator<Item = Sample> {
        // Samples of a point share its levels.
        self.items.into_iter().flat_map(|((point, _), rounds)| {
            rounds.into_values().map(move |sample| Sample { point: point.clone(), ..sample })
        })
    }
}

/// Reads a journal, until `is_cancelled` is set. An incomplete last line is ignored, because its sample was in flight.
///
/// # Errors
/// Returns an error if the run has another format or is damaged.
pub(super) fn read(folder: &Path, is_cancelled: &AtomicBool) -> Result<Reduced, JournalError> {
    // First, because a session that starts concurrently adds itself to the record before its samples.
    let path = folder.join(SAMPLES);
    let opened = machine::file::open(&path);
    let mut record = RunRecord::read(folder)?;
    let file = match opened {
        Ok(file) => file,
        Err(why) if why.kind() == ErrorKind::NotFound => {
            return Ok(Reduced { record, hosts: BTreeMap::new(), lines: 0 });
        }
        Err(why) => return Err(unreadable(&path, why)),
    };
    let mut groups = Groups::default();
    let latest = seconds_since_1970() + MAX_AHEAD;
    let lines = each_line(&path, file, is_cancelled, |number, line| {
        let line: Line = serde_json::from_slice(line).map_err(|why| why.to_string())?;
        if line.session > record.last_session() {
            record = RunRecord::read(folder).map_err(|why| why.to_string())?;
        }
        let sample = line.sample(&record)?;
        if sample.at > latest {
            return Err("'at' is in the future; set the clock of its host".into());
        }
        if !is_lab_experiment(&sample.experiment) {
            groups.add(number, sample);
        }
        Ok(())
    })?;
    let mut hosts: BTreeMap<String, Vec<Sample>> = BTreeMap::new();
    let mut groups = groups.all;
    groups.sort_by_key(|group| group.last);
    for group in groups {
        hosts.entry(group.host.clone()).or_default().extend(group.into_samples());
    }
    Ok(Reduced { record, hosts, lines })
}

/// All groups, with their indices by host, experiment and environment.
#[derive(Default)]
struct Groups {
    all: Vec<Group>,
    indices: HashMap<[String; 3], usize>,
    /// Index of the group of the last sample: samples of an experiment mostly follow each other.
    last: usize,
}

impl Groups {
    /// Adds a sample to its group.
    fn add(&mut self, number: u64, sample: Sample) {
        if !self.all.get(self.last).is_some_and(|group| group.is_of(&sample)) {
            let key = [&sample.host, &sample.experiment, &sample.environment].map(Clone::clone);
            self.last = *self.indices.entry(key).or_insert(self.all.len());
        }
        if self.last == self.all.len() {
            self.all.push(Group {
                host: sample.host.clone(),
                experiment: sample.experiment.clone(),
                environment: sample.environment.clone(),
                stride: 1,
                last: number,
                items: BTreeMap::new(),
            });
        }
        let group = &mut self.all[self.last];
        group.last = number;
        group.add(sample);
    }
}

/// Returns the time now.
fn seconds_since_1970() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

/// Passes each complete line to `each`, which may refuse it; returns their number.
fn each_line(
    path: &Path,
    file: File,
    is_cancelled: &AtomicBool,
    mut each: impl FnMut(u64, &[u8]) -> Result<(), String>,
) -> Result<u64, JournalError> {
    let mut reader = BufReader::with_capacity(1 << 16, file);
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let read = reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line);
        let read = read.map_err(|why| unreadable(path, why))? as u64;
        let is_complete = line.last() == Some(&b'\n');
        if read == 0 || (!is_complete && read < MAX_LINE) {
            return Ok(number - 1);
        }
        let result = match is_complete {
            true => each(number, &line),
            false => Err(format!("longer than {MAX_LINE} bytes")),
        };
        result.map_err(|why| damaged(path, number, &why))?;
        if number.is_multiple_of(CANCEL_INTERVAL) && is_cancelled.load(Ordering::Relaxed) {
            return Ok(number);
        }
    }
    Ok(0)
}

fn unreadable(path: &Path, error: std::io::Error) -> JournalError {
    let remedy = "make it a regular file with read permission, or remove the run";
    JournalError::System { path: path.into(), error, remedy }
}

fn damaged(path: &Path, number: u64, why: &str) -> JournalError {
    let why = terminal::one_line(why);
    let what =
        format!("line {number} is not a sample ({why}); restore the file, or remove the run");
    JournalError::Damaged { path: path.into(), what }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_new_host_on_every_line_takes_no_longer_than_one() {
        let mut groups = Groups::default();
        let start = Instant::now();
        for number in 0..200_000_u64 {
            // Each host twice, not in succession.
            let host = format!("h{}", number % 100_000);
            groups.add(number, Sample { host, ..Sample::default() });
        }
        assert_eq!(groups.all.len(), 100_000);
        assert!(groups.all.iter().all(|group| group.last >= 100_000));
        assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
    }
}
