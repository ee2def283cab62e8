//! What of a bundle was modified, and the run in it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::Path;

use lab::journal::{self, JournalError, RECORD, Run, SAMPLES};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::archive::{Archive, ArchiveWriter, damaged};
use super::comparison::Comparison;
use super::{BundleError, MANIFEST, METADATA, hexadecimal};

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
/// this program writes of the same entries. `version` is that of this program: another one may compress otherwise. The
/// file is opened once, and each entry but the list is read once, part by part.
///
/// # Errors
/// Returns an error if the file is not a bundle, or is damaged so that it cannot be read.
pub fn check(path: &Path, version: &str) -> Result<Checked, BundleError> {
    let mut archive = Archive::open(path)?;
    let (listed, manifest) = manifest(path, &mut archive)?;
    let names = archive.names();
    let mut modifications = Vec::new();
    for name in names.iter().filter(|name| *name != MANIFEST && !listed.contains_key(*name)) {
        modifications.push(format!("{name}: additional, not in {MANIFEST}"));
    }
    let file = archive.file().0.try_clone().map_err(unreadable(path))?;
    let size = archive.file().1;
    let mut reading =
        Reading { path, archive: &mut archive, rewritten: Rewritten::new((&file, size)) };
    let mut kept = Kept::new()?;
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
    if kept.files == 2 {
        modifications.extend(open_kept(path, &kept)?.inconsistencies);
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
    let kept = Kept::new()?;
    let mut modified = Vec::new();
    for name in [RECORD, SAMPLES] {
        let mut file = kept.create(name)?;
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
    }
    let mut run = open_kept(path, &kept)?;
    run.inconsistencies.extend(modified);
    run.folder = path.into();
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
            RECORD | SAMPLES => Some(kept.create(name)?),
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
                kept.files += usize::from(file.is_some());
                kept.metadata = kept.metadata.take().or((name == METADATA).then_some(metadata));
                None
            }
            Ok(true) => Some("modified"),
            Err(BundleError::Damaged { .. }) => Some("damaged"),
            Err(other) => return Err(other),
        })
    }
}

/// Maximum size of the metadata, which is the only entry in memory, in bytes.
const MAX_METADATA: usize = 64 << 20;

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

/// What is kept of the entries: the files of the run in a temporary folder, and the metadata.
struct Kept {
    folder: tempfile::TempDir,
    /// Number of files of the run that are as bundled.
    files: usize,
    metadata: Option<Vec<u8>>,
}

impl Kept {
    fn new() -> Result<Self, BundleError> {
        // The journal is the user's only.
        let private = std::fs::Permissions::from_mode(0o700);
        let folder = tempfile::Builder::new().permissions(private).tempdir().map_err(no_space)?;
        Ok(Self { folder, files: 0, metadata: None })
    }

    fn create(&self, name: &str) -> Result<File, BundleError> {
        File::create(self.folder.path().join(name)).map_err(no_space)
    }
}

fn no_space(error: std::io::Error) -> BundleError {
    let remedy = "free space in the folder for temporary files";
    BundleError::System { path: std::env::temp_dir(), error, remedy }
}

fn unreadable(path: &Path) -> impl Fn(std::io::Error) -> BundleError {
    move |error| {
        let remedy = "make it a regular file with read permission";
        BundleError::System { path: path.into(), error, remedy }
    }
}

/// Opens the run whose files are kept.
fn open_kept(path: &Path, kept: &Kept) -> Result<Run, BundleError> {
    let folder = kept.folder.path();
    let mut run = journal::open(folder).map_err(|why| journal_error(path, folder, &why))?;
    // The temporary folder means nothing to the user.
    run.inconsistencies =
        run.inconsistencies.iter().map(|line| renamed(line, folder, path)).collect();
    Ok(run)
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

fn journal_error(path: &Path, folder: &Path, why: &JournalError) -> BundleError {
    let why = why.to_string();
    let start = format!("{}/", folder.display());
    let why = why.strip_prefix(&start).unwrap_or(&why).to_owned();
    BundleError::Journal { path: path.into(), why }
}

fn renamed(line: &str, folder: &Path, path: &Path) -> String {
    line.replace(&folder.display().to_string(), &path.display().to_string())
}

/// Returns the digest of each entry as listed, and the list itself.
fn manifest(
    path: &Path,
    archive: &mut Archive<'_>,
) -> Result<(BTreeMap<String, String>, Vec<u8>), BundleError> {
    let wrong = || damaged(path, &format!("it has no {MANIFEST} as 'tollgate bundle' writes it"));
    let bytes = archive.read(MANIFEST)?.ok_or_else(wrong)?;
    let text = str::from_utf8(&bytes).map_err(|_| wrong())?;
    let entry = |line: &str| {
        let (digest, name) = line.split_once("  ")?;
        Some((name.to_owned(), digest.to_owned()))
    };
    let listed: Result<_, _> = text.lines().map(|line| entry(line).ok_or_else(wrong)).collect();
    Ok((listed?, bytes))
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
