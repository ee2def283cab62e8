//! Writing a journal, which one lab at a time may do.

use std::collections::{HashMap, HashSet};
use std::fs::{File, TryLockError};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::read::each_line;
use super::written::{Key, Lines, key_of};
use super::{JournalError, RunRecord, SAMPLES, UNREADABLE, system};
use crate::point::Point;
use crate::sample::{FailureKind, Item, Sample};

/// A locked journal that is open for writing.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    length: u64,
    /// The run record; written by [`Journal::save_record`].
    pub record: RunRecord,
    settled: HashMap<Key, Vec<(u32, Settled)>>,
    /// Points that a session found unavailable; with the session in place of the round.
    unavailable: HashSet<Key>,
    voids: HashMap<Key, Voids>,
    lines: Lines,
}

/// The void attempts at an item in one environment, over all rounds and sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Voids {
    /// The number of attempts.
    pub attempts: u32,
    /// The cause of the last.
    pub cause: String,
    /// Whether the journal has an error of kind `Void` for the item.
    pub is_reported: bool,
}

/// The final sample of an item in a round of a session.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Settled {
    /// The value of the experiment's metric, in the metric's unit.
    Value(f64),
    /// A valid sample without a value of the experiment's metric.
    NoValue,
    /// A void sample after the last attempt.
    Void,
    /// A fault.
    Failed,
}

/// Returns the key of an item in a round and environment.
fn key(experiment: &str, item: (&Point, bool), round: u32, environment: &str) -> Key {
    let (point, twin) = item;
    key_of(&format!("{experiment}\n{point}\n{twin}\n{round}\n{environment}"))
}

impl Journal {
    /// Opens the journal in a folder for writing and removes an incomplete last line.
    ///
    /// # Errors
    /// Returns an error if another lab has it open, it has another format or is damaged, or a system call fails.
    pub fn open(folder: &Path, new: impl FnOnce() -> RunRecord) -> Result<Self, JournalError> {
        let path = folder.join(SAMPLES);
        let remedy = "free space or choose another folder with --results";
        let failed = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::StorageFull => system(&path, remedy)(error),
            _ => system(&path, UNREADABLE)(error),
        };
        let file = machine::file::append(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(JournalError::Locked(folder.into())),
            Err(TryLockError::Error(e)) => return Err(system(&path, "use a local disk")(e)),
        }
        let record = match RunRecord::read(folder) {
            Err(JournalError::NoRun(_)) => {
                if file.metadata().map_err(system(&path, remedy))?.len() > 0 {
                    let what = "its run.json is missing; restore it, or measure again with --fresh";
                    return Err(JournalError::Damaged { path, what: what.into() });
                }
                let record = new();
                record.write(folder)?;
                record
            }
            other => other?,
        };
        let mut journal = Self {
            path,
            file,
            length: 0,
            record,
            settled: HashMap::new(),
            unavailable: HashSet::new(),
            voids: HashMap::new(),
            lines: Lines::default(),
        };
        journal.recover()?;
        Ok(journal)
    }

    /// Checks that no other lab has the journal in a folder open, if there is one.
    ///
    /// # Errors
    /// Returns [`JournalError::Locked`] if one has.
    pub(crate) fn check_unlocked(folder: &Path) -> Result<(), JournalError> {
        // Other errors are those of `open`, with their remedies.
        let file = machine::file::open(&folder.join(SAMPLES));
        match file.map(|file| file.try_lock()) {
            Ok(Err(TryLockError::WouldBlock)) => Err(JournalError::Locked(folder.into())),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Reads all complete lines and removes an incomplete last line.
    fn recover(&mut self) -> Result<(), JournalError> {
        let mut reading = self.file.try_clone().map_err(system(&self.path, UNREADABLE))?;
        reading.seek(SeekFrom::Start(0)).map_err(system(&self.path, UNREADABLE))?;
        let path = self.path.clone();
        let mut lines = Lines::default();
        let whole = each_line(&path, reading, &mut lines, |sample| {
            self.record.check_session(&sample)?;
            self.remember(&sample);
            Ok(())
        })?;
        // Truncation changes the time of modification even if it removes nothing.
        if self.file.metadata().map_err(system(&self.path, UNREADABLE))?.len() > whole {
            self.file.set_len(whole).map_err(system(&self.path, UNREADABLE))?;
        }
        (self.length, self.lines) = (whole, lines);
        // A session that was killed did not record its lines.
        self.record_lines();
        Ok(())
    }

    /// Sets the lines in the record of each session that has none.
    fn record_lines(&mut self) {
        for (session, record) in (1..).zip(&mut self.record.sessions) {
            record.written.get_or_insert_with(|| self.lines.of(session));
        }
    }

    /// Ends the last session: flushes all samples to disk and records its lines.
    ///
    /// # Errors
    /// Returns an error if a system call fails.
    pub fn end_session(&mut self) -> Result<(), JournalError> {
        self.sync()?;
        self.record_lines();
        self.save_record()
    }

    fn remember(&mut self, sample: &Sample) {
        let item = (&sample.point, sample.twin);
        let all_rounds = key(&sample.experiment, item, u32::MAX, &sample.environment);
        if let Some(cause) = &sample.void {
            let voids = self.voids.entry(all_rounds).or_default();
            voids.attempts = voids.attempts.saturating_add(1);
            voids.cause.clone_from(cause);
        }
        if !sample.is_final() {
            return;
        }
        let failure = sample.error.as_ref().map(|error| error.kind);
        match failure {
            Some(FailureKind::Void) => {
                self.voids.entry(all_rounds).or_default().is_reported = true;
                return;
            }
            Some(kind) if !kind.is_fault() => {
                let item = (&sample.point, false);
                let key = key(&sample.experiment, item, sample.session, &sample.environment);
                self.unavailable.insert(key);
                return;
            }
            _ => {}
        }
        let value = self
            .record
            .experiments
            .get(&sample.experiment)
            .and_then(|experiment| sample.values.get(&experiment.metric));
        let settled = match value {
            _ if failure.is_some() => Settled::Failed,
            _ if sample.void.is_some() => Settled::Void,
            Some(value) => Settled::Value(*value),
            None => Settled::NoValue,
        };
        let key = key(&sample.experiment, item, sample.round, &sample.environment);
        let by_session = self.settled.entry(key).or_default();
        by_session.retain(|(session, _)| *session != sample.session);
        by_session.push((sample.session, settled));
    }

    /// Appends a sample as one line. If the disk is full, the incomplete line is removed.
    ///
    /// # Errors
    /// Returns an error if a system call fails.
    pub fn append(&mut self, sample: &Sample) -> Result<(), JournalError> {
        let mut line = serde_json::to_vec(sample).map_err(|e| JournalError::Damaged {
            path: self.path.clone(),
            what: format!("a sample cannot be written as JSON: {e}"),
        })?;
        line.push(b'\n');
        let key = self.lines.key_of_new(sample).map_err(|why| JournalError::Damaged {
            path: self.path.clone(),
            what: format!("a sample is not written: {why}; report this fault"),
        })?;
        if let Err(error) = self.file.write_all(&line) {
            let _ = self.file.set_len(self.length);
            let remedy = "the samples before this one are kept: free space and run again";
            return Err(system(&self.path, remedy)(error));
        }
        self.length += line.len() as u64;
        self.lines.add(key, sample.session, &line);
        self.remember(sample);
        Ok(())
    }

    /// Flushes all samples to disk.
    ///
    /// # Errors
    /// Returns an error if a system call fails.
    pub fn sync(&self) -> Result<(), JournalError> {
        self.file.sync_data().map_err(system(&self.path, "check the disk and run again"))
    }

    /// Replaces `run.json`.
    ///
    /// # Errors
    /// Returns an error if a system call fails.
    pub fn save_record(&self) -> Result<(), JournalError> {
        self.record.write(self.folder())
    }

    /// Returns the run's folder.
    pub fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("."))
    }

    /// Returns the number of samples in the journal.
    pub fn lines(&self) -> u64 {
        self.lines.count()
    }

    /// Returns the void attempts at an item in an environment; `None` if there were none.
    pub fn voids(&self, experiment: &str, item: &Item, environment: &str) -> Option<&Voids> {
        self.voids.get(&key(experiment, (&item.point, item.twin), u32::MAX, environment))
    }

    /// Returns the final samples of an item in a round and environment, each with the number of its session; the one
    /// that counts is the last.
    pub fn settled(
        &self,
        experiment: &str,
        item: &Item,
        round: u32,
        environment: &str,
    ) -> &[(u32, Settled)] {
        let key = key(experiment, (&item.point, item.twin), round, environment);
        self.settled.get(&key).map_or(&[], Vec::as_slice)
    }

    /// Returns whether a session found that a point cannot be measured in an environment.
    pub fn is_unavailable(
        &self,
        experiment: &str,
        point: &Point,
        session: u32,
        environment: &str,
    ) -> bool {
        self.unavailable.contains(&key(experiment, (point, false), session, environment))
    }
}
