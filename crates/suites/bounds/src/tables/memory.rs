//! Memory as the kernel gives it, by address, one call each: what is timed is these calls.

use std::io;
use std::ptr;

/// Private memory, all zero, none yet there.
///
/// # Errors
/// The kernel's: ENOMEM where there are too many mappings.
#[inline]
pub(super) fn map(bytes: usize) -> io::Result<usize> {
    flagged(bytes, 0)
}

/// The same with nothing set aside for it.
///
/// # Errors
/// The kernel's.
#[inline]
pub(super) fn reserve(bytes: usize) -> io::Result<usize> {
    flagged(bytes, libc::MAP_NORESERVE)
}

#[inline]
fn flagged(bytes: usize, flags: i32) -> io::Result<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the kernel chooses a new range; nothing else is replaced.
    let at = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(at as usize) }
}

/// Takes memory of [`map`] or [`reserve`] away.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// The range is memory from here, which nobody uses any more.
#[inline]
pub(super) unsafe fn unmap(at: usize, bytes: usize) -> io::Result<()> {
    // SAFETY: as the caller says.
    done(unsafe { libc::munmap(at as *mut _, bytes) })
}

/// Gives its pages back; the addresses stay, and read zero.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// The range is memory from here, of whose contents nobody needs anything.
#[inline]
pub(super) unsafe fn empty(at: usize, bytes: usize) -> io::Result<()> {
    // SAFETY: as the caller says.
    done(unsafe { libc::madvise(at as *mut _, bytes, libc::MADV_DONTNEED) })
}

fn done(code: i32) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// While it lives the kernel gives this process no huge pages unasked: the first store to a table would
/// otherwise clear 2 MiB.
pub(super) struct SmallPages;

impl SmallPages {
    /// From now on.
    pub(super) fn only() -> Self {
        disable_huge_pages(1);
        Self
    }
}

impl Drop for SmallPages {
    fn drop(&mut self) {
        disable_huge_pages(0);
    }
}

/// A kernel that refuses it has no huge pages to give.
fn disable_huge_pages(disabled: libc::c_ulong) {
    let nothing: libc::c_ulong = 0;
    // SAFETY: sets a flag of this process; touches no memory of ours.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, disabled, nothing, nothing, nothing) };
}
