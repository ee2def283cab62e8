//! Folders of runs: `results/HOST-PROFILE-N`.

use std::fs;
use std::path::{Path, PathBuf};

use super::{JournalError, RECORD, SAMPLES, system};
use crate::experiment::Profile;
use crate::terminal::UsageError;

/// The maximum length of a host name in a folder name, in bytes: the limit of Linux.
const MAX_HOST: usize = 64;
/// The maximum number of a run; folders with a higher number are ignored.
const MAX_NUMBER: u64 = 999_999_999;

/// Converts a host name to a path component: each character other than letters, digits, `.`, `-` and `_`, and a leading
/// `.`, becomes `_`.
fn component(host: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let mut name: String = host.chars().map(|c| if plain(c) { c } else { '_' }).collect();
    name.truncate(MAX_HOST);
    if name.is_empty() || name.starts_with('.') {
        name.replace_range(..name.len().min(1), "_");
    }
    name
}

/// Checks a host name given by the user.
///
/// # Errors
/// Returns a usage error if it is not usable as a path component.
pub fn check_host(host: &str) -> Result<(), UsageError> {
    if component(host) == host {
        return Ok(());
    }
    Err(UsageError::new(format!(
        "host name '{host}': not usable in a folder name; use letters, digits, '.', '-' and '_'"
    )))
}

/// Returns the number after the prefix, if it is in canonical form.
fn number_of(name: &str, prefix: &str) -> Option<u64> {
    let digits = name.strip_prefix(prefix)?;
    let number = digits.parse().ok().filter(|number| (1..=MAX_NUMBER).contains(number))?;
    (digits == number.to_string()).then_some(number)
}

/// The folder of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunLocation {
    /// The folder.
    pub folder: PathBuf,
    /// Whether the folder existed, so that an earlier session may have written samples.
    pub resumed: bool,
}

/// Returns the folder that the next session writes to: the last run of this host and profile, or a new folder.
///
/// # Errors
/// Returns an error if the results folder cannot be read or written.
pub fn latest(
    results: &Path,
    host: &str,
    profile: Profile,
    fresh: bool,
) -> Result<RunLocation, JournalError> {
    let remedy = "choose another folder with --results";
    if is_run(results) {
        return Err(JournalError::IsRun(results.into()));
    }
    fs::create_dir_all(results).map_err(system(results, remedy))?;
    let prefix = prefix(host, profile);
    let newest = newest_number(fs::read_dir(results).map_err(system(results, remedy))?, &prefix);
    if newest > 0 && !fresh {
        return Ok(RunLocation {
            folder: results.join(format!("{prefix}{newest}")),
            resumed: true,
        });
    }
    // Another lab may choose the same number at the same time: only one of them creates the folder.
    for number in newest + 1..=MAX_NUMBER {
        let folder = results.join(format!("{prefix}{number}"));
        match fs::create_dir(&folder) {
            Ok(()) => {
                return Ok(RunLocation { folder, resumed: false });
            }
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(system(&folder, remedy)(e)),
        }
    }
    Err(system(results, remedy)(std::io::Error::other("all run numbers are used")))
}

/// Returns the start of the names of a host's runs.
fn prefix(host: &str, profile: Profile) -> String {
    format!("{}-{}-", component(host), profile.name())
}

/// Returns the highest number of a run, 0 without one. Symbolic links are ignored, because writes would go to their target.
fn newest_number(entries: fs::ReadDir, prefix: &str) -> u64 {
    let folders =
        entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let numbers = folders.filter_map(|entry| number_of(entry.file_name().to_str()?, prefix));
    numbers.max().unwrap_or_default()
}

/// Returns the folder of the last run of a host and profile, if there is one.
pub(crate) fn newest_of(results: &Path, host: &str, profile: Profile) -> Option<PathBuf> {
    let prefix = prefix(host, profile);
    let number = newest_number(fs::read_dir(results).ok()?, &prefix);
    (number > 0).then(|| results.join(format!("{prefix}{number}")))
}

/// Returns the runs in a results folder, by time of the last change. The folder of a run is a results folder with one
/// run.
///
/// # Errors
/// Returns an error if the folder cannot be read.
pub fn runs(results: &Path) -> Result<Vec<PathBuf>, JournalError> {
    if is_run(results) {
        return Ok(vec![results.into()]);
    }
    let entries = match fs::read_dir(results) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(system(results, "choose another folder with --results")(e)),
    };
    let mut found: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|folder| is_run(folder))
        .map(|folder| {
            let changed =
                |name| fs::symlink_metadata(folder.join(name)).and_then(|m| m.modified()).ok();
            (changed(SAMPLES).or(changed(RECORD)), folder)
        })
        .collect();
    found.sort();
    Ok(found.into_iter().map(|(_, folder)| folder).collect())
}

/// Returns whether a folder has a run record that is a regular file.
pub(crate) fn is_run(folder: &Path) -> bool {
    fs::symlink_metadata(folder.join(RECORD)).is_ok_and(|record| record.is_file())
}

/// Returns the run with samples that changed last; without any, the run that changed last.
///
/// # Errors
/// Returns [`JournalError::NoRun`] if there is none.
pub fn newest(results: &Path) -> Result<PathBuf, JournalError> {
    let mut runs = runs(results)?;
    // A run that ended before its first sample does not hide others.
    let with_samples = runs.iter().rposition(|run| {
        fs::symlink_metadata(run.join(SAMPLES)).is_ok_and(|samples| samples.len() > 0)
    });
    let newest = with_samples.unwrap_or(runs.len().saturating_sub(1));
    if newest < runs.len() {
        Ok(runs.swap_remove(newest))
    } else {
        Err(JournalError::NoRun(results.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn unrelated_folder_names_do_not_affect_the_numbers() {
        let results = tempfile::tempdir().unwrap();
        let at = |name: &str| results.path().join(name);
        let names =
            ["007", "18446744073709551615", "18446744073709551616", "+9", "4000000000", "0", ""];
        names.iter().for_each(|name| fs::create_dir(at(&format!("vm-quick-{name}"))).unwrap());
        fs::write(at("vm-quick-8"), "").unwrap();
        symlink("/tmp", at("vm-quick-9")).unwrap();
        let next = |fresh| latest(results.path(), "vm", Profile::Quick, fresh).unwrap();
        let place = |number: u64, resumed| RunLocation {
            folder: at(&format!("vm-quick-{number}")),
            resumed,
        };
        assert_eq!(next(false), place(1, false));
        assert_eq!(next(false), place(1, true));
        fs::create_dir(at("vm-quick-7")).unwrap();
        assert_eq!(next(true), place(10, false), "used numbers are skipped");
        assert_eq!(next(false), place(10, true));
    }

    #[test]
    fn a_host_name_becomes_one_path_component() {
        let results = tempfile::tempdir().unwrap();
        for host in ["../x", "..", "", ".hidden", "a/b", "a b", "a\n", "\u{e9}", &"x".repeat(99)] {
            assert!(check_host(host).is_err(), "{host}");
            let place = latest(results.path(), host, Profile::Quick, true).unwrap();
            assert_eq!(place.folder.parent(), Some(results.path()), "{host}");
        }
        for host in ["vm", "node-1.rack_2", "a..b"] {
            assert_eq!(check_host(host), Ok(()));
        }
    }
}
