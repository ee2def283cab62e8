//! Memory that is mapped: anonymous, huge, shared, of a file, of a device, or physical.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous};

use crate::memfd::Memfd;
use crate::{SysError, huge_pages};

mod dax;
mod device;
mod pages;
mod span;

use span::Span;

/// Bytes of a small page.
pub const PAGE: usize = 4096;

/// A span of mapped memory, unmapped when dropped.
///
/// It hands out pointers only: who shares the memory, and how, is the caller's to answer for.
#[derive(Debug)]
pub struct Mapping {
    /// What the kernel mapped: whole pages.
    span: Span,
    /// Where the asked-for bytes begin in it, and how many they are.
    offset: usize,
    length: usize,
    writable: bool,
    /// Device memory, which may not be touched to fault it in.
    device: bool,
}

impl Mapping {
    /// Private memory of this process in small pages, all zero, none yet there.
    ///
    /// # Errors
    /// The kernel's, for a length that it cannot give.
    pub fn anonymous(length: usize) -> Result<Self, SysError> {
        let mapping = Self::without_file(length, PAGE, MapFlags::PRIVATE)?;
        // Where the kernel gives huge pages unasked, this would not be what it says.
        mapping.advise(Advice::LinuxNoHugepage);
        Ok(mapping)
    }

    /// Address space for private memory in small pages, all zero. No memory is set aside for it: a page
    /// that is touched when there is none left ends the process.
    ///
    /// # Errors
    /// The kernel's, for a length that it cannot give, or where it sets memory aside for all alike.
    pub fn reserved(length: usize) -> Result<Self, SysError> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let mapping = Self::without_file(length, PAGE, flags).map_err(|refusal| SysError {
            remedy: "let the kernel promise more than it has: sysctl vm.overcommit_memory=0".into(),
            ..refusal
        })?;
        mapping.advise(Advice::LinuxNoHugepage);
        Ok(mapping)
    }

    /// Private memory in huge pages of 2 MiB from the pool; the length is rounded up to whole ones inside.
    ///
    /// # Errors
    /// Where the pool has too few free pages.
    pub fn huge(length: usize) -> Result<Self, SysError> {
        Self::without_file(
            length,
            huge_pages::SIZE,
            MapFlags::PRIVATE | MapFlags::HUGETLB | MapFlags::HUGE_2MB,
        )
        .map_err(|refusal| SysError { remedy: huge_pages::RESERVE.into(), ..refusal })
    }

    /// Private memory in huge pages of 1 GiB from their pool; the length is rounded up to whole ones inside.
    ///
    /// # Errors
    /// Where the pool has too few free pages.
    pub fn giant(length: usize) -> Result<Self, SysError> {
        Self::without_file(
            length,
            1 << 30,
            MapFlags::PRIVATE | MapFlags::HUGETLB | MapFlags::HUGE_1GB,
        )
        .map_err(|refusal| SysError { remedy: huge_pages::RESERVE_GIANT.into(), ..refusal })
    }

    /// Private memory aligned to 2 MiB for which the kernel is asked to use huge pages. It may give none:
    /// see `AnonHugePages` in /proc/self/smaps.
    ///
    /// # Errors
    /// The kernel's, for a length that it cannot give, or where it has no transparent huge pages.
    pub fn transparent_huge(length: usize) -> Result<Self, SysError> {
        let rounded = round_up(length, huge_pages::SIZE)?;
        let mut mapping = Self::without_file(rounded + huge_pages::SIZE, PAGE, MapFlags::PRIVATE)?;
        mapping.span.keep_aligned(huge_pages::SIZE, rounded);
        mapping.length = length;
        let (start, bytes) = (mapping.span.start(), mapping.span.bytes());
        // SAFETY: the range is this mapping's own, and the advice changes no contents.
        let advised = unsafe { madvise(start.cast(), bytes, Advice::LinuxHugepage) };
        advised.map_err(|errno| {
            let remedy = "use a kernel with CONFIG_TRANSPARENT_HUGEPAGE";
            SysError::new(
                format!("ask for transparent huge pages for {length} B"),
                errno.into(),
                remedy,
            )
        })?;
        Ok(mapping)
    }

    /// Memory shared with whoever maps the same memfd.
    ///
    /// # Errors
    /// Where the memfd is shorter than the length, or the kernel refuses.
    pub fn shared(memfd: &Memfd, length: usize) -> Result<Self, SysError> {
        let attempt = format!("map {length} B of a memfd");
        let has = memfd.length().map_err(|why| SysError::new(&attempt, why, "pass a memfd"))?;
        if has < length {
            return Err(SysError::invalid(attempt, format!("it has {has} B"), "create it longer"));
        }
        Self::of_file(memfd.as_fd(), 0, length, true, MapFlags::SHARED)
            .map_err(|why| SysError::new(attempt, why, "free memory or ask for less"))
    }

    /// A memfd's bytes twice, one after the other, so that what wraps around in them lies in one piece.
    /// The length is that of both, and the memfd holds whole pages.
    ///
    /// # Errors
    /// Where the memfd does not hold whole pages, or the kernel refuses.
    pub fn mirrored(memfd: &Memfd) -> Result<Self, SysError> {
        let once =
            memfd.length().map_err(|why| SysError::new("map a ring", why, "pass a memfd"))?;
        Self::mirrored_rings(memfd, once)
    }

    /// Each part of so many bytes of a memfd's twice, as by [`Mapping::mirrored`], one behind the other.
    ///
    /// # Errors
    /// Where the memfd does not hold whole parts, or they not whole pages, or the kernel refuses.
    pub fn mirrored_rings(memfd: &Memfd, part: usize) -> Result<Self, SysError> {
        let all = memfd.length().map_err(|why| SysError::new("map a ring", why, "pass a memfd"))?;
        let attempt = format!("map {all} B twice, {part} B by {part} B");
        if all == 0 || part == 0 || !part.is_multiple_of(PAGE) || !all.is_multiple_of(part) {
            return Err(SysError::invalid(
                attempt,
                "not whole pages",
                "ask for a multiple of 4 KiB",
            ));
        }
        let twice = all.saturating_mul(2);
        let mapping = Self::without_file(twice, PAGE, MapFlags::PRIVATE | MapFlags::NORESERVE)?;
        for half in 0..twice / part {
            let at = mapping.span.start().wrapping_add(half * part).cast();
            let (flags, from) = (MapFlags::SHARED | MapFlags::FIXED, half / 2 * part);
            // SAFETY: the range is this mapping's own, and nobody has pointers into it yet.
            unsafe { mmap(at, part, READ_WRITE, flags, memfd.as_fd(), from as u64) }.map_err(
                |errno| SysError::new(&attempt, errno.into(), "free memory or ask for less"),
            )?;
        }
        Ok(mapping)
    }

    /// The first byte.
    pub fn as_ptr(&self) -> *const u8 {
        self.as_mut_ptr()
    }

    /// The first byte, to write. A write faults where the mapping is not [writable](Self::is_writable).
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.span.start().wrapping_add(self.offset)
    }

    /// Bytes asked for.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Never: an empty mapping is refused when it is made.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Whether it may be written.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    fn without_file(length: usize, page: usize, flags: MapFlags) -> Result<Self, SysError> {
        let mapped = round_up(length, page)?;
        // SAFETY: the kernel chooses a new range; nothing else is replaced.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), mapped, READ_WRITE, flags) };
        let base = base.and_then(|base| NonNull::new(base.cast()).ok_or(rustix::io::Errno::NOMEM));
        let base = base.map_err(|errno| {
            SysError::new(
                format!("map {length} B of memory"),
                errno.into(),
                "free memory or ask for less",
            )
        })?;
        // SAFETY: the kernel has just mapped this range for us, whole pages of it.
        let span = unsafe { Span::new(base, mapped) };
        Ok(Self { span, offset: 0, length, writable: true, device: false })
    }

    /// Maps a span of a file that begins anywhere in a page.
    fn of_file(
        file: BorrowedFd<'_>,
        start: u64,
        length: usize,
        writable: bool,
        flags: MapFlags,
    ) -> io::Result<Self> {
        let offset = (start % PAGE as u64) as usize;
        let whole =
            length.checked_add(offset).and_then(|bytes| bytes.checked_next_multiple_of(PAGE));
        let mapped = whole.filter(|_| length > 0).ok_or(io::ErrorKind::InvalidInput)?;
        let protection = if writable { READ_WRITE } else { ProtFlags::READ };
        // SAFETY: the kernel chooses a new range; nothing else is replaced.
        let base = unsafe {
            mmap(ptr::null_mut(), mapped, protection, flags, file, start - offset as u64)
        }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the kernel has just mapped this range for us, whole pages of it.
        let span = unsafe { Span::new(base, mapped) };
        Ok(Self { span, offset, length, writable, device: false })
    }
}

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

fn round_up(length: usize, page: usize) -> Result<usize, SysError> {
    // Room for one huge page more keeps the arithmetic of alignment from overflowing.
    let rounded = length
        .checked_next_multiple_of(page)
        .filter(|bytes| *bytes < isize::MAX as usize - (4 << 20));
    rounded.filter(|_| length > 0).ok_or_else(|| {
        SysError::invalid(
            format!("map {length} B of memory"),
            "not a possible length",
            "ask for 1 B or more",
        )
    })
}

#[cfg(test)]
mod tests;
