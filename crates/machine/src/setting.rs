//! System settings that are changed temporarily and always restored.
//!
//! Before a setting is changed, its original value is written to a record in [`RECORDS`] and synced. When the
//! guard is dropped, the value is restored and the record removed. If the process dies, a
//! [restorer](crate::restorer) does both. If the restorer was killed too, the next run finds the record
//! ([`restore_left`]). Neither kernel settings nor the folder survive a reboot.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{AtFlags, Mode, OFlags};

use crate::SysError;
use crate::restorer::{Restore, Restorer};
use crate::user;

/// The folder of the records. It belongs to root because only root may change settings.
pub const RECORDS: &str = "/run/tollgate";
/// Maximum length of a setting's path and value, in bytes.
const MAX_TIME: u64 = 8192;
/// How often creating a record is retried while other processes look for stale records.
const MAX_ATTEMPTS: u32 = 100;

/// A setting whose original value is recorded. It is restored when this is dropped.
#[derive(Debug)]
pub struct Setting {
    path: PathBuf,
    original: String,
    folder: OwnedFd,
    name: String,
    // Declared before the record, so that no restorer remains when the lock is released.
    _restorer: Restorer,
    /// Locked: an unlocked record shows that its process and restorer are gone.
    record: File,
}

impl Setting {
    /// Records the value of a setting, the text of a file such as `scaling_max_freq`. First restores it if an
    /// earlier process left it changed.
    ///
    /// # Errors
    /// Fails if the setting cannot be read or written, the record cannot be created, or another process has
    /// changed the same setting.
    pub fn record(path: &Path) -> io::Result<Self> {
        Self::record_in(Path::new(RECORDS), path)
    }

    /// Like [`Setting::record`], with the records in another folder.
    ///
    /// # Errors
    /// See [`Setting::record`].
    pub fn record_in(records: &Path, path: &Path) -> io::Result<Self> {
        let path = fs::canonicalize(path)?;
        let folder = open_folder(records, true)?;
        let name = name_of(&path);
        for _ in 0..MAX_ATTEMPTS {
            put_back(&folder, &name)?;
            let Some((record, original)) = placed(&folder, &name, &path)? else { continue };
            let started = Restore::file(&path, &original)
                .and_then(|restore| {
                    restore.and_remove(folder.try_clone()?, &name, record.try_clone()?.into())
                })
                .and_then(Restorer::start);
            let restorer = started.inspect_err(|_| {
                let _ = rustix::fs::unlinkat(&folder, &name, AtFlags::empty());
            })?;
            return Ok(Self { path, original, folder, name, _restorer: restorer, record });
        }
        Err(busy(rustix::io::Errno::EXIST, &path))
    }

    /// Returns the original value.
    pub fn original(&self) -> &str {
        &self.original
    }

    /// Changes the setting.
    ///
    /// # Errors
    /// Returns the kernel's error if it rejects the value.
    pub fn set(&self, value: &str) -> io::Result<()> {
        fs::write(&self.path, value)
    }

    /// Restores the original value for now; the setting may be changed again.
    ///
    /// # Errors
    /// Returns the kernel's error if it rejects its original value.
    pub fn reset(&self) -> io::Result<()> {
        self.set(&self.original)
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        let named = is_named(&self.record, &self.folder, &self.name);
        // Fails only if someone removed the record: the change then belongs to another process.
        if named == Ok(false) {
            return;
        }
        // If this fails, the record stays and the next run tries again.
        if self.reset().is_ok() && named == Ok(true) {
            let _ = rustix::fs::unlinkat(&self.folder, &self.name, AtFlags::empty());
        }
    }
}

/// Settings that earlier processes left changed.
#[derive(Debug, Default)]
pub struct Left {
    /// Settings that were restored.
    pub restored: Vec<PathBuf>,
    /// Reasons why others may still be changed.
    pub failed: Vec<SysError>,
}

/// Restores every changed setting whose process is gone. Does nothing without records, or for a user other
/// than root who cannot read the records, because only root changes settings.
pub fn restore_left() -> Left {
    restore_left_in(Path::new(RECORDS))
}

/// Like [`restore_left`], with the records in another folder.
pub fn restore_left_in(records: &Path) -> Left {
    let mut left = Left::default();
    let opened = open_folder(records, false).and_then(|folder| {
        let entries = fs::read_dir(records)?.map(|entry| Ok(entry?.file_name()));
        Ok((folder, entries.collect::<io::Result<Vec<_>>>()?))
    });
    let (folder, names) = match opened {
        Ok(opened) => opened,
        Err(why) if why.kind() == io::ErrorKind::NotFound || user::id() != 0 => return left,
        Err(why) => {
            let attempt = "cannot look for settings that a killed run left changed";
            let remedy = format!("inspect {}, then remove it", records.display());
            left.failed.push(SysError::new(attempt, why, remedy));
            return left;
        }
    };
    for name in names.iter().filter_map(|name| name.to_str()) {
        match put_back(&folder, name) {
            Ok(restored) => left.restored.extend(restored),
            Err(why) => left.failed.push(SysError::new(
                "cannot restore a setting that a killed run left changed",
                why,
                format!(
                    "write to it the text of {} from its second line on, then remove that file",
                    records.join(name).display()
                ),
            )),
        }
    }
    left
}

/// Opens the folder of the records, which must belong to this user and be writable by no other user.
fn open_folder(records: &Path, make: bool) -> io::Result<OwnedFd> {
    if make {
        match rustix::fs::mkdir(records, Mode::RWXU) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(why) => return Err(named(why.into(), records)),
        }
    }
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::open(records, flags, Mode::empty());
    let folder = folder.map_err(|why| named(why.into(), records))?;
    let status = rustix::fs::fstat(&folder)?;
    if status.st_uid != rustix::process::geteuid().as_raw() || status.st_mode & 0o022 != 0 {
        return Err(named(io::Error::other("other users can write to it"), records));
    }
    Ok(folder)
}

/// Creates a record and returns it with the recorded value. It is written and locked under another name
/// first, so that it is never visible unfinished or unlocked. `None` if another process removed the first
/// name or restored the setting concurrently.
fn placed(folder: &OwnedFd, name: &str, path: &Path) -> io::Result<Option<(File, String)>> {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let original = value_of(path)?;
    let made = MADE.fetch_add(1, Ordering::Relaxed);
    let first_name = format!("{name}.{}.{made}", std::process::id());
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut record = match rustix::fs::openat(folder, &first_name, flags, Mode::RUSR) {
        Ok(record) => File::from(record),
        // Left by a dead process with the same ID.
        Err(rustix::io::Errno::EXIST) => return Ok(None),
        Err(why) => return Err(named(why.into(), path)),
    };
    let linked = record.try_lock().is_ok().then(|| {
        record.write_all(&[path.as_os_str().as_bytes(), b"\n", original.as_bytes()].concat())?;
        record.sync_all()?;
        Ok::<_, io::Error>(rustix::fs::linkat(folder, &first_name, folder, name, AtFlags::empty()))
    });
    let _ = rustix::fs::unlinkat(folder, &first_name, AtFlags::empty());
    match linked.transpose()? {
        Some(Ok(())) => {}
        None | Some(Err(rustix::io::Errno::NOENT)) => return Ok(None),
        Some(Err(why)) => return Err(busy(why, path)),
    }
    // Until now another process may have had a record, and the value read may be its change.
    let kept = value_of(path).is_ok_and(|value| value == original);
    let synced = rustix::fs::fsync(folder);
    if !kept || synced.is_err() {
        rustix::fs::unlinkat(folder, name, AtFlags::empty())?;
    }
    synced?;
    Ok(kept.then_some((record, original)))
}

fn value_of(path: &Path) -> io::Result<String> {
    Ok(fs::read_to_string(path)?.trim_end().to_owned())
}

/// Returns whether a name refers to this record. Fails if the name does not exist.
fn is_named(record: &File, folder: &OwnedFd, name: &str) -> rustix::io::Result<bool> {
    let named = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let held = rustix::fs::fstat(record)?;
    Ok((held.st_dev, held.st_ino) == (named.st_dev, named.st_ino))
}

/// Restores a setting from its record if the record's process is gone.
fn put_back(folder: &OwnedFd, name: &str) -> io::Result<Option<PathBuf>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let record = match rustix::fs::openat(folder.as_fd(), name, flags, Mode::empty()) {
        Ok(record) => File::from(record),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(why) => return Err(why.into()),
    };
    match record.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(why)) => return Err(why),
    }
    // Before it was locked, another process may have restored it, and a third created a new record.
    if is_named(&record, folder, name) != Ok(true) {
        return Ok(None);
    }
    let put = restored(&record, name)?;
    match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
        // Its creator may remove the first name of a record regardless of the lock.
        Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(put),
        Err(why) => Err(why.into()),
    }
}

/// Writes a recorded value to its setting. A record that is unfinished or without its final name belongs to
/// no change.
fn restored(mut record: &File, name: &str) -> io::Result<Option<PathBuf>> {
    let mut bytes = Vec::new();
    record.rewind()?;
    record.take(MAX_TIME).read_to_end(&mut bytes)?;
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
    let (path, value) = (Path::new(OsStr::from_bytes(&bytes[..end])), &bytes[end + 1..]);
    if value.is_empty() || name != name_of(path) {
        return Ok(None);
    }
    match OpenOptions::new().write(true).open(path) {
        Ok(mut file) => file.write_all(value).map_err(|why| named(why, path))?,
        // The CPU or driver is gone, and its setting with it.
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(why) => return Err(named(why, path)),
    }
    Ok(Some(path.to_owned()))
}

/// Returns a file name for the path of a setting.
fn name_of(path: &Path) -> String {
    blake3::hash(path.as_os_str().as_bytes()).to_hex()[..32].to_owned()
}

fn named(why: io::Error, path: &Path) -> io::Error {
    io::Error::new(why.kind(), format!("{}: {why}", path.display()))
}

fn busy(why: rustix::io::Errno, path: &Path) -> io::Error {
    match why {
        rustix::io::Errno::EXIST => {
            let text = format!("{}: another process has changed it", path.display());
            io::Error::new(io::ErrorKind::ResourceBusy, text)
        }
        why => named(why.into(), path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    struct Fake {
        folder: tempfile::TempDir,
    }

    impl Fake {
        fn new(value: &str) -> Self {
            let fake = Self { folder: tempfile::tempdir().unwrap() };
            fs::write(fake.setting(), value).unwrap();
            fake
        }

        fn setting(&self) -> PathBuf {
            self.folder.path().join("scaling_max_freq")
        }

        fn records(&self) -> PathBuf {
            self.folder.path().join("records")
        }

        fn value(&self) -> String {
            fs::read_to_string(self.setting()).unwrap().trim().to_owned()
        }

        fn record(&self) -> io::Result<Setting> {
            Setting::record_in(&self.records(), &self.setting())
        }

        fn count(&self) -> usize {
            fs::read_dir(self.records()).unwrap().count()
        }

        /// Runs a process that changes the setting and whose restorer is killed before it.
        fn all_killed(&self, value: &str) {
            crate::forked::die_after(|| {
                let setting = self.record().unwrap();
                setting.set(value).unwrap();
                setting._restorer.kill();
                std::mem::forget(setting);
            });
        }
    }

    fn nothing_left(fake: &Fake) -> bool {
        let left = restore_left_in(&fake.records());
        assert!(left.failed.is_empty(), "{left:?}");
        left.restored.is_empty()
    }

    #[test]
    fn a_setting_that_cannot_be_restored_is_reported_and_its_record_kept() {
        let fake = Fake::new("4000000\n");
        fake.all_killed("800000");
        // Its path no longer leads to a file, which fails for root too.
        fs::remove_file(fake.setting()).unwrap();
        fs::create_dir(fake.setting()).unwrap();
        let left = restore_left_in(&fake.records());
        assert_eq!((left.restored.len(), left.failed.len(), fake.count()), (0, 1, 1));
        let line = left.failed[0].to_string();
        for part in ["scaling_max_freq", "directory", "second line", "records"] {
            assert!(line.contains(part), "{part}: {line}");
        }
        assert_eq!(line.lines().count(), 1);
    }

    #[test]
    fn a_change_is_reverted_when_dropped() {
        let fake = Fake::new("4000000\n");
        let setting = fake.record().unwrap();
        assert_eq!((setting.original(), fake.count()), ("4000000", 1));
        setting.set("800000").unwrap();
        assert_eq!(fake.value(), "800000");
        assert!(nothing_left(&fake), "its process is alive");
        let second = fake.record().unwrap_err().to_string();
        assert!(second.contains("another process"), "{second}");
        drop(setting);
        assert_eq!((fake.value().as_str(), fake.count()), ("4000000", 0));
    }

    #[test]
    fn the_next_run_restores_an_abandoned_setting() {
        let fake = Fake::new("4000000\n");
        fake.all_killed("800000");
        assert_eq!((fake.value().as_str(), fake.count()), ("800000", 1));
        let left = restore_left_in(&fake.records());
        assert_eq!(left.restored, [fake.setting()]);
        assert!(left.failed.is_empty(), "{left:?}");
        assert_eq!((fake.value().as_str(), fake.count()), ("4000000", 0));
        assert!(nothing_left(&fake));
    }

    #[test]
    fn a_changed_value_is_not_taken_for_the_original() {
        let fake = Fake::new("4000000\n");
        fake.all_killed("800000");
        let setting = fake.record().unwrap();
        assert_eq!(setting.original(), "4000000");
        drop(setting);
        assert_eq!(fake.value(), "4000000");
    }

    /// Several runs on one machine, some of which start while another creates a record.
    #[test]
    fn a_record_being_created_is_not_taken_for_stale() {
        let fake = Fake::new("4000000\n");
        drop(fake.record().unwrap());
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        assert!(nothing_left(&fake), "its process is alive");
                    }
                });
            }
            // A panic must not leave the threads waiting.
            let round = |_| {
                let setting = fake.record()?;
                setting.set("800000")?;
                let named = is_named(&setting.record, &setting.folder, &setting.name);
                Ok((setting.original().to_owned(), named))
            };
            let rounds: Vec<io::Result<_>> = (0..60).map(round).collect();
            over.store(true, Ordering::Relaxed);
            for round in rounds {
                assert_eq!(round.unwrap(), ("4000000".to_owned(), Ok(true)));
            }
        });
        assert_eq!((fake.value().as_str(), fake.count()), ("4000000", 0));
    }

    #[test]
    fn a_record_that_another_process_replaced_is_left_alone() {
        let fake = Fake::new("4000000\n");
        let setting = fake.record().unwrap();
        setting.set("800000").unwrap();
        let name = fake.records().join(&setting.name);
        fs::remove_file(&name).unwrap();
        fs::write(&name, "another's").unwrap();
        drop(setting);
        assert_eq!((fake.value().as_str(), fake.count()), ("800000", 1));
        // A record that never got its final name belongs to no change either.
        let text = format!("{}\n7", fake.setting().display());
        fs::write(fake.records().join("first.1.2"), text).unwrap();
        assert!(nothing_left(&fake));
        assert_eq!((fake.value().as_str(), fake.count()), ("800000", 0));
    }

    #[test]
    fn an_unfinished_record_changes_nothing() {
        let fake = Fake::new("4000000\n");
        drop(fake.record().unwrap());
        for text in ["", "/nowhere", "/nowhere\n", "/nowhere/at/all\n7"] {
            fs::write(fake.records().join("record"), text).unwrap();
            assert!(nothing_left(&fake), "{text:?}");
            assert_eq!((fake.value().as_str(), fake.count()), ("4000000", 0), "{text:?}");
        }
    }

    #[test]
    fn records_of_other_users_are_not_followed() {
        let fake = Fake::new("4000000\n");
        let elsewhere = fake.folder.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        symlink(&elsewhere, fake.records()).unwrap();
        assert!(fake.record().is_err());
        fs::remove_file(fake.records()).unwrap();
        fs::create_dir(fake.records()).unwrap();
        fs::set_permissions(fake.records(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(fake.record().unwrap_err().to_string().contains("other users can write"));
        let planted = format!("{}\n1", fake.setting().display());
        fs::write(fake.records().join("record"), planted).unwrap();
        let left = restore_left_in(&fake.records());
        assert!(left.restored.is_empty());
        // A folder that others can write to concerns root only: other users have nothing to restore.
        assert_eq!(left.failed.len(), usize::from(user::id() == 0));
        assert!(left.failed.iter().all(|why| why.to_string().contains("other users can write")));
        assert_eq!(fake.value(), "4000000");
    }

    #[test]
    fn without_records_nothing_is_left() {
        assert!(nothing_left(&Fake::new("4000000\n")));
    }
}
