//! Folders of runs below a folder, however they are nested: one folder per node, or result folders of several people that
//! were copied together.

use std::fs;
use std::path::{Path, PathBuf};

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
    if is_run(folder) {
        return Ok(vec![folder.into()]);
    }
    descend(folder, MAX_DEPTH, &mut found)?;
    found.sort();
    Ok(found)
}

fn descend(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)?.flatten() {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if !is_folder || entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let path = entry.path();
        if is_run(&path) {
            found.push(path);
        } else if depth > 1 {
            // A folder of another user that cannot be read does not hide the other runs.
            let _ = descend(&path, depth - 1, found);
        }
    }
    Ok(())
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
