//! Samples that were measured without a lab, e.g. on a machine without an operating system.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use machine::environment::Environment;

use super::record::{Conditions, describe, new_record};
use super::{Lab, RunError};
use crate::experiment::{Experiment, Profile};
use crate::journal::{Journal, SessionRecord, latest};
use crate::sample::Sample;

/// Samples from another machine, with their description.
pub struct Imported {
    /// The environment of the samples, as far as it is known.
    pub environment: Environment,
    /// The profile to file the run under.
    pub profile: Profile,
    /// The experiment, with the points that were measured.
    pub experiment: Experiment,
    /// The samples; [`Lab::import`] fills in host and environment.
    pub samples: Vec<Sample>,
}

impl Lab<'_> {
    /// Writes imported samples to a new run and returns its folder.
    ///
    /// # Errors
    /// Returns an error if the journal cannot be written.
    pub fn import(&self, results: &Path, imported: Imported) -> Result<PathBuf, RunError> {
        let Imported { environment, profile, experiment, samples } = imported;
        let host = environment.hostname.clone();
        let folder = latest(results, &host, profile, true)?.folder;
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let conditions = Conditions::default();
        let new = || new_record(self, profile, None, name, host.clone(), &conditions);
        let mut journal = Journal::open(&folder, new)?;
        let id = environment.id();
        journal.record.sessions.push(SessionRecord::starting(environment.boot_id.clone()));
        let session = journal.record.last_session();
        journal.record.environments.insert(id.clone(), environment);
        describe(&mut journal.record, self, &[experiment], &BTreeMap::new());
        journal.save_record()?;
        for sample in samples {
            let sample = Sample { session, host: host.clone(), environment: id.clone(), ..sample };
            journal.append(&sample)?;
        }
        journal.end_session()?;
        Ok(folder)
    }
}
