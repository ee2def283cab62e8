//! The modifications of a bundle, and the run in it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use lab::journal::{self, RECORD, Run, SAMPLES};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::archive::{Archive, ArchiveWriter, damaged};
use super::comparison::Comparison;
use super::{BundleError, CLAIMS, MANIFEST, METADATA, PAGE, VALUES, VERIFIER, hexadecimal};

/// Entries without which an archive is no bundle.
const RUN: [&str; 2] = [RECORD, SAMPLES];
/// Further entries of each bundle.
const RESULTS: [&str; 5] = [METADATA, CLAIMS, VALUES, PAGE, VERIFIER];

/// Result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// Number of entries.
    pub entries: usize,
    /// SHA-256 digest of the file.
    pub digest: String,
    /// Modifications, one line each; empty if there is none.
    pub modifications: Vec<String>,
    /// Remarks that state no modification, one line each.
    pub notes: Vec<String>,
}

/// Compares a bundle with its list of digests, its metadata, the digests of its journal's sessions, and the archive that
/// this program writes of the same entries. `version` is that of this program: another one may compress otherwise. The
/// file is opened once, and each entry but the list is read once, part by part.
///
/// # Errors
/// Returns an error if the file is not a bundle, or is damaged so that it cannot be read.
pub fn check(path: &Path, version: &str) -> Result<Checked, BundleError> {
    let mut archive = Archive::open(path)?;
    let (listed, manifest) = manifest(path, &mut archive)?;
    let names = archive.names();
    let is_absent =
        |name: &&&str| !listed.contains_key(**name) && !names.iter().any(|it| it == **name);
    if let Some(name) = RUN.iter().find(is_absent) {
        return Err(damaged(path, &format!("it has no {name}")));
    }
    let mut modifications = Vec::new();
    for name in RESULTS.iter().filter(|name| !listed.contains_key(**name)) {
        modifications.push(format!("{name}: missing, also in {MANIFEST}"));
    }
    for name in names.iter().filter(|name| *name != MANIFEST && !listed.contains_key(*name)) {
        modifications.push(format!("{name}: additional, not in {MANIFEST}"));
    }
    let file = archive.file().0.try_clone().map_err(unreadable(path))?;
    let size = archive.file().1;
    let mut reading =
        Reading { path, archive: &mut archive, rewritten: Rewritten::new((&file, size)) };
    let mut kept = Kept::default();
    let mut entries: Vec<&str> = listed.keys().map(String::as_str).chain([MANIFEST]).collect();
    entries.sort_unstable();
    for name in entries {
        if name == MANIFEST {
            reading.rewritten.add(name, &manifest);
        } else if let Some(modification) = reading.entry(name, &listed[name], &mut kept)? {
            modifications.push(format!("{name}: {modification}"));
            reading.rewritten.give_up();
        }
    }
    let rewritten = reading.rewritten;
    if let Some(metadata) = &kept.metadata {
        modifications.extend(differing_metadata(path, metadata, &listed)?);
    }
    if let Some(run) = kept.open(path)? {
        modifications.extend(run.inconsistencies);
    }
    let mut notes = Vec::new();
    if modifications.is_empty() {
        let by = writer_version(kept.metadata.as_deref());
        match (rewritten.ends_same(), by.as_deref() == Some(version)) {
            (true, _) => {}
            (false, true) => modifications
                .push("archive: packed again; its entries are those that were bundled".into()),
            (false, false) => notes.push(
                "archive: packed by another program or version; its entries are those that were bundled"
                    .into(),
            ),
        }
    }
    let digest = digest_of(&file, size).map_err(unreadable(path))?;
    Ok(Checked { entries: names.len(), digest, modifications, notes })
}

/// Reads the run in a bundle. If its files are not those that were bundled, the run's inconsistencies state it.
///
/// # Errors
/// Returns an error if the file is not a bundle, or its journal cannot be read.
pub fn open_run(path: &Path) -> Result<Run, BundleError> {
    let mut archive = Archive::open(path)?;
    let (listed, _) = manifest(path, &mut archive)?;
    let (mut kept, mut modified) = (Kept::default(), Vec::new());
    for name in RUN {
        let mut file = unnamed_file()?;
        let mut hasher = Sha256::new();
        let is_present = archive.copy(name, &mut |part| {
            hasher.update(part);
            file.write_all(part).map_err(no_space)
        })?;
        if !is_present {
            return Err(damaged(path, &format!("it has no {name}")));
        }
        if listed.get(name) != Some(&hexadecimal(hasher)) {
            modified.push(format!("{}: {name} is not the file that was bundled", path.display()));
        }
        kept.files.insert(name.into(), file);
    }
    let missing = || damaged(path, &format!("it has no {RECORD}"));
    let mut run = kept.open(path)?.ok_or_else(missing)?;
    run.inconsistencies.extend(modified);
    Ok(run)
}

/// Entries that are read once: for their digests, for the archive that they would give, and for what is kept of them.
struct Reading<'a, 'p, 'f> {
    path: &'p Path,
    archive: &'a mut Archive<'p>,
    rewritten: Rewritten<'f>,
}

impl Reading<'_, '_, '_> {
    /// Reads an entry; returns how it was modified, and `None` if it has the expected digest.
    fn entry(
        &mut self,
        name: &str,
        expected: &str,
        kept: &mut Kept,
    ) -> Result<Option<&'static str>, BundleError> {
        let mut file = match name {
            RECORD | SAMPLES => Some(unnamed_file()?),
            _ => None,
        };
        let (mut hasher, mut metadata) = (Sha256::new(), Vec::new());
        self.rewritten.start(name);
        let copied = self.archive.copy(name, &mut |part| {
            hasher.update(part);
            self.rewritten.write(part);
            if name == METADATA {
                metadata.extend_from_slice(part);
                check_size(self.path, metadata.len())?;
            }
            file.as_mut().map_or(Ok(()), |file| file.write_all(part)).map_err(no_space)
        });
        Ok(match copied {
            Ok(false) => Some("missing"),
            Ok(true) if hexadecimal(hasher) == expected => {
                kept.files.extend(file.map(|file| (name.to_owned(), file)));
                kept.metadata = kept.metadata.take().or((name == METADATA).then_some(metadata));
                None
            }
            Ok(true) => Some("modified"),
            Err(BundleError::Damaged { .. }) => Some("damaged"),
            Err(other) => return Err(other),
        })
    }
}

/// Maximum size of the metadata in bytes. Only the metadata and the manifest are kept in memory; of other entries a part
/// at a time is.
const MAX_METADATA: usize = 64 << 20;
/// Maximum size of the list of digests in memory, in bytes; as many entries as an archive may have take about 1 MiB.
const MAX_MANIFEST: u64 = 4 << 20;

fn check_size(path: &Path, size: usize) -> Result<(), BundleError> {
    match size > MAX_METADATA {
        true => Err(damaged(path, &format!("{METADATA} is larger than it may be"))),
        false => Ok(()),
    }
}

/// The archive that this program writes of the entries, compared with the file; `None` once they differ.
struct Rewritten<'f>(Option<ArchiveWriter<Comparison<'f>>>);

impl<'f> Rewritten<'f> {
    fn new(file: (&'f File, u64)) -> Self {
        Self(Some(ArchiveWriter::new(Comparison::new(file))))
    }

    fn start(&mut self, name: &str) {
        if self.0.as_mut().is_some_and(|archive| archive.start(name).is_err()) {
            self.give_up();
        }
    }

    fn write(&mut self, part: &[u8]) {
        if self.0.as_mut().is_some_and(|archive| archive.write(part).is_err()) {
            self.give_up();
        }
    }

    fn add(&mut self, name: &str, bytes: &[u8]) {
        self.start(name);
        self.write(bytes);
    }

    fn give_up(&mut self) {
        self.0 = None;
    }

    /// Ends the archive; returns whether it is the file.
    fn ends_same(self) -> bool {
        self.0.is_some_and(|archive| archive.finish().is_ok_and(|it| it.is_same()))
    }
}

/// Content that is kept of the entries: the files of the run, and the metadata.
#[derive(Default)]
struct Kept {
    /// Files of the run that are as bundled, by name.
    files: BTreeMap<String, File>,
    metadata: Option<Vec<u8>>,
}

impl Kept {
    /// Opens the run, if both of its files are kept.
    fn open(&mut self, path: &Path) -> Result<Option<Run>, BundleError> {
        let (record, samples) = (self.files.remove(RECORD), self.files.remove(SAMPLES));
        let (Some(mut record), Some(mut samples)) = (record, samples) else { return Ok(None) };
        for file in [&mut record, &mut samples] {
            file.rewind().map_err(no_space)?;
        }
        let run = journal::open_files(path, record, samples);
        run.map(Some).map_err(|why| {
            let (why, start) = (why.to_string(), format!("{}/", path.display()));
            let why = why.strip_prefix(&start).unwrap_or(&why).to_owned();
            BundleError::Journal { path: path.into(), why }
        })
    }
}

/// Creates a temporary file without a name: nothing is left of it, even if the program is killed.
fn unnamed_file() -> Result<File, BundleError> {
    tempfile::tempfile().map_err(no_space)
}

fn no_space(error: std::io::Error) -> BundleError {
    let remedy = "check the folder for temporary files (TMPDIR) and its free space";
    BundleError::System { path: std::env::temp_dir(), error, remedy }
}

fn unreadable(path: &Path) -> impl Fn(std::io::Error) -> BundleError {
    move |error| {
        let remedy = "make it a regular file with read permission";
        BundleError::System { path: path.into(), error, remedy }
    }
}

/// Returns the SHA-256 digest of a file, without its position.
fn digest_of(file: &File, size: u64) -> std::io::Result<String> {
    let (mut hasher, mut part, mut position) = (Sha256::new(), vec![0; 64 << 10], 0);
    while position < size {
        let read = file.read_at(&mut part, position)?;
        if read == 0 {
            break;
        }
        hasher.update(&part[..read]);
        position += read as u64;
    }
    Ok(hexadecimal(hasher))
}

/// Returns the digest of each entry as listed, and the list itself.
fn manifest(
    path: &Path,
    archive: &mut Archive<'_>,
) -> Result<(BTreeMap<String, String>, Vec<u8>), BundleError> {
    let wrong = || damaged(path, &format!("it has no {MANIFEST} as 'tollgate bundle' writes it"));
    let bytes = archive.read(MANIFEST, MAX_MANIFEST)?.ok_or_else(wrong)?;
    let text = str::from_utf8(&bytes).map_err(|_| wrong())?;
    let mut listed = BTreeMap::new();
    for line in text.lines() {
        let (digest, name) = line.split_once("  ").ok_or_else(wrong)?;
        match listed.entry(name.to_owned()) {
            Entry::Vacant(entry) => entry.insert(digest.to_owned()),
            Entry::Occupied(_) => return Err(wrong()),
        };
    }
    Ok((listed, bytes))
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
fn writer_version(metadata: Option<&[u8]>) -> Option<String> {
    let metadata: Value = serde_json::from_slice(metadata?).ok()?;
    let writer = metadata["@graph"].as_array()?.iter().find(|one| one["@id"] == "#bundler")?;
    writer["softwareVersion"].as_str().map(String::from)
}
