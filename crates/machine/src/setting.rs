//! System settings that are changed for a while, and put back however the change ends.
//!
//! Before a setting is changed, its original value is written to a record in [`RECORDS`] and synced. When the
//! guard is dropped the value is put back and the record removed; when the process dies, a
//! [restorer](crate::restorer) does both; and when that was killed too, the next run finds the record
//! ([`restore_left`]). The kernel's settings do not outlive a boot, and neither does the folder.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};

use crate::restorer::{Restore, Restorer};

/// Where the records are: root's own, for only root may change a setting.
pub const RECORDS: &str = "/run/tollgate";
/// No setting's path and value are longer, bytes.
const LONGEST: u64 = 8192;

/// A setting whose original value is recorded, and put back when this is dropped.
#[derive(Debug)]
pub struct Setting {
    path: PathBuf,
    original: String,
    folder: OwnedFd,
    name: String,
    // Before the record, so that no restorer is left when the lock is given up.
    _restorer: Restorer,
    /// Locked: whoever finds a record unlocked knows that its process is gone.
    _record: File,
}

impl Setting {
    /// Records the value of a setting, the text of a file such as `scaling_max_freq`. What an earlier process
    /// left changed is put back first.
    ///
    /// # Errors
    /// Where the setting cannot be read or written, or the record not be made, or another process has
    /// changed the same setting.
    pub fn record(path: &Path) -> io::Result<Self> {
        Self::record_in(Path::new(RECORDS), path)
    }

    /// The same with the records in another folder.
    ///
    /// # Errors
    /// As for [`Setting::record`].
    pub fn record_in(records: &Path, path: &Path) -> io::Result<Self> {
        let path = fs::canonicalize(path)?;
        let folder = open_folder(records, true)?;
        let name = name_of(&path);
        put_back(&folder, &name)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW;
        let record = rustix::fs::openat(&folder, &name, flags | OFlags::CLOEXEC, Mode::RUSR);
        let mut record: File = record.map_err(|why| busy(why, &path))?.into();
        record.try_lock().map_err(|_| busy(rustix::io::Errno::EXIST, &path))?;
        let made = Self::filled(&mut record, &folder, &name, &path);
        let (original, restorer) = made.inspect_err(|_| {
            let _ = rustix::fs::unlinkat(&folder, &name, AtFlags::empty());
        })?;
        Ok(Self { path, original, folder, name, _restorer: restorer, _record: record })
    }

    /// Writes the record, then starts who puts the value back.
    fn filled(
        record: &mut File,
        folder: &OwnedFd,
        name: &str,
        path: &Path,
    ) -> io::Result<(String, Restorer)> {
        let original = fs::read_to_string(path)?.trim_end().to_owned();
        record.write_all(&[path.as_os_str().as_bytes(), b"\n", original.as_bytes()].concat())?;
        record.sync_all()?;
        rustix::fs::fsync(folder)?;
        let restore = Restore::file(path, &original)?.and_remove(folder.try_clone()?, name)?;
        Ok((original, Restorer::start(restore)?))
    }

    /// The value as it was.
    pub fn original(&self) -> &str {
        &self.original
    }

    /// Changes the setting.
    ///
    /// # Errors
    /// Where the kernel refuses the value.
    pub fn set(&self, value: &str) -> io::Result<()> {
        fs::write(&self.path, value)
    }

    /// Puts the value back for now; it may be changed again.
    ///
    /// # Errors
    /// Where the kernel refuses its own value.
    pub fn reset(&self) -> io::Result<()> {
        self.set(&self.original)
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        // Where this fails the record stays, and the next run tries again.
        if self.reset().is_ok() {
            let _ = rustix::fs::unlinkat(&self.folder, &self.name, AtFlags::empty());
        }
    }
}

/// Puts back every setting whose process is gone and did not; gives their paths. Without the right to, or
/// without records, there are none.
pub fn restore_left() -> Vec<PathBuf> {
    restore_left_in(Path::new(RECORDS))
}

/// The same with the records in another folder.
pub fn restore_left_in(records: &Path) -> Vec<PathBuf> {
    let Ok(folder) = open_folder(records, false) else { return Vec::new() };
    let names = fs::read_dir(records).into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| put_back(&folder, &name).ok().flatten()).collect()
}

/// Opens the folder of the records, which is this user's own and which nobody else can write to.
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
        return Err(named(io::Error::other("others may write to it"), records));
    }
    Ok(folder)
}

/// Puts a setting back by its record, where there is one whose process is gone.
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
    let put = restored(record)?;
    rustix::fs::unlinkat(folder, name, AtFlags::empty())?;
    Ok(put)
}

/// Writes a recorded value to its setting. A record that was not finished was of no change.
fn restored(mut record: File) -> io::Result<Option<PathBuf>> {
    let mut bytes = Vec::new();
    record.rewind()?;
    record.take(LONGEST).read_to_end(&mut bytes)?;
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
    let (path, value) = (Path::new(OsStr::from_bytes(&bytes[..end])), &bytes[end + 1..]);
    if value.is_empty() {
        return Ok(None);
    }
    match OpenOptions::new().write(true).open(path) {
        Ok(mut file) => file.write_all(value).map_err(|why| named(why, path))?,
        // The CPU or the driver is gone, and its setting with it.
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(why) => return Err(named(why, path)),
    }
    Ok(Some(path.to_owned()))
}

/// One file name for a setting's path, whatever it contains.
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

        /// A process that changes the setting, and whose restorer is killed before it.
        fn all_killed(&self, value: &str) {
            // SAFETY: the child makes files and a process, waits for nothing of other threads, and ends.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let setting = self.record().unwrap();
                setting.set(value).unwrap();
                setting._restorer.kill();
                // SAFETY: numbers only; no destructor runs.
                unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            }
            // SAFETY: reaps the child.
            unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        }
    }

    #[test]
    fn a_change_is_put_back_when_it_is_dropped() {
        let fake = Fake::new("4000000\n");
        let setting = fake.record().unwrap();
        assert_eq!((setting.original(), fake.count()), ("4000000", 1));
        setting.set("800000").unwrap();
        assert_eq!(fake.value(), "800000");
        assert!(restore_left_in(&fake.records()).is_empty(), "its process lives");
        let second = fake.record().unwrap_err().to_string();
        assert!(second.contains("another process"), "{second}");
        drop(setting);
        assert_eq!((fake.value().as_str(), fake.count()), ("4000000", 0));
    }

    #[test]
    fn the_next_run_puts_back_what_nobody_was_left_to() {
        let fake = Fake::new("4000000\n");
        fake.all_killed("800000");
        assert_eq!((fake.value().as_str(), fake.count()), ("800000", 1));
        assert_eq!(restore_left_in(&fake.records()), [fake.setting()]);
        assert_eq!((fake.value().as_str(), fake.count()), ("4000000", 0));
        assert!(restore_left_in(&fake.records()).is_empty());
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

    #[test]
    fn a_record_that_was_not_finished_changes_nothing() {
        let fake = Fake::new("4000000\n");
        drop(fake.record().unwrap());
        for text in ["", "/nowhere", "/nowhere\n", "/nowhere/at/all\n7"] {
            fs::write(fake.records().join("record"), text).unwrap();
            assert!(restore_left_in(&fake.records()).is_empty(), "{text:?}");
            assert_eq!((fake.value().as_str(), fake.count()), ("4000000", 0), "{text:?}");
        }
    }

    #[test]
    fn records_of_others_are_not_followed() {
        let fake = Fake::new("4000000\n");
        let elsewhere = fake.folder.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        symlink(&elsewhere, fake.records()).unwrap();
        assert!(fake.record().is_err());
        fs::remove_file(fake.records()).unwrap();
        fs::create_dir(fake.records()).unwrap();
        fs::set_permissions(fake.records(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(fake.record().unwrap_err().to_string().contains("others may write"));
        let planted = format!("{}\n1", fake.setting().display());
        fs::write(fake.records().join("record"), planted).unwrap();
        assert!(restore_left_in(&fake.records()).is_empty());
        assert_eq!(fake.value(), "4000000");
    }
}
