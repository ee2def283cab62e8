//! Memory with a file descriptor, which a child may inherit and map too.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

/// An anonymous file in memory.
#[derive(Debug)]
pub struct Memfd {
    file: File,
}

impl Memfd {
    /// A new one of so many bytes, all zero. Children do not inherit it until [`Memfd::inherit`].
    ///
    /// # Errors
    /// The kernel's, with EFBIG or ENOMEM for a length that it cannot give.
    pub fn create(name: &str, length: usize) -> io::Result<Self> {
        let file = File::from(memfd_create(CString::new(name)?, MemfdFlags::CLOEXEC)?);
        file.set_len(length as u64)?;
        Ok(Self { file })
    }

    /// The one that a parent passed under this number. It is duplicated, so that this value owns its own.
    ///
    /// # Errors
    /// EBADF where the number is not open.
    pub fn open(fd: RawFd) -> io::Result<Self> {
        // SAFETY: the number is only an argument: the kernel checks it and makes a new descriptor.
        let duplicate = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
        if duplicate < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
        let owned = unsafe { OwnedFd::from_raw_fd(duplicate) };
        Ok(Self { file: File::from(owned) })
    }

    /// Lets children inherit the descriptor; the number to tell them.
    ///
    /// # Errors
    /// The kernel's.
    pub fn inherit(&self) -> io::Result<RawFd> {
        let flags = fcntl_getfd(&self.file)?;
        fcntl_setfd(&self.file, flags.difference(FdFlags::CLOEXEC))?;
        Ok(self.file.as_raw_fd())
    }

    /// Bytes.
    ///
    /// # Errors
    /// The kernel's.
    pub fn length(&self) -> io::Result<usize> {
        Ok(self.file.metadata()?.len() as usize)
    }
}

impl AsFd for Memfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_child_sees_only_what_is_let_through() {
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
    fn opened_by_number() {
        let memfd = Memfd::create("test", 12345).unwrap();
        let other = Memfd::open(memfd.as_fd().as_raw_fd()).unwrap();
        assert_eq!(other.length().unwrap(), 12345);
        assert_ne!(other.as_fd().as_raw_fd(), memfd.as_fd().as_raw_fd());
        assert_eq!(Memfd::open(-1).unwrap_err().raw_os_error(), Some(libc::EBADF));
    }
}
