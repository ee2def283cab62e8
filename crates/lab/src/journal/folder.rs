//! Folders of runs: `results/HOST-PROFILE-N`.

use std::fs;
use std::path::{Path, PathBuf};

use super::{JournalError, RECORD, SAMPLES, system};
use crate::experiment::Profile;

/// Where a run's samples go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The folder.
    pub folder: PathBuf,
    /// Whether a run began there before.
    pub resumed: bool,
}

/// The folder that the next run writes to: the newest of this host and profile, or a new one.
///
/// # Errors
/// When the results folder cannot be read or written.
pub fn latest(
    results: &Path,
    host: &str,
    profile: Profile,
    fresh: bool,
) -> Result<Place, JournalError> {
    let remedy = "choose another folder with --results";
    fs::create_dir_all(results).map_err(system(results, remedy))?;
    let prefix = format!("{host}-{}-", profile.name());
    let numbers = fs::read_dir(results)
        .map_err(system(results, remedy))?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_prefix(&prefix)?.parse().ok());
    let newest: u64 = numbers.max().unwrap_or(0);
    if newest > 0 && !fresh {
        return Ok(Place { folder: results.join(format!("{prefix}{newest}")), resumed: true });
    }
    // Another lab may take the same number at the same time: the folder's making decides.
    for number in newest + 1.. {
        let folder = results.join(format!("{prefix}{number}"));
        match fs::create_dir(&folder) {
            Ok(()) => {
                return Ok(Place { folder, resumed: false });
            }
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(system(&folder, remedy)(e)),
        }
    }
    unreachable!("the numbers do not end")
}

/// All runs in a results folder, oldest change first. A run's own folder counts as one.
///
/// # Errors
/// When the folder cannot be read.
pub fn runs(results: &Path) -> Result<Vec<PathBuf>, JournalError> {
    if results.join(RECORD).is_file() {
        return Ok(vec![results.into()]);
    }
    let entries = match fs::read_dir(results) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(system(results, "choose another folder with --results")(e)),
    };
    let mut found: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|folder| folder.join(RECORD).is_file())
        .map(|folder| {
            let changed = |name| fs::metadata(folder.join(name)).and_then(|m| m.modified()).ok();
            (changed(SAMPLES).or(changed(RECORD)), folder)
        })
        .collect();
    found.sort();
    Ok(found.into_iter().map(|(_, folder)| folder).collect())
}

/// The run that changed last.
///
/// # Errors
/// When there is none.
pub fn newest(results: &Path) -> Result<PathBuf, JournalError> {
    runs(results)?.pop().ok_or_else(|| JournalError::NoRun(results.into()))
}
