//! `run.json`: the run record, with what all samples of a run share.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use machine::environment::Environment;
use machine::file;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{JournalError, MAX_RECORD, RECORD, UNREADABLE, Written, system};
use crate::experiment::{Experiment, Profile, suite_name};
use crate::guest::GuestsRecord;
use crate::host::HostRecord;
use crate::metric::MetricRecord;
use crate::sample::Sample;
use crate::side::SideRecord;
use crate::terminal;

/// The version of the format that this program writes and reads.
pub const FORMAT: u64 = 16;

/// The record of a session: one start of the lab for a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionRecord {
    /// The start, in RFC 3339.
    pub start: String,
    /// The ID of the boot of the host that ran the lab.
    pub boot_id: String,
    /// The words of the command line that started it, without the program.
    pub command: Vec<String>,
    /// The lines of `samples.jsonl` that it wrote; `None` until it ends, or if it was killed until the next starts.
    pub written: Option<Written>,
    /// Rounds by experiment ID that measured only the points of claims that lacked rounds for a verdict, and those next to
    /// them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub further_rounds: BTreeMap<String, BTreeSet<u32>>,
}

impl SessionRecord {
    /// Returns the record of a session of this process that starts now.
    pub fn starting(boot_id: String) -> Self {
        let words = std::env::args_os().skip(1);
        let command = words.map(|word| word.to_string_lossy().into_owned()).collect();
        Self { start: now(), boot_id, command, written: None, further_rounds: BTreeMap::new() }
    }
}

/// Returns the time in RFC 3339.
pub(crate) fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The record of a run: what its samples share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunRecord {
    /// The version of the format.
    #[schemars(extend("const" = FORMAT))]
    pub format: u64,
    /// The version of the program.
    pub program: String,
    /// The folder's name.
    pub name: String,
    /// The host that is measured: its host name, or the name of guests or hosts on the command line.
    pub host: String,
    /// The profile.
    pub profile: Profile,
    /// The seed of all random orders and resamples.
    pub seed: u64,
    /// The start of the run, in RFC 3339.
    pub start: String,
    /// The options that have a value, set by the user (`--set NAME=VALUE`) or by default; the same for all samples.
    pub options: BTreeMap<String, String>,
    /// The nice value of the measuring processes, the same for all samples unless a side has its own.
    pub nice: i32,
    /// The code files that points load, e.g. shared objects: path to BLAKE3 digest.
    pub code: BTreeMap<String, String>,
    /// The two sides of a comparison, in the order of [`LEVELS`](crate::side::LEVELS); empty without one.
    pub sides: Vec<SideRecord>,
    /// The guests in which the run was measured; `None` for hosts.
    pub guests: Option<GuestsRecord>,
    /// The hosts on which the run was measured, with their roles; empty for the host of the lab, or guests.
    pub hosts: Vec<HostRecord>,
    /// The sessions, in order: that of a sample is at index `session - 1`.
    pub sessions: Vec<SessionRecord>,
    /// The environments of the samples, by id.
    pub environments: BTreeMap<String, Environment>,
    /// The experiments as measured, by id.
    pub experiments: BTreeMap<String, Experiment>,
    /// The metrics, by suite and name.
    pub metrics: BTreeMap<String, BTreeMap<String, MetricRecord>>,
}

impl RunRecord {
    /// Replaces the file atomically.
    ///
    /// # Errors
    /// Returns an error if the disk is full or the folder is not writable.
    pub fn write(&self, folder: &Path) -> Result<(), JournalError> {
        let path = folder.join(RECORD);
        let remedy = "free space or choose another folder with --results";
        let text = serde_json::to_vec_pretty(self).map_err(|e| JournalError::Damaged {
            path: path.clone(),
            what: format!("cannot be written as JSON: {e}"),
        })?;
        file::replace(&path, &text).map_err(system(&path, remedy))
    }

    /// Reads the file in a folder.
    ///
    /// # Errors
    /// Returns an error if there is none, it has another format, or it is damaged.
    pub fn read(folder: &Path) -> Result<Self, JournalError> {
        let path = folder.join(RECORD);
        match file::read(&path, MAX_RECORD) {
            Ok(text) => Self::parse(path, &text),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                Err(JournalError::NoRun(folder.into()))
            }
            Err(e) => Err(system(&path, UNREADABLE)(e)),
        }
    }

    /// Parses the text of a file, which errors name.
    pub(super) fn parse(path: PathBuf, text: &[u8]) -> Result<Self, JournalError> {
        let damaged = |e: &dyn std::fmt::Display| JournalError::Damaged {
            path: path.clone(),
            what: format!(
                "not a run record: {}; restore it, or measure again with --fresh",
                terminal::one_line(&e.to_string())
            ),
        };
        // The format first, because a record of another format may differ in structure.
        let value: serde_json::Value = serde_json::from_slice(text).map_err(|e| damaged(&e))?;
        match value.get("format").and_then(serde_json::Value::as_u64) {
            Some(found) if found != FORMAT => return Err(JournalError::Format { path, found }),
            Some(_) => {}
            None => return Err(damaged(&"it has no 'format'")),
        }
        serde_json::from_slice(text).map_err(|e| damaged(&e))
    }

    /// States where the run was measured, e.g. `host vm` or `guest plain, emulated by TCG`.
    pub fn place(&self) -> String {
        self.guests.as_ref().map_or_else(|| format!("host {}", self.host), GuestsRecord::to_string)
    }

    /// Returns the number of the last session, from 1; 0 without sessions.
    pub fn last_session(&self) -> u32 {
        u32::try_from(self.sessions.len()).unwrap_or(u32::MAX)
    }

    /// Checks that the record has the session of a sample.
    ///
    /// # Errors
    /// Returns one line with what is wrong.
    pub(super) fn check_session(&self, sample: &Sample) -> Result<(), String> {
        match (1..=self.last_session()).contains(&sample.session) {
            true => Ok(()),
            false => Err(format!("'session' is {} of {}", sample.session, self.last_session())),
        }
    }

    /// Returns a metric of an experiment; `None` if the record does not have it.
    pub fn metric(&self, experiment: &str, metric: &str) -> Option<&MetricRecord> {
        self.metrics.get(suite_name(experiment))?.get(metric)
    }
}
