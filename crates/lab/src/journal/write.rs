//! Writing a journal: one lab, one journal.

use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::read::each_line;
use super::{JournalError, RunRecord, SAMPLES, UNREADABLE, system};
use crate::point::Point;
use crate::sample::{FailureKind, Item, Sample};

/// A journal open for writing, and locked.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    length: u64,
    /// What the samples share; written anew by [`Journal::save_record`].
    pub record: RunRecord,
    settled: HashMap<Key, Settled>,
    voids: HashMap<Key, Voids>,
    lines: u64,
}

/// The void tries of an item in one environment, over all rounds and sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Voids {
    /// How many there were.
    pub attempts: u32,
    /// Why the last was void.
    pub cause: String,
    /// Whether an error row says so already.
    pub is_reported: bool,
}

/// What stands in the journal for an item in a round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Settled {
    /// The value of the experiment's metric, in the metric's unit.
    Value(f64),
    /// A sample that counts, without a value of the experiment's metric.
    NoValue,
    /// The last try was void.
    Void,
}

/// What is not measured again, as a hash of experiment, item, round and environment: a long run has
/// many, and the lab must stay small.
type Key = u128;

fn key(experiment: &str, item: (&Point, bool), round: u32, environment: &str) -> Key {
    let (point, twin) = item;
    let text = format!("{experiment}\n{point}\n{twin}\n{round}\n{environment}");
    let hash = blake3::hash(text.as_bytes());
    u128::from_le_bytes(std::array::from_fn(|at| hash.as_bytes()[at]))
}

impl Journal {
    /// Opens the journal of a folder for writing; cuts off a last line that is not whole.
    ///
    /// # Errors
    /// When another lab writes there, when it has another format or is damaged, or when the system refuses.
    pub fn open(folder: &Path, new: impl FnOnce() -> RunRecord) -> Result<Self, JournalError> {
        let path = folder.join(SAMPLES);
        let remedy = "free space or choose another folder with --results";
        let unlike = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::StorageFull => system(&path, remedy)(error),
            _ => system(&path, UNREADABLE)(error),
        };
        let file = machine::file::append(&path).map_err(unlike)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(JournalError::Locked(folder.into())),
            Err(TryLockError::Error(e)) => return Err(system(&path, "use a local disk")(e)),
        }
        let record = match RunRecord::read(folder) {
            Err(JournalError::NoRun(_)) => {
                if file.metadata().map_err(system(&path, remedy))?.len() > 0 {
                    let what = "its run.json is gone; restore it, or measure again with --fresh";
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
            voids: HashMap::new(),
            lines: 0,
        };
        journal.recover()?;
        Ok(journal)
    }

    /// Reads what is there and cuts off what is not whole.
    fn recover(&mut self) -> Result<(), JournalError> {
        let mut reading = self.file.try_clone().map_err(system(&self.path, UNREADABLE))?;
        reading.seek(SeekFrom::Start(0)).map_err(system(&self.path, UNREADABLE))?;
        let path = self.path.clone();
        let whole = each_line(&path, reading, |sample, _| self.remember(&sample))?;
        self.file.set_len(whole).map_err(system(&self.path, UNREADABLE))?;
        self.length = whole;
        Ok(())
    }

    fn remember(&mut self, sample: &Sample) {
        self.lines += 1;
        let item = (&sample.point, sample.twin);
        let all_rounds = key(&sample.experiment, item, u32::MAX, &sample.environment);
        if let Some(cause) = &sample.void {
            let voids = self.voids.entry(all_rounds).or_default();
            voids.attempts = voids.attempts.saturating_add(1);
            voids.cause.clone_from(cause);
        } else if sample.error.as_ref().is_some_and(|error| error.kind == FailureKind::Void) {
            self.voids.entry(all_rounds).or_default().is_reported = true;
        }
        if !sample.is_complete() {
            return;
        }
        let value = self
            .record
            .experiments
            .get(&sample.experiment)
            .and_then(|experiment| sample.values.get(&experiment.metric));
        let settled = match value {
            _ if !sample.is_valid() => Settled::Void,
            Some(value) => Settled::Value(*value),
            None => Settled::NoValue,
        };
        let key = key(&sample.experiment, item, sample.round, &sample.environment);
        self.settled.insert(key, settled);
    }

    /// Appends a sample as one whole line. When the disk is full, what was written of the line is
    /// taken back, so that the journal stays whole.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn append(&mut self, sample: &Sample) -> Result<(), JournalError> {
        let mut line = serde_json::to_vec(sample).map_err(|e| JournalError::Damaged {
            path: self.path.clone(),
            what: format!("a sample cannot be written as JSON: {e}"),
        })?;
        line.push(b'\n');
        if let Err(error) = self.file.write_all(&line) {
            let _ = self.file.set_len(self.length);
            let remedy = "nothing measured is lost: free space and run again";
            return Err(system(&self.path, remedy)(error));
        }
        self.length += line.len() as u64;
        self.remember(sample);
        Ok(())
    }

    /// Sees to it that all that was appended is on disk.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn sync(&self) -> Result<(), JournalError> {
        self.file.sync_data().map_err(system(&self.path, "check the disk and run again"))
    }

    /// Writes `run.json` anew.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn save_record(&self) -> Result<(), JournalError> {
        self.record.write(self.folder())
    }

    /// The run's folder.
    pub fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("."))
    }

    /// How many lines the journal holds.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// The void tries of an item in an environment; none where there were none.
    pub fn voids(&self, experiment: &str, item: &Item, environment: &str) -> Option<&Voids> {
        self.voids.get(&key(experiment, (&item.point, item.twin), u32::MAX, environment))
    }

    /// What stands for an item in a round and environment: nothing where it is still to be measured.
    pub fn settled(
        &self,
        experiment: &str,
        item: &Item,
        round: u32,
        environment: &str,
    ) -> Option<Settled> {
        let key = key(experiment, (&item.point, item.twin), round, environment);
        self.settled.get(&key).copied()
    }
}
