//! Folders of runs below a folder, however they are nested: one folder per node, or result folders of several people that
//! were copied together.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::journal::is_run;

/// Maximum depth of a run's folder below the given one.
const MAX_DEPTH: usize = 8;

/// Returns the folders of runs at or below a folder, sorted. Symbolic links below it are not followed, and hidden folders
/// and those that cannot be read are skipped.
///
/// # Errors
/// Returns the system's error if the folder itself cannot be read.
pub fn runs(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut add = |run| {
        found.push(run);
        true
    };
    each_run(folder, &mut add, &AtomicBool::new(false))?;
    found.sort();
    Ok(found)
}

/// Passes the folders of runs to `each` as they are found, in any order, until it returns `false` or `is_cancelled` is set.
///
/// # Errors
/// Returns the system's error if the folder itself cannot be read.
pub(super) fn each_run(
    folder: &Path,
    each: &mut dyn FnMut(PathBuf) -> bool,
    is_cancelled: &AtomicBool,
) -> std::io::Result<()> {
    if is_run(folder) {
        each(folder.into());
        return Ok(());
    }
    descend(folder, MAX_DEPTH, each, is_cancelled).map(drop)
}

/// Returns whether to go on.
fn descend(
    folder: &Path,
    depth: usize,
    each: &mut dyn FnMut(PathBuf) -> bool,
    is_cancelled: &AtomicBool,
) -> std::io::Result<bool> {
    for entry in fs::read_dir(folder)?.flatten() {
        if is_cancelled.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if !is_folder || entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let path = entry.path();
        let goes_on = if is_run(&path) {
            each(path)
        } else {
            // A folder of another user that cannot be read does not hide the other runs.
            depth <= 1 || descend(&path, depth - 1, each, is_cancelled).unwrap_or(true)
        };
        if !goes_on {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::RECORD;
    use std::os::unix::fs::symlink;

    #[test]
    fn runs_are_found_at_any_depth() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for run in ["n1/n1-quick-1", "alice/monday/results/n2-quick-1", "n3-quick-1", ".old/n4"] {
            fs::create_dir_all(at(run)).unwrap();
            fs::write(at(run).join(RECORD), "{}").unwrap();
        }
        // Within a run, there are no others.
        fs::create_dir(at("n1/n1-quick-1/copy")).unwrap();
        fs::write(at("n1/n1-quick-1/copy").join(RECORD), "{}").unwrap();
        symlink(at("n1"), at("link")).unwrap();
        fs::create_dir(at("empty")).unwrap();
        let found = runs(folder.path()).unwrap();
        let expected = ["alice/monday/results/n2-quick-1", "n1/n1-quick-1", "n3-quick-1"].map(at);
        assert_eq!(found, expected);
        assert_eq!(runs(&at("n3-quick-1")).unwrap(), [at("n3-quick-1")]);
        assert!(runs(&at("absent")).is_err());
        assert_eq!(runs(&at("empty")).unwrap(), Vec::<PathBuf>::new());
    }
}
