//! Files of the host that are the memory of guests' devices.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use lab::sample::Failure;
use machine::mapping::{Mapping, Sharing};
use machine::memfd::Memfd;
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

/// A file of the host that is a device's memory.
#[derive(Debug, Clone)]
pub struct BackingFile {
    /// Name by which arguments refer to it: `{name}`.
    pub name: String,
    /// Its content, which several guests can share.
    pub content: Arc<Backing>,
}

/// Where the content of a [`BackingFile`] is.
#[derive(Debug)]
pub enum Backing {
    /// Anonymous memory.
    Memory(Memfd),
    /// A file. It stays open, so that every process has the file that was checked.
    File {
        /// The file.
        file: File,
        /// The lock of its folder.
        _lock: Arc<FolderLock>,
    },
}

/// The lock of a folder of backing files, which other guests must not use at the same time.
#[derive(Debug)]
pub struct FolderLock(File);

/// A locked folder of backing files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Folder<'a> {
    pub(crate) path: &'a Path,
    pub(crate) lock: &'a Arc<FolderLock>,
}

impl FolderLock {
    /// Locks a folder: alone, or shared with the other hosts of a guest.
    ///
    /// # Errors
    /// Returns one line if the folder does not exist or is in use.
    pub(crate) fn take(folder: &Path, is_shared: bool) -> Result<Self, String> {
        let locked = File::open(folder).and_then(|file| {
            let lock = if is_shared { file.try_lock_shared() } else { file.try_lock() };
            lock.map(|()| file).map_err(io::Error::from)
        });
        locked.map(Self).map_err(|why| {
            let (what, fix) = match why.kind() {
                ErrorKind::WouldBlock => ("another guest uses it".into(), "end that guest"),
                _ => (why.to_string(), "create the folder"),
            };
            let folder = folder.display();
            format!("{folder}: {what}; {fix}, or choose another with --guest-files")
        })
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // A process that another thread has just forked shares the file until it executes another program.
        let _ = self.0.unlock();
    }
}

impl BackingFile {
    /// Creates a file of this length, in memory or in `folder`; there, one that exists keeps its content.
    ///
    /// # Errors
    /// Returns one line if it cannot be made.
    pub(crate) fn create(name: &str, bytes: u64, folder: Option<Folder>) -> Result<Self, String> {
        let content = match folder {
            None => usize::try_from(bytes)
                .map_err(std::io::Error::other)
                .and_then(|bytes| Memfd::create(name, bytes))
                .map(Backing::Memory),
            Some(folder) => {
                let file = open_in(&folder.path.join(name), bytes);
                file.map(|file| Backing::File { file, _lock: folder.lock.clone() })
            }
        };
        let fix = |why: &io::Error| match (folder, why.kind()) {
            (None, _) => "name a folder with --guest-files",
            (_, ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {
                "free space, or choose another folder with --guest-files"
            }
            _ => "remove the file, or choose another folder with --guest-files",
        };
        let content = content
            .map_err(|why| format!("backing file '{name}' of {bytes} B: {why}; {}", fix(&why)))?;
        Ok(Self { name: name.into(), content: Arc::new(content) })
    }

    /// Maps it, for reading and writing.
    ///
    /// # Errors
    /// Returns one line if it cannot be mapped.
    pub(crate) fn map(&self, length: usize) -> Result<Mapping, String> {
        let failed = |why: &dyn Display| {
            format!("map backing file '{}': {why}; choose another --guest-files folder", self.name)
        };
        match &*self.content {
            Backing::Memory(memory) => Mapping::shared(memory, length).map_err(|why| failed(&why)),
            Backing::File { file, .. } => Mapping::open_file(file, length, Sharing::SharedWritable)
                .map_err(|why| failed(&why)),
        }
    }

    /// Returns its path as a value of an option of QEMU, which inherits its descriptor; that is added to `held`.
    ///
    /// # Errors
    /// Returns the error of `fcntl(2)`.
    pub(crate) fn path_for_child(&self, held: &mut Vec<OwnedFd>) -> Result<String, Failure> {
        let fd = match &*self.content {
            Backing::Memory(memory) => memory.as_fd(),
            Backing::File { file, .. } => file.as_fd(),
        };
        let copy = fd.try_clone_to_owned()?;
        let path = inherited(&copy)?;
        held.push(copy);
        Ok(path)
    }
}

/// Lets children inherit a descriptor and returns the path by which they open it.
pub(crate) fn inherited(fd: &OwnedFd) -> io::Result<String> {
    fcntl_setfd(fd, fcntl_getfd(fd)?.difference(FdFlags::CLOEXEC))?;
    Ok(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

/// Opens a file of this length, or creates it and allocates all its blocks: a store to a block that a full disk lacks would
/// kill its process. A file that cannot be allocated is removed.
fn open_in(path: &Path, bytes: u64) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let mut options = File::options();
    options.read(true).write(true).custom_flags(flags);
    match options.clone().create_new(true).open(path) {
        Ok(file) => {
            let allocated = rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes);
            allocated.inspect_err(|_| drop(fs::remove_file(path)))?;
            Ok(file)
        }
        Err(why) if why.kind() == ErrorKind::AlreadyExists => {
            let file = options.open(path)?;
            let found = file.metadata()?;
            let what = match found.len() {
                _ if !found.is_file() => "is not a regular file".into(),
                length if length != bytes => format!("has {length} B"),
                _ => {
                    // It may have holes.
                    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes)?;
                    return Ok(file);
                }
            };
            Err(io::Error::other(format!("{} exists and {what}", path.display())))
        }
        Err(why) => Err(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(folder: &Path, name: &str, bytes: u64) -> Result<BackingFile, String> {
        let lock = Arc::new(FolderLock::take(folder, true)?);
        BackingFile::create(name, bytes, Some(Folder { path: folder, lock: &lock }))
    }

    #[test]
    fn a_file_of_another_length_is_refused_and_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bar");
        create(folder.path(), "bar", 8192).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 8192);
        create(folder.path(), "bar", 8192).unwrap();
        for other in [4096, 16384] {
            let why = create(folder.path(), "bar", other).unwrap_err();
            assert!(why.contains("bar exists and has 8192 B; remove the file"), "{why}");
        }
        assert_eq!(fs::metadata(&path).unwrap().len(), 8192);
        std::os::unix::fs::symlink("/dev/null", folder.path().join("link")).unwrap();
        assert!(create(folder.path(), "link", 4096).is_err());
    }

    #[test]
    fn a_file_for_which_there_is_no_space_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        // More than any disk has.
        let why = create(folder.path(), "bar", 1 << 46).unwrap_err();
        assert!(fs::read_dir(folder.path()).unwrap().next().is_none(), "{why}");
        let full = "free space, or choose another folder";
        assert!(why.contains(full) || why.contains("File too large"), "{why}");
    }

    #[test]
    fn a_guest_has_the_file_that_was_checked() {
        let folder = tempfile::tempdir().unwrap();
        let file = create(folder.path(), "bar", 4096).unwrap();
        fs::rename(folder.path().join("bar"), folder.path().join("other")).unwrap();
        fs::write(folder.path().join("bar"), "planted").unwrap();
        let mut held = Vec::new();
        let path = file.path_for_child(&mut held).unwrap();
        assert_eq!(fs::metadata(path).unwrap().len(), 4096);
    }

    #[test]
    fn one_guest_at_a_time_uses_a_folder_unless_its_hosts_share_it() {
        let folder = tempfile::tempdir().unwrap();
        let take = |is_shared| FolderLock::take(folder.path(), is_shared);
        let hosts = [take(true).unwrap(), take(true).unwrap()];
        assert!(take(false).unwrap_err().contains("another guest uses it; end that guest"));
        drop(hosts);
        let alone = take(false).unwrap();
        assert!(take(true).is_err());
        drop(alone);
        let absent = FolderLock::take(Path::new("/no/such"), false).unwrap_err();
        assert!(
            absent.starts_with("/no/such: ") && absent.contains("create the folder"),
            "{absent}"
        );
    }
}
