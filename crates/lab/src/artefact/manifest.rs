//! The manifest of an artefact: the digest of each file, so that a damaged artefact is detected and made again.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use machine::file;
use serde::{Deserialize, Serialize};

/// The name of the manifest in the folder of an artefact.
const NAME: &str = ".manifest.json";
/// The maximum size of a manifest, in bytes.
const MAX_BYTES: u64 = 16 << 20;

/// A file, symbolic link or folder of an artefact.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Entry {
    /// A regular file.
    File { mode: u32, bytes: u64, blake3: String },
    /// A symbolic link and its target.
    Link { target: PathBuf },
    /// A folder.
    Folder { mode: u32 },
}

/// All entries, by their path in the folder.
type Manifest = BTreeMap<PathBuf, Entry>;

/// Writes the manifest of a folder and flushes all its files to disk.
///
/// # Errors
/// Returns an error if a system call fails, or an entry is not a file, symbolic link or folder.
pub(super) fn record(folder: &Path) -> io::Result<()> {
    let manifest = of(folder, &mut fs::File::sync_all)?;
    file::replace(&folder.join(NAME), &serde_json::to_vec(&manifest)?)
}

/// Returns whether a folder matches its manifest.
pub(super) fn is_intact(folder: &Path) -> bool {
    let recorded = file::read(&folder.join(NAME), MAX_BYTES).ok();
    let recorded = recorded.and_then(|bytes| serde_json::from_slice::<Manifest>(&bytes).ok());
    recorded.is_some_and(|recorded| of(folder, &mut |_| Ok(())).is_ok_and(|now| now == recorded))
}

fn of(folder: &Path, each: &mut dyn FnMut(&fs::File) -> io::Result<()>) -> io::Result<Manifest> {
    let mut manifest = Manifest::new();
    add(folder, Path::new(""), &mut manifest, each)?;
    manifest.remove(Path::new(NAME));
    Ok(manifest)
}

fn add(
    root: &Path,
    folder: &Path,
    manifest: &mut Manifest,
    each: &mut dyn FnMut(&fs::File) -> io::Result<()>,
) -> io::Result<()> {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        let kind = entry.file_type()?;
        let found = if kind.is_dir() {
            add(root, &path, manifest, each)?;
            Entry::Folder { mode: entry.metadata()?.permissions().mode() & 0o7777 }
        } else if kind.is_symlink() {
            Entry::Link { target: fs::read_link(entry.path())? }
        } else {
            file_entry(&entry.path(), each)?
        };
        manifest.insert(path, found);
    }
    each(&fs::File::open(root.join(folder))?)
}

fn file_entry(path: &Path, each: &mut dyn FnMut(&fs::File) -> io::Result<()>) -> io::Result<Entry> {
    let mut opened = file::open(path)?;
    let (blake3, bytes) = digest(&mut opened)?;
    each(&opened)?;
    let mode = opened.metadata()?.permissions().mode() & 0o7777;
    Ok(Entry::File { mode, bytes, blake3 })
}

/// Returns the BLAKE3 digest of a file's content in hexadecimal, and its length in bytes.
///
/// # Errors
/// Returns the `errno` of `read(2)`.
pub(crate) fn digest(from: &mut impl Read) -> io::Result<(String, u64)> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 64 << 10];
    let mut bytes = 0;
    loop {
        match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => {
                hasher.update(&buffer[..read]);
                bytes += read as u64;
            }
            Err(why) if why.kind() == ErrorKind::Interrupted => {}
            Err(why) => return Err(why),
        }
    }
    Ok((hasher.finalize().to_hex().to_string(), bytes))
}
