//! `run.json`: what the samples of a run share.

use std::collections::BTreeMap;
use std::path::Path;

use machine::environment::Environment;
use machine::file;
use serde::{Deserialize, Serialize};

use super::{JournalError, MAX_RECORD, RECORD, UNREADABLE, system};
use crate::experiment::{Experiment, Profile, suite_name};
use crate::metric::MetricRecord;
use crate::terminal;

/// The format that this program writes, and the only one that it reads.
pub const FORMAT: u64 = 5;

/// What the samples of a run share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// The version of the format.
    pub format: u64,
    /// The program's version that began the run.
    pub program: String,
    /// The folder's name.
    pub name: String,
    /// The host that runs the lab.
    pub host: String,
    /// How much is measured.
    pub profile: Profile,
    /// The seed of all orders and resamples.
    pub seed: u64,
    /// When the run began, in RFC 3339.
    pub begun: String,
    /// What the user set by name (`--set NAME=VALUE`): the same for all samples.
    pub options: BTreeMap<String, String>,
    /// The nice value of the processes that measure: the same for all samples.
    pub nice: i32,
    /// The code files that points load, e.g. shared objects: path to BLAKE3 digest.
    pub code: BTreeMap<String, String>,
    /// Every environment that samples name, by id.
    pub environments: BTreeMap<String, Environment>,
    /// The experiments as run, by id.
    pub experiments: BTreeMap<String, Experiment>,
    /// The metrics, by suite and name.
    pub metrics: BTreeMap<String, BTreeMap<String, MetricRecord>>,
}

impl RunRecord {
    /// Writes the file anew: whole or not at all.
    ///
    /// # Errors
    /// When the disk is full or the folder may not be written.
    pub fn write(&self, folder: &Path) -> Result<(), JournalError> {
        let path = folder.join(RECORD);
        let remedy = "free space or choose another folder with --results";
        let text = serde_json::to_vec_pretty(self).map_err(|e| JournalError::Damaged {
            path: path.clone(),
            what: format!("cannot be written as JSON: {e}"),
        })?;
        file::replace(&path, &text).map_err(system(&path, remedy))
    }

    /// Reads the file of a folder.
    ///
    /// # Errors
    /// When there is none, when it has another format, or when it is damaged.
    pub fn read(folder: &Path) -> Result<Self, JournalError> {
        let path = folder.join(RECORD);
        let text = match file::read(&path, MAX_RECORD) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return Err(JournalError::NoRun(folder.into()));
            }
            Err(e) => return Err(system(&path, UNREADABLE)(e)),
        };
        let damaged = |e: &dyn std::fmt::Display| JournalError::Damaged {
            path: path.clone(),
            what: format!(
                "not a run record: {}; restore it, or measure again with --fresh",
                terminal::one_line(&e.to_string())
            ),
        };
        // The format first: another's record need not look like ours.
        let value: serde_json::Value = serde_json::from_slice(&text).map_err(|e| damaged(&e))?;
        match value.get("format").and_then(serde_json::Value::as_u64) {
            Some(found) if found != FORMAT => return Err(JournalError::Format { path, found }),
            Some(_) => {}
            None => return Err(damaged(&"it has no 'format'")),
        }
        serde_path_to_error::deserialize(value).map_err(|e| damaged(&e))
    }

    /// The metric of an experiment's samples, where the record knows it.
    pub fn metric(&self, experiment: &str, metric: &str) -> Option<&MetricRecord> {
        self.metrics.get(suite_name(experiment))?.get(metric)
    }
}
