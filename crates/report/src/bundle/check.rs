//! What of a bundle was modified, and the run in it.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use lab::journal::{self, JournalError, RECORD, Run, SAMPLES};
use serde_json::Value;

use super::archive::{Archive, damaged};
use super::{BundleError, MANIFEST, METADATA, digest};

/// Result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// Number of entries.
    pub entries: usize,
    /// SHA-256 digest of the file.
    pub digest: String,
    /// Modifications, one line each; empty if there is none.
    pub modifications: Vec<String>,
    /// What is not a modification, one line each.
    pub notes: Vec<String>,
}

/// Compares a bundle with its list of digests, its metadata, the digests of its journal's sessions, and the archive that
/// this program writes of the same entries. `version` is that of this program: another one may compress otherwise.
///
/// # Errors
/// Returns an error if the file is not a bundle, or is damaged so that it cannot be read.
pub fn check(path: &Path, version: &str) -> Result<Checked, BundleError> {
    let mut archive = Archive::open(path)?;
    let listed = manifest(path, &mut archive)?;
    let names = archive.names();
    let (mut entries, mut modifications) = (BTreeMap::new(), Vec::new());
    for name in names.iter().filter(|name| *name != MANIFEST && !listed.contains_key(*name)) {
        modifications.push(format!("{name}: additional, not in {MANIFEST}"));
    }
    for (name, expected) in &listed {
        match archive.read(name) {
            Ok(None) => modifications.push(format!("{name}: missing")),
            Ok(Some(bytes)) if digest(&bytes) == *expected => {
                entries.insert(name.clone(), bytes);
            }
            Ok(Some(_)) => modifications.push(format!("{name}: modified")),
            Err(_) => modifications.push(format!("{name}: damaged")),
        }
    }
    if let Some(metadata) = entries.get(METADATA) {
        modifications.extend(differing_metadata(path, metadata, &listed)?);
    }
    if entries.contains_key(RECORD) && entries.contains_key(SAMPLES) {
        let run = open_run(path)?;
        modifications.extend(run.inconsistencies);
    }
    let whole = std::fs::read(path).map_err(|error| {
        let remedy = "make it a regular file with read permission";
        BundleError::System { path: path.into(), error, remedy }
    })?;
    let mut notes = Vec::new();
    if modifications.is_empty() {
        entries.extend(archive.read(MANIFEST)?.map(|bytes| (MANIFEST.to_owned(), bytes)));
        let rewritten = Archive::rewritten(&entries);
        let is_same = rewritten.is_ok_and(|bytes| bytes == whole);
        let by = writer_version(entries.get(METADATA));
        match (is_same, by.as_deref() == Some(version)) {
            (true, _) => {}
            (false, true) => modifications
                .push("archive: packed again; its entries are those that were bundled".into()),
            (false, false) => notes.push(
                "archive: packed by another program or version; its entries are those that were bundled"
                    .into(),
            ),
        }
    }
    Ok(Checked { entries: names.len(), digest: digest(&whole), modifications, notes })
}

/// Reads the run in a bundle. If its files are not those that were bundled, the run's inconsistencies state it.
///
/// # Errors
/// Returns an error if the file is not a bundle, or its journal cannot be read.
pub fn open_run(path: &Path) -> Result<Run, BundleError> {
    let mut archive = Archive::open(path)?;
    let listed = manifest(path, &mut archive)?;
    let remedy = "free space in the folder for temporary files";
    let system = |error| BundleError::System { path: std::env::temp_dir(), error, remedy };
    // The journal is the user's only.
    let private = std::fs::Permissions::from_mode(0o700);
    let folder = tempfile::Builder::new().permissions(private).tempdir().map_err(system)?;
    let mut modified = Vec::new();
    for name in [RECORD, SAMPLES] {
        let bytes = archive.read(name)?;
        let bytes = bytes.ok_or_else(|| damaged(path, &format!("it has no {name}")))?;
        if listed.get(name) != Some(&digest(&bytes)) {
            modified.push(format!("{}: {name} is not the file that was bundled", path.display()));
        }
        std::fs::write(folder.path().join(name), bytes).map_err(system)?;
    }
    let mut run =
        journal::open(folder.path()).map_err(|why| journal_error(path, folder.path(), &why))?;
    // The temporary folder means nothing to the user.
    let place = |line: &String| renamed(line, folder.path(), path);
    run.inconsistencies = run.inconsistencies.iter().map(place).chain(modified).collect();
    run.folder = path.into();
    Ok(run)
}

fn journal_error(path: &Path, folder: &Path, why: &JournalError) -> BundleError {
    let why = why.to_string();
    let start = format!("{}/", folder.display());
    let why = why.strip_prefix(&start).unwrap_or(&why).to_owned();
    BundleError::Journal { path: path.into(), why }
}

fn renamed(line: &str, folder: &Path, path: &Path) -> String {
    line.replace(&folder.display().to_string(), &path.display().to_string())
}

/// Returns the digest of each entry as listed.
fn manifest(
    path: &Path,
    archive: &mut Archive<'_>,
) -> Result<BTreeMap<String, String>, BundleError> {
    let wrong = || damaged(path, &format!("it has no {MANIFEST} as 'tollgate bundle' writes it"));
    let bytes = archive.read(MANIFEST)?.ok_or_else(wrong)?;
    let text = String::from_utf8(bytes).map_err(|_| wrong())?;
    let entry = |line: &str| {
        let (digest, name) = line.split_once("  ")?;
        Some((name.to_owned(), digest.to_owned()))
    };
    text.lines().map(|line| entry(line).ok_or_else(wrong)).collect()
}

/// Returns a line for each entry of which the metadata states another digest, or none.
fn differing_metadata(
    path: &Path,
    metadata: &[u8],
    listed: &BTreeMap<String, String>,
) -> Result<Vec<String>, BundleError> {
    let metadata: Value = serde_json::from_slice(metadata)
        .map_err(|why| damaged(path, &format!("{METADATA} is not JSON ({why})")))?;
    let graph = metadata["@graph"].as_array().cloned().unwrap_or_default();
    let stated: BTreeMap<&str, &str> = graph
        .iter()
        .filter_map(|one| Some((one["@id"].as_str()?, one["sha256"].as_str()?)))
        .collect();
    let differs = |(name, digest): (&String, &String)| {
        (name != METADATA && stated.get(name.as_str()) != Some(&digest.as_str()))
            .then(|| format!("{METADATA}: states another digest of {name} than {MANIFEST}"))
    };
    Ok(listed.iter().filter_map(differs).collect())
}

/// Returns the version of the program that wrote a bundle.
fn writer_version(metadata: Option<&Vec<u8>>) -> Option<String> {
    let metadata: Value = serde_json::from_slice(metadata?).ok()?;
    let writer = metadata["@graph"].as_array()?.iter().find(|one| one["@id"] == "#bundler")?;
    writer["softwareVersion"].as_str().map(String::from)
}
