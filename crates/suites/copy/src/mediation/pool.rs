//! A range as the mediator holds it, and the address window where hosts map the pool.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::ptr;

use lab::sample::Failure;
use machine::mapping::Mapping;
use machine::memfd::Memfd;

/// One range: its memfd, and the mediator's mapping of it.
#[derive(Debug)]
pub(super) struct MediatedRange {
    memfd: Memfd,
    mapping: Mapping,
}

impl MediatedRange {
    /// Creates a range of zeros with all pages present.
    ///
    /// # Errors
    /// Returns an error if there is not enough memory.
    pub(super) fn new(length: usize) -> Result<Self, Failure> {
        let memfd = Memfd::create("tollgate-mediation", length)?;
        let mapping = Mapping::shared(&memfd, length)?;
        mapping.prefault()?;
        Ok(Self { memfd, mapping })
    }

    /// Moves the contents to a new memfd and truncates the old one to zero.
    ///
    /// # Errors
    /// Returns an error if there is not enough memory.
    pub(super) fn renew(&mut self) -> Result<(), Failure> {
        let new = Self::new(self.mapping.len())?;
        // SAFETY: both mappings have this length; no host writes while a rule changes.
        unsafe {
            ptr::copy_nonoverlapping(
                self.mapping.as_ptr(),
                new.mapping.as_mut_ptr(),
                self.mapping.len(),
            );
        }
        let Self { memfd, mapping } = std::mem::replace(self, new);
        drop(mapping);
        rustix::fs::ftruncate(&memfd, 0).map_err(io::Error::from)?;
        Ok(())
    }

    /// Returns the descriptor for reading and writing.
    pub(super) fn descriptor(&self) -> RawFd {
        self.memfd.as_fd().as_raw_fd()
    }

    /// Opens the same memory with a descriptor that the kernel never maps writable.
    ///
    /// # Errors
    /// Returns an error if /proc is not mounted.
    pub(super) fn read_only(&self) -> Result<File, Failure> {
        let path = format!("/proc/self/fd/{}", self.descriptor());
        OpenOptions::new().read(true).open(&path).map_err(|why| {
            Failure::unavailable(
                format!("{path}: {why}"),
                "mount /proc, so that a descriptor can be opened read-only",
            )
        })
    }

    /// Returns the address of the first byte.
    pub(super) fn as_ptr(&self) -> *const u8 {
        self.mapping.as_ptr()
    }

    fn word(&self, within: usize) -> *mut u64 {
        assert!(within.is_multiple_of(8) && within + 8 <= self.mapping.len());
        self.mapping.as_mut_ptr().wrapping_add(within).cast()
    }

    /// Stores a word at an offset.
    pub(super) fn put(&self, within: usize, value: u64) {
        // SAFETY: the word is in the mapping; no host accesses it concurrently.
        unsafe { self.word(within).write_volatile(value) };
    }

    /// Loads the word at an offset.
    pub(super) fn get(&self, within: usize) -> u64 {
        // SAFETY: the word is in the mapping; no host accesses it concurrently.
        unsafe { self.word(within).read_volatile() }
    }
}

/// Reserved addresses, inaccessible until a host maps the pool there.
#[derive(Debug)]
pub(super) struct Window {
    start: *mut u8,
    length: usize,
}

impl Window {
    /// Reserves `length` bytes of addresses.
    ///
    /// # Errors
    /// Returns the error of mmap(2).
    pub(super) fn reserve(length: usize) -> Result<Self, Failure> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses an unused span.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), length, ProtFlags::empty(), flags) };
        Ok(Self { start: start.map_err(io::Error::from)?.cast(), length })
    }

    /// Returns the first address; it is the same in every process forked from this one.
    pub(super) fn start(&self) -> *mut u8 {
        self.start
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: this value owns the span, and this process has no pointers into it.
        let _ = unsafe { rustix::mm::munmap(self.start.cast(), self.length) };
    }
}
