//! Shared memory with a file descriptor, which a child may inherit and map.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{
    FsWord, MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstatfs, memfd_create,
};
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

use crate::huge_pages;
use crate::mapping::PAGE;

/// The seals that fix a memfd's length.
const FIXED_LENGTH: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// The file system type of memfds, and of files in memory, with small pages.
pub(crate) const TMPFS: FsWord = libc::TMPFS_MAGIC;
/// The file system type of memfds, and of files in memory, with huge pages.
pub(crate) const HUGETLBFS: FsWord = libc::HUGETLBFS_MAGIC;

/// An anonymous file in memory.
#[derive(Debug)]
pub struct Memfd {
    file: File,
}

impl Memfd {
    /// Creates a memfd of `length` zero bytes. Children do not inherit it until [`Memfd::inherit`].
    ///
    /// # Errors
    /// Returns the kernel's error, e.g. EFBIG or ENOMEM for an excessive length.
    pub fn create(name: &str, length: usize) -> io::Result<Self> {
        let file = File::from(memfd_create(CString::new(name)?, MemfdFlags::CLOEXEC)?);
        file.set_len(length as u64)?;
        Ok(Self { file })
    }

    /// Creates a memfd with this content.
    ///
    /// # Errors
    /// As [`Memfd::create`].
    pub fn with_content(name: &str, content: &[u8]) -> io::Result<Self> {
        let memory = Self::create(name, content.len())?;
        memory.file.write_all_at(content, 0)?;
        Ok(memory)
    }

    /// Creates a memfd of `length` zero bytes whose length can never change, so that receivers can rely on
    /// it.
    ///
    /// # Errors
    /// See [`Memfd::create`].
    pub fn sealed(name: &str, length: usize) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(memfd_create(CString::new(name)?, flags)?);
        file.set_len(length as u64)?;
        fcntl_add_seals(&file, FIXED_LENGTH | SealFlags::SEAL)?;
        Ok(Self { file })
    }

    /// Creates a memfd of `length` zero bytes in 2 MiB pages of the pool, whose length can never change. The pages are taken
    /// from the pool when they are mapped.
    ///
    /// # Errors
    /// Returns the kernel's error, e.g. EINVAL unless `length` is a multiple of 2 MiB.
    pub fn sealed_huge(name: &str, length: usize) -> io::Result<Self> {
        let huge = MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | huge;
        let file = File::from(memfd_create(CString::new(name)?, flags)?);
        file.set_len(length as u64)?;
        fcntl_add_seals(&file, FIXED_LENGTH | SealFlags::SEAL)?;
        Ok(Self { file })
    }

    /// Returns the size of its pages in bytes.
    ///
    /// # Errors
    /// Returns the error of `fstatfs(2)`.
    pub fn page(&self) -> io::Result<usize> {
        let is_huge = fstatfs(&self.file)?.f_type == HUGETLBFS;
        Ok(if is_huge { huge_pages::SIZE } else { PAGE })
    }

    /// Takes a memfd received from another process. Its length must be sealed: otherwise the sender could
    /// remove pages that are mapped here, and access to them would kill this process.
    ///
    /// # Errors
    /// Returns EINVAL if it is not a memfd of sealed length, EPERM if it may not be written.
    pub fn received(fd: OwnedFd) -> io::Result<Self> {
        let seals = fcntl_get_seals(&fd)?;
        // A huge page that was released may not be available again.
        if !seals.contains(FIXED_LENGTH) || fstatfs(&fd)?.f_type != TMPFS {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(Self { file: File::from(fd) })
    }

    /// Opens the memfd that a parent passed under this number. The number is duplicated, so that this
    /// value owns its descriptor.
    ///
    /// # Errors
    /// Returns EBADF if the number is not open.
    pub fn open(fd: RawFd) -> io::Result<Self> {
        // SAFETY: the number is only an argument: the kernel checks it and creates a new descriptor.
        let duplicate = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
        if duplicate < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just created this descriptor, and nothing else owns it.
        let owned = unsafe { OwnedFd::from_raw_fd(duplicate) };
        Ok(Self { file: File::from(owned) })
    }

    /// Lets children inherit the descriptor and returns its number.
    ///
    /// # Errors
    /// Returns the error of `fcntl(2)`.
    pub fn inherit(&self) -> io::Result<RawFd> {
        inherit(&self.file)
    }

    /// Returns another descriptor of the same memory.
    ///
    /// # Errors
    /// Returns the error of `fcntl(2)`.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { file: self.file.try_clone()? })
    }

    /// Returns the length in bytes.
    ///
    /// # Errors
    /// Returns the error of `fstat(2)`.
    pub fn length(&self) -> io::Result<usize> {
        Ok(self.file.metadata()?.len() as usize)
    }
}

impl AsFd for Memfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Lets children inherit a descriptor and returns its number.
///
/// # Errors
/// Returns the error of `fcntl(2)`.
pub fn inherit(fd: &(impl AsFd + AsRawFd)) -> io::Result<RawFd> {
    fcntl_setfd(fd, fcntl_getfd(fd)?.difference(FdFlags::CLOEXEC))?;
    Ok(fd.as_raw_fd())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_child_inherits_only_a_released_descriptor() {
        let memfd = Memfd::create("test", 4096).unwrap();
        let number = memfd.as_fd().as_raw_fd();
        let child_has_it = || {
            let status =
                Command::new("test").args(["-e", &format!("/proc/self/fd/{number}")]).status();
            status.unwrap().success()
        };
        assert!(!child_has_it());
        assert_eq!(memfd.inherit().unwrap(), number);
        assert!(child_has_it());
    }

    #[test]
    fn a_received_memfd_must_have_a_sealed_length() {
        let received = |memfd: &Memfd| Memfd::received(memfd.as_fd().try_clone_to_owned().unwrap());
        let fixed = Memfd::sealed("test", 5000).unwrap();
        assert_eq!(received(&fixed).unwrap().length().unwrap(), 5000);
        assert!(fixed.file.set_len(4000).is_err() && fixed.file.set_len(6000).is_err());
        assert!(received(&Memfd::create("test", 4096).unwrap()).is_err());
        let file = tempfile::tempfile().unwrap();
        assert!(Memfd::received(file.into()).is_err());
        let (pipe, _) = std::io::pipe().unwrap();
        assert!(Memfd::received(pipe.into()).is_err());
        let flags = MemfdFlags::ALLOW_SEALING;
        for seals in [SealFlags::SHRINK, SealFlags::GROW, FIXED_LENGTH | SealFlags::WRITE] {
            let file = File::from(memfd_create(c"test", flags).unwrap());
            fcntl_add_seals(&file, seals).unwrap();
            assert!(received(&Memfd { file }).is_err(), "{seals:?}");
        }
    }

    #[test]
    fn a_memfd_is_opened_by_number() {
        let memfd = Memfd::create("test", 12345).unwrap();
        let other = Memfd::open(memfd.as_fd().as_raw_fd()).unwrap();
        assert_eq!(other.length().unwrap(), 12345);
        assert_ne!(other.as_fd().as_raw_fd(), memfd.as_fd().as_raw_fd());
        assert_eq!(Memfd::open(-1).unwrap_err().raw_os_error(), Some(libc::EBADF));
    }
}
