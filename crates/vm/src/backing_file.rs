//! Files of this machine that are the memory of guests' devices.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use lab::sample::Failure;
use machine::memfd::Memfd;
use rustix::fs::{FallocateFlags, OFlags, fstat, fstatvfs};

/// End of the placeholder of a file's length.
pub(crate) const SIZE_SUFFIX: &str = ".size";

/// A file of this machine that is a device's memory.
#[derive(Debug, Clone)]
pub struct BackingFile {
    /// Name by which arguments refer to it: `{name}`.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
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
    /// Locks a folder: exclusively, or shared with the other hosts of a guest.
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
                ErrorKind::NotFound => (why.to_string(), "create the folder"),
                ErrorKind::PermissionDenied => {
                    (why.to_string(), "give this user access to the folder")
                }
                _ => (why.to_string(), "use a file system with locks (flock)"),
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
            (_, ErrorKind::AlreadyExists) => {
                "remove the file, or choose another folder with --guest-files"
            }
            _ => "choose another folder with --guest-files",
        };
        let content = content
            .map_err(|why| format!("backing file '{name}' of {bytes} B: {why}; {}", fix(&why)))?;
        Ok(Self { name: name.into(), bytes, content: Arc::new(content) })
    }

    /// Returns it as a file.
    ///
    /// # Errors
    /// Returns one line if the process has too many files.
    pub(crate) fn to_file(&self) -> Result<File, String> {
        let copy = self.fd().try_clone_to_owned();
        copy.map(File::from).map_err(|why| format!("backing file '{}': {why}", self.name))
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match &*self.content {
            Backing::Memory(memory) => memory.as_fd(),
            Backing::File { file, .. } => file.as_fd(),
        }
    }

    /// Returns its path as a value of an option of QEMU, which inherits its descriptor; that is added to `held`.
    ///
    /// # Errors
    /// Returns one line if another process changed its length, and the error of `fcntl(2)`.
    pub(crate) fn path_for_child(&self, held: &mut Vec<OwnedFd>) -> Result<String, Failure> {
        let copy = self.fd().try_clone_to_owned()?;
        let found = u64::try_from(fstat(&copy).map_err(io::Error::from)?.st_size).unwrap_or(0);
        if found != self.bytes {
            let (name, bytes) = (&self.name, self.bytes);
            let why = format!(
                "backing file '{name}' of {bytes} B has {found} B: another process changed it; remove the file and run again"
            );
            return Err(Failure::failed(why));
        }
        let path = inherited(&copy)?;
        held.push(copy);
        Ok(path)
    }
}

/// Lets children inherit a descriptor and returns the path by which they open it.
pub(crate) fn inherited(fd: &OwnedFd) -> io::Result<String> {
    Ok(format!("/proc/self/fd/{}", machine::memfd::inherit(fd)?))
}

/// Opens a file of this length, or creates it, with all its blocks: a store to a block that a full disk lacks would kill its
/// process. Another host of the guest may create it at the same time, so it has its name only once it is complete.
fn open_in(path: &Path, bytes: u64) -> io::Result<File> {
    if let Some(file) = open_existing(path, bytes)? {
        return Ok(file);
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    let new = tempfile::NamedTempFile::new_in(folder)?;
    allocate(new.as_file(), bytes)?;
    match new.persist_noclobber(path) {
        Ok(file) => Ok(file),
        Err(why) if why.error.kind() == ErrorKind::AlreadyExists => open_existing(path, bytes)?
            .ok_or_else(|| io::Error::other(format!("another process removed {}", path.display()))),
        Err(why) => Err(why.error),
    }
}

/// Opens a file of this length; `None` if there is none.
fn open_existing(path: &Path, bytes: u64) -> io::Result<Option<File>> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = match File::options().read(true).write(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(why) if why.kind() == ErrorKind::NotFound => return Ok(None),
        Err(why) => return Err(why),
    };
    let found = file.metadata()?;
    let what = match found.len() {
        _ if !found.is_file() => "is not a regular file".into(),
        length if length != bytes => format!("has {length} B"),
        _ => {
            allocate(&file, bytes)?;
            return Ok(Some(file));
        }
    };
    let why = format!("{} exists and {what}", path.display());
    Err(io::Error::new(ErrorKind::AlreadyExists, why))
}

/// Allocates the blocks that a file lacks; none if there is no space for all.
fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    let lacks = bytes.saturating_sub(file.metadata()?.blocks().saturating_mul(512));
    let disk = fstatvfs(file)?;
    if disk.f_bavail.saturating_mul(disk.f_frsize) < lacks {
        return Err(ErrorKind::StorageFull.into());
    }
    rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

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
        assert!(why.contains("free space, or choose another folder"), "{why}");
        // A file with holes keeps them.
        let sparse = File::create(folder.path().join("sparse")).unwrap();
        sparse.set_len(1 << 43).unwrap();
        let why = create(folder.path(), "sparse", 1 << 43).unwrap_err();
        assert!(why.contains("free space"), "{why}");
        assert!(sparse.metadata().unwrap().blocks() < 100);
    }

    #[test]
    fn hosts_that_start_together_have_one_file() {
        for _ in 0..20 {
            let folder = tempfile::tempdir().unwrap();
            let start = std::sync::Barrier::new(4);
            let open = || {
                start.wait();
                let file = create(folder.path(), "bar", 1 << 20).unwrap().to_file().unwrap();
                file.metadata().unwrap().ino()
            };
            let found: std::collections::BTreeSet<u64> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(open)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(found.len(), 1);
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no other file remains");
        }
    }

    #[test]
    fn a_file_that_was_truncated_is_not_passed_to_a_guest() {
        let folder = tempfile::tempdir().unwrap();
        let file = create(folder.path(), "bar", 8192).unwrap();
        file.to_file().unwrap().set_len(4096).unwrap();
        let why = file.path_for_child(&mut Vec::new()).unwrap_err().to_string();
        assert!(why.contains("of 8192 B has 4096 B"), "{why}");
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
        let exclusive = take(false).unwrap();
        assert!(take(true).is_err());
        drop(exclusive);
        let absent = FolderLock::take(Path::new("/no/such"), false).unwrap_err();
        assert!(
            absent.starts_with("/no/such: ") && absent.contains("create the folder"),
            "{absent}"
        );
    }
}
