//! Folders of runs: `results/HOST-PROFILE-N`.

use std::fs;
use std::path::{Path, PathBuf};

use super::{JournalError, RECORD, SAMPLES, system};
use crate::experiment::Profile;
use crate::suite::UsageError;

/// The longest name of a host in a folder's name, in bytes; Linux itself allows 64.
const MAX_HOST: usize = 64;
/// Higher numbers are not ours: nobody makes so many runs.
const MAX_NUMBER: u64 = 999_999_999;

/// A host's name as one component of a path: what is not a letter, digit, `.`, `-` or `_` becomes `_`, and
/// so does a `.` at its start.
fn component(host: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let mut name: String = host.chars().map(|c| if plain(c) { c } else { '_' }).collect();
    name.truncate(MAX_HOST);
    if name.is_empty() || name.starts_with('.') {
        name.replace_range(..name.len().min(1), "_");
    }
    name
}

/// Checks a host's name that a user gives.
///
/// # Errors
/// When it is not one plain component of a path.
pub fn check_host(host: &str) -> Result<(), UsageError> {
    if component(host) == host {
        return Ok(());
    }
    Err(UsageError::new(format!(
        "host name '{host}': it becomes part of a folder's name; use letters, digits, '.', '-' and '_'"
    )))
}

/// The number behind the prefix, if the name is spelled as this program spells it.
fn number_of(name: &str, prefix: &str) -> Option<u64> {
    let digits = name.strip_prefix(prefix)?;
    let number = digits.parse().ok().filter(|number| (1..=MAX_NUMBER).contains(number))?;
    (digits == number.to_string()).then_some(number)
}

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
    if is_run(results) {
        return Err(JournalError::IsRun(results.into()));
    }
    fs::create_dir_all(results).map_err(system(results, remedy))?;
    let prefix = format!("{}-{}-", component(host), profile.name());
    let mut newest = 0;
    for entry in fs::read_dir(results).map_err(system(results, remedy))?.flatten() {
        let number = entry.file_name().to_str().and_then(|name| number_of(name, &prefix));
        // A link is nobody's run here: what is written would go elsewhere.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            newest = newest.max(number.unwrap_or(0));
        }
    }
    if newest > 0 && !fresh {
        return Ok(Place { folder: results.join(format!("{prefix}{newest}")), resumed: true });
    }
    // Another lab may take the same number at the same time: the folder's making decides.
    for number in newest + 1..=MAX_NUMBER {
        let folder = results.join(format!("{prefix}{number}"));
        match fs::create_dir(&folder) {
            Ok(()) => {
                return Ok(Place { folder, resumed: false });
            }
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(system(&folder, remedy)(e)),
        }
    }
    Err(system(results, remedy)(std::io::Error::other("all numbers of runs are taken")))
}

/// All runs in a results folder, oldest change first. A run's own folder counts as one.
///
/// # Errors
/// When the folder cannot be read.
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

/// Whether a folder holds a run; a link in place of its record does not count.
fn is_run(folder: &Path) -> bool {
    fs::symlink_metadata(folder.join(RECORD)).is_ok_and(|record| record.is_file())
}

/// The run that changed last.
///
/// # Errors
/// When there is none.
pub fn newest(results: &Path) -> Result<PathBuf, JournalError> {
    runs(results)?.pop().ok_or_else(|| JournalError::NoRun(results.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn foreign_names_neither_break_nor_wrap_the_numbers() {
        let results = tempfile::tempdir().unwrap();
        let at = |name: &str| results.path().join(name);
        let names =
            ["007", "18446744073709551615", "18446744073709551616", "+9", "4000000000", "0", ""];
        names.iter().for_each(|name| fs::create_dir(at(&format!("vm-quick-{name}"))).unwrap());
        fs::write(at("vm-quick-8"), "").unwrap();
        symlink("/tmp", at("vm-quick-9")).unwrap();
        let next = |fresh| latest(results.path(), "vm", Profile::Quick, fresh).unwrap();
        let place =
            |number: u64, resumed| Place { folder: at(&format!("vm-quick-{number}")), resumed };
        assert_eq!(next(false), place(1, false));
        assert_eq!(next(false), place(1, true));
        fs::create_dir(at("vm-quick-7")).unwrap();
        assert_eq!(next(true), place(10, false), "what is taken is passed over");
        assert_eq!(next(false), place(10, true));
    }

    #[test]
    fn a_host_is_one_component_of_a_path() {
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
