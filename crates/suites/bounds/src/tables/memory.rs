//! Memory by address. Each function is one system call, because these calls are what is timed.

use std::io;
use std::ptr;

/// Maps private zero-filled memory.
///
/// # Errors
/// Returns the `errno` of `mmap(2)`, e.g. `ENOMEM` if there are too many mappings.
#[inline]
pub(super) fn map(bytes: usize) -> io::Result<usize> {
    map_with(bytes, 0)
}

/// Maps private zero-filled memory without reserving swap space for it.
///
/// # Errors
/// Returns the `errno` of `mmap(2)`.
#[inline]
pub(super) fn reserve(bytes: usize) -> io::Result<usize> {
    map_with(bytes, libc::MAP_NORESERVE)
}

#[inline]
fn map_with(bytes: usize, flags: i32) -> io::Result<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the kernel chooses an unused range, so no mapping is replaced.
    let address = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if address == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(address as usize) }
}

/// Unmaps memory of [`map`] or [`reserve`].
///
/// # Errors
/// Returns the `errno` of `munmap(2)`.
///
/// # Safety
/// The range was mapped by this module and is not used after the call.
#[inline]
pub(super) unsafe fn unmap(address: usize, bytes: usize) -> io::Result<()> {
    // SAFETY: the caller guarantees that nothing uses the range.
    check(unsafe { libc::munmap(address as *mut _, bytes) })
}

/// Frees the pages of a range. The range stays mapped and reads as zero.
///
/// # Errors
/// Returns the `errno` of `madvise(2)`.
///
/// # Safety
/// The range was mapped by this module and its content is not needed.
#[inline]
pub(super) unsafe fn madvise_dontneed(address: usize, bytes: usize) -> io::Result<()> {
    // SAFETY: the caller guarantees that the content is not needed.
    check(unsafe { libc::madvise(address as *mut _, bytes, libc::MADV_DONTNEED) })
}

fn check(code: i32) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Disables transparent huge pages in this process while it lives. The first store to a table would otherwise clear
/// 2 MiB.
pub(super) struct SmallPages;

impl SmallPages {
    pub(super) fn only() -> Self {
        set_huge_pages_disabled(1);
        Self
    }
}

impl Drop for SmallPages {
    fn drop(&mut self) {
        set_huge_pages_disabled(0);
    }
}

/// Ignores errors: a kernel that rejects the call has no huge pages.
fn set_huge_pages_disabled(disabled: libc::c_ulong) {
    let unused: libc::c_ulong = 0;
    // SAFETY: the call sets a flag of this process and accesses no memory.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, disabled, unused, unused, unused) };
}
