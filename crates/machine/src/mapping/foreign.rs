//! Memory of a file that another process may truncate while it is mapped here.
//!
//! An access to a page that the file no longer has raises SIGBUS, which would end this process. A handler replaces such a
//! mapping with zeros instead, so that the access continues and a hostile owner of the file harms only itself.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::fs::{fstat, fstatfs};

use super::{Mapping, Sharing};
use crate::memfd::{HUGETLBFS, TMPFS};
use crate::{SysError, signal};

/// Maximum number of such mappings at a time.
const MAX_MAPPINGS: usize = 64;

/// One mapping, as the signal handler sees it.
struct Slot {
    taken: AtomicBool,
    start: AtomicUsize,
    /// Length in bytes; 0 while the slot is not in use.
    length: AtomicUsize,
    lost: AtomicBool,
}

static SLOTS: [Slot; MAX_MAPPINGS] = [const {
    Slot {
        taken: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        length: AtomicUsize::new(0),
        lost: AtomicBool::new(false),
    }
}; MAX_MAPPINGS];

/// A shared, writable mapping of a file in memory that belongs to another process.
///
/// If the owner truncates the file, the first access to a removed page replaces the whole mapping with zeros.
#[derive(Debug)]
pub struct ForeignMapping {
    mapping: Mapping,
    slot: usize,
}

impl ForeignMapping {
    /// Maps the first `length` bytes of a file.
    ///
    /// # Errors
    /// Returns an error if the file is not in memory (its owner could delay accesses forever), is shorter than `length`, or
    /// cannot be mapped, and if there are too many such mappings.
    pub fn map(file: &File, length: usize) -> Result<Self, SysError> {
        let attempt = || format!("map {length} B of another process's memory");
        let remedy = "pass a memfd, or a file on tmpfs or hugetlbfs, of sufficient length";
        let refused = |why: io::Error| SysError::new(attempt(), why, remedy);
        let kind = fstatfs(file).map_err(|why| refused(why.into()))?;
        if kind.f_type != TMPFS && kind.f_type != HUGETLBFS {
            return Err(SysError::invalid(attempt(), "the file is not in memory", remedy));
        }
        let has = fstat(file).map_err(|why| refused(why.into()))?.st_size;
        if usize::try_from(has).map_or(true, |has| has < length) {
            return Err(SysError::invalid(attempt(), format!("it has {has} B"), remedy));
        }
        // The kernel unmaps only whole pages, which on hugetlbfs are huge.
        let page = usize::try_from(kind.f_bsize).unwrap_or(super::PAGE).max(super::PAGE);
        let whole = length.checked_next_multiple_of(page).unwrap_or(length);
        handle_lost_pages().map_err(|why| refused(io::Error::from_raw_os_error(why)))?;
        let slot = SLOTS.iter().position(|slot| !slot.taken.swap(true, Ordering::AcqRel));
        let slot = slot.ok_or_else(|| {
            SysError::invalid(attempt(), format!("{MAX_MAPPINGS} are mapped"), "use fewer")
        })?;
        let mapping = Mapping::open_file(file, whole, Sharing::SharedWritable)
            .inspect_err(|_| SLOTS[slot].taken.store(false, Ordering::Release))?;
        SLOTS[slot].lost.store(false, Ordering::Relaxed);
        SLOTS[slot].start.store(mapping.as_ptr() as usize, Ordering::Relaxed);
        SLOTS[slot].length.store(whole, Ordering::Release);
        Ok(Self { mapping, slot })
    }

    /// Returns the first byte. Other processes may read and write the memory at any time.
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.mapping.as_mut_ptr()
    }

    /// Returns the length in bytes: whole pages.
    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    /// Returns false: an empty mapping cannot be created.
    pub fn is_empty(&self) -> bool {
        self.mapping.is_empty()
    }

    /// Returns whether the file was truncated, so that the memory is no longer shared.
    pub fn is_lost(&self) -> bool {
        SLOTS[self.slot].lost.load(Ordering::Acquire)
    }
}

impl Drop for ForeignMapping {
    fn drop(&mut self) {
        // Before the range is unmapped and may be used for something else.
        SLOTS[self.slot].length.store(0, Ordering::Release);
        SLOTS[self.slot].taken.store(false, Ordering::Release);
    }
}

/// Installs the handler once. It stays for the life of the process, like its slots.
///
/// # Errors
/// Returns the `errno` of `sigaction(2)`.
fn handle_lost_pages() -> Result<(), c_int> {
    static INSTALLED: OnceLock<Result<(), c_int>> = OnceLock::new();
    *INSTALLED.get_or_init(|| {
        // SAFETY: the handler reads atomics and calls `mmap(2)`, which is a single system call; the interrupted access is
        // repeated and succeeds.
        let installed = unsafe { signal::install(libc::SIGBUS, replace_lost, 0) };
        installed.map(|_| ()).map_err(|why| why.raw_os_error().unwrap_or(libc::EINVAL))
    })
}

/// Replaces the mapping that contains the faulting address with zeros.
extern "C" fn replace_lost(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel passes valid information, and SIGBUS has an address.
    let address = unsafe { (*info).si_addr() } as usize;
    for slot in &SLOTS {
        let length = slot.length.load(Ordering::Acquire);
        let start = slot.start.load(Ordering::Relaxed);
        if address.wrapping_sub(start) >= length {
            continue;
        }
        slot.lost.store(true, Ordering::Release);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the range belongs to a mapping of this module, whose users expect other processes to change it at any
        // time.
        let zeros = unsafe { libc::mmap(start as *mut c_void, length, protection, flags, -1, 0) };
        if zeros != libc::MAP_FAILED {
            return;
        }
    }
    signal::end_process(signal);
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::process::ExitStatusExt;
    use std::time::Duration;

    use super::*;
    use crate::memfd::Memfd;

    fn file(length: usize) -> File {
        let memfd = Memfd::create("test", length).unwrap();
        File::from(memfd.as_fd().try_clone_to_owned().unwrap())
    }

    #[test]
    fn a_truncated_file_reads_as_zeros() {
        let file = file(3 * 4096);
        let mapping = ForeignMapping::map(&file, 3 * 4096).unwrap();
        let byte = |at: usize| {
            // SAFETY: the byte is in the mapping, and only this test accesses it.
            unsafe { mapping.as_mut_ptr().add(at) }
        };
        for at in [0, 4096, 8192] {
            // SAFETY: see above.
            unsafe { byte(at).write_volatile(7) };
        }
        file.set_len(4096).unwrap();
        // SAFETY: see above.
        assert_eq!(unsafe { byte(0).read_volatile() }, 7);
        assert!(!mapping.is_lost(), "no removed page has been touched");
        // SAFETY: see above.
        let found = [8192, 4096, 0].map(|at| unsafe { byte(at).read_volatile() });
        assert_eq!((found, mapping.is_lost()), ([0, 0, 0], true));
        // SAFETY: see above.
        unsafe { byte(8192).write_volatile(9) };
        // SAFETY: see above.
        assert_eq!(unsafe { byte(8192).read_volatile() }, 9);
    }

    #[test]
    fn other_lost_memory_ends_the_process() {
        let mut child = crate::forked::fork(|| {
            let guarded = ForeignMapping::map(&file(4096), 4096).unwrap();
            let other = file(4096);
            let plain = Mapping::open_file(&other, 4096, Sharing::SharedWritable).unwrap();
            other.set_len(0).unwrap();
            // SAFETY: the page is mapped; it is missing, which ends the process.
            unsafe { plain.as_ptr().read_volatile() };
            drop(guarded);
        });
        let status = child.wait(Duration::from_secs(30)).unwrap();
        assert_eq!(status.and_then(|status| status.signal()), Some(libc::SIGBUS));
    }

    #[test]
    fn only_files_in_memory_of_sufficient_length_are_mapped() {
        assert!(ForeignMapping::map(&file(4096), 4097).is_err());
        assert!(ForeignMapping::map(&file(0), 0).is_err());
        let device = File::options().read(true).write(true).open("/dev/zero").unwrap();
        let why = ForeignMapping::map(&device, 4096).unwrap_err().to_string();
        assert!(why.contains("4096 B") && why.lines().count() == 1, "{why}");
    }

    #[test]
    fn slots_are_used_again() {
        let file = file(4096);
        for _ in 0..3 * MAX_MAPPINGS {
            drop(ForeignMapping::map(&file, 4096).unwrap());
        }
    }
}
