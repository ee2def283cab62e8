//! Artefacts: files that take long to make. They are made once per host, outside all samples, in a cache addressed by
//! the hash of their inputs.
//!
//! The cache has a folder per artefact, with a manifest of digests, and a lock file next to it. The process with the
//! lock makes or checks the artefact. It makes it in `.making-NAME`, which is renamed when it is on disk, so that an
//! incomplete folder is never used.

mod cache;
mod manifest;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use machine::{child, file};

pub(crate) use manifest::digest;

use crate::guest::IN_GUEST;
use crate::quantity::format_duration;
use crate::sample::{Failure, FailureKind};

/// How to make an artefact.
#[derive(Debug, Clone)]
pub struct Recipe {
    /// The name by which a probe finds it.
    pub name: String,
    /// Everything that the result depends on: sources, compiler version, options.
    pub inputs: Vec<Vec<u8>>,
    /// Makes it in an empty folder.
    pub make: fn(&Recipe, &Path) -> Result<(), Failure>,
}

impl Recipe {
    /// Returns the hash of its name and inputs, which addresses it in the cache.
    pub fn hash(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for input in
            std::iter::once(self.name.as_bytes()).chain(self.inputs.iter().map(Vec::as_slice))
        {
            hasher.update(&(input.len() as u64).to_le_bytes()).update(input);
        }
        hasher.finalize().to_hex()[..16].to_string()
    }

    /// Returns the name of its folder in the cache.
    fn file_name(&self) -> String {
        format!("{}-{}", self.name, self.hash())
    }
}

/// The paths of prepared artefacts, or the failures of making them, by name.
pub type Artefacts = BTreeMap<String, Result<PathBuf, Failure>>;

/// Returns the path of a prepared artefact.
///
/// # Errors
/// Returns the failure of making it.
pub fn find<'a>(made: &'a Artefacts, name: &str) -> Result<&'a Path, Failure> {
    match made.get(name) {
        Some(Ok(path)) => Ok(path),
        Some(Err(failure)) => Err(failure.clone()),
        None => Err(Failure::failed(format!("no recipe was given for the artefact '{name}'"))),
    }
}

/// The artefacts that this process has checked. No other user can change them after that.
static CHECKED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// The maximum time in which a recipe makes its artefact.
pub const MAX_MAKING: Duration = Duration::from_secs(9 * 3600);
/// The maximum time to wait for the lock of an artefact. The slowest step of a recipe, compiling Linux, may take 2 h.
pub(crate) const MAX_LOCK_WAIT: Duration = Duration::from_secs(3 * 3600);

/// The prefix of the folder of an artefact that is being made.
const MAKING: &str = ".making-";

/// Returns the folder of an artefact; makes it if it is not in the cache or is damaged. Waits up to 3 h for another
/// process that is making it.
///
/// # Errors
/// Returns the failure of making it, and `timeout` if another process holds its lock for too long. Nothing incomplete
/// stays in the cache.
pub fn prepare(recipe: &Recipe) -> Result<PathBuf, Failure> {
    prepare_in(&cache::folder()?, recipe, MAX_LOCK_WAIT)
}

/// Returns whether the cache folder contains an artefact, which may be damaged.
pub fn is_cached(recipe: &Recipe) -> bool {
    cache::folder().is_ok_and(|cache| cache.join(recipe.file_name()).is_dir())
}

/// Returns the folders of all artefacts of a name in the cache folder, which may be damaged.
pub fn cached_folders(name: &str) -> Vec<PathBuf> {
    let Ok(cache) = cache::folder() else { return Vec::new() };
    let is_hash = |text: &str| text.len() == 16 && text.bytes().all(|one| one.is_ascii_hexdigit());
    let is_named = |path: &PathBuf| {
        let file = path.file_name().and_then(OsStr::to_str);
        let hash = file.and_then(|file| file.strip_prefix(name)?.strip_prefix('-'));
        hash.is_some_and(is_hash) && path.is_dir()
    };
    let entries = std::fs::read_dir(cache).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(is_named).collect()
}

/// Prepares artefacts, each once, until the user interrupts it; `starting` receives the name of each before.
pub fn prepare_all<'a>(
    recipes: impl IntoIterator<Item = &'a Recipe>,
    mut starting: impl FnMut(&str),
) -> Artefacts {
    let mut artefacts = Artefacts::new();
    for recipe in recipes {
        if child::is_interrupted() {
            break;
        }
        artefacts.entry(recipe.name.clone()).or_insert_with(|| {
            starting(&recipe.name);
            prepare(recipe)
        });
    }
    artefacts
}

fn prepare_in(cache: &Path, recipe: &Recipe, max_wait: Duration) -> Result<PathBuf, Failure> {
    let name = recipe.file_name();
    let place = cache.join(&name);
    let checked = || CHECKED.lock().unwrap_or_else(PoisonError::into_inner);
    if checked().contains(&place) && place.is_dir() {
        return Ok(place);
    }
    let fault = |what: &str, e: std::io::Error| {
        Failure::failed(format!("artefact '{}': {what} {}: {e}", recipe.name, cache.display()))
    };
    let lock_path = lock_of(cache, OsStr::new(&name));
    let lock = file::append(&lock_path).and_then(|lock| lock_within(lock, max_wait));
    // No process can make or repair it in a read-only cache.
    if lock.as_ref().is_err_and(is_read_only) && manifest::is_intact(&place) {
        checked().insert(place.clone());
        return Ok(place);
    }
    // Held until this function returns.
    let _lock = lock.map_err(|e| match e.kind() {
        io::ErrorKind::TimedOut => Failure::new(
            FailureKind::Timeout,
            format!(
                "artefact '{}': another process holds {} for more than {}; end it (fuser names it)",
                recipe.name,
                lock_path.display(),
                format_duration(max_wait)
            ),
        ),
        io::ErrorKind::Interrupted => {
            Failure::failed(format!("artefact '{}': interrupted", recipe.name))
        }
        _ => fault("cannot lock it in", e),
    })?;
    if !manifest::is_intact(&place) {
        // A guest does not see the locks of its host, which may be making an artefact. To remove the tree of a kernel, of
        // which only the guest's view changes, takes many minutes there.
        if std::env::var_os(IN_GUEST).is_none() {
            remove_unfinished(cache);
        }
        let making = cache.join(format!("{MAKING}{name}"));
        let made = remove(&making)
            .and_then(|()| fs::create_dir(&making))
            .map_err(|e| fault("cannot make a folder in", e))
            .and_then(|()| (recipe.make)(recipe, &making))
            .and_then(|()| keep(&making, &place).map_err(|e| fault("cannot keep it in", e)));
        if let Err(failure) = made {
            let _ = remove(&making);
            return Err(failure);
        }
    }
    checked().insert(place.clone());
    Ok(place)
}

/// Returns whether a lock file cannot be opened because the cache cannot be written.
fn is_read_only(why: &io::Error) -> bool {
    matches!(why.kind(), io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied)
}

/// Waits for the lock of a file.
///
/// # Errors
/// Returns [`io::ErrorKind::TimedOut`] if it is not free in time, e.g. because the process with the lock is stopped, and
/// [`io::ErrorKind::Interrupted`] if the user interrupts the wait.
fn lock_within(file: File, limit: Duration) -> io::Result<File> {
    const POLL_INTERVAL: Duration = Duration::from_millis(20);
    let start = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if child::is_interrupted() => {
                return Err(child::interruption());
            }
            Err(TryLockError::WouldBlock) if start.elapsed() < limit => {
                std::thread::sleep(POLL_INTERVAL.min(limit));
            }
            Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::TimedOut.into()),
            Err(TryLockError::Error(why)) => return Err(why),
        }
    }
}

fn lock_of(cache: &Path, name: &OsStr) -> PathBuf {
    let mut lock = name.to_owned();
    lock.push(".lock");
    cache.join(lock)
}

/// Flushes an artefact to disk and moves it into place, replacing a damaged one.
fn keep(making: &Path, place: &Path) -> std::io::Result<()> {
    manifest::record(making)?;
    remove(place)?;
    fs::rename(making, place)?;
    file::sync_folder(place.parent().unwrap_or(Path::new("/")))
}

/// Removes a folder or a file, if it exists.
fn remove(path: &Path) -> std::io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(e) => Err(e),
    };
    match removed {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Removes the incomplete artefacts of dead processes, whose locks are free. A folder that cannot be removed only takes
/// space.
fn remove_unfinished(cache: &Path) {
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        let file_name = entry.file_name();
        let Some(name) = file_name.as_bytes().strip_prefix(MAKING.as_bytes()) else { continue };
        match file::open(&lock_of(cache, OsStr::from_bytes(name))) {
            // The lock is held during the removal, so that no other process makes the artefact at the same time.
            Ok(lock) if lock.try_lock().is_ok() => drop(remove(&entry.path())),
            Ok(_) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;
