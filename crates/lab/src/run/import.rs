//! Samples that were measured where no lab runs, such as on a machine without an operating system.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use machine::environment::Environment;

use super::record::{Shared, describe, new_record};
use super::{Lab, RunError};
use crate::experiment::{Experiment, Profile};
use crate::journal::{Journal, latest};
use crate::sample::Sample;

/// What was measured elsewhere.
pub struct Imported {
    /// Where, as far as it is known.
    pub environment: Environment,
    /// How much was measured, as a profile.
    pub profile: Profile,
    /// The experiment, with the points that were measured.
    pub experiment: Experiment,
    /// The samples; host and environment are filled in.
    pub samples: Vec<Sample>,
}

impl Lab<'_> {
    /// Journals samples that were measured elsewhere as a run of their own; gives its folder.
    ///
    /// # Errors
    /// When the journal cannot be written.
    pub fn import(&self, results: &Path, imported: Imported) -> Result<PathBuf, RunError> {
        let Imported { environment, profile, experiment, samples } = imported;
        let host = environment.hostname.clone();
        let place = latest(results, &host, profile, true)?;
        let name = place.folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // What a guest's init starts has nice value 0.
        let shared = Shared { options: BTreeMap::new(), nice: 0 };
        let new = || new_record(self, (profile, None), name, host.clone(), &shared);
        let mut journal = Journal::open(&place.folder, new)?;
        let id = environment.id();
        journal.record.environments.insert(id.clone(), environment);
        describe(&mut journal.record, self, &[experiment]);
        journal.save_record()?;
        for sample in samples {
            let sample = Sample { host: host.clone(), environment: id.clone(), ..sample };
            journal.append(&sample)?;
        }
        journal.sync()?;
        Ok(place.folder)
    }
}
