//! Memory mappings: anonymous, huge pages, shared, files, devices and physical memory.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous};

use crate::caching::{self, MemoryType};
use crate::memfd::Memfd;
use crate::{SysError, huge_pages};

mod dax;
mod device;
mod foreign;
mod pages;
mod span;

pub use device::resource_with;
pub use foreign::ForeignMapping;
use span::Span;

/// Bytes of a small page.
pub const PAGE: usize = 4096;

/// How a file is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// Read-only, not shared with other mappings.
    Private,
    /// Read-only, shared with other mappings.
    Shared,
    /// Shared with other mappings, for reading and writing.
    SharedWritable,
}

/// Mapped memory, unmapped when dropped.
///
/// It only hands out pointers; the caller is responsible for how the memory is shared.
#[derive(Debug)]
pub struct Mapping {
    /// The mapped range: whole pages.
    span: Span,
    /// Offset and length in bytes of the requested memory in the range.
    offset: usize,
    length: usize,
    writable: bool,
    /// Device memory, which must not be touched to fault it in.
    device: bool,
    /// Physical address of the first byte of the span, if it is a contiguous range of known address.
    physical: Option<u64>,
}

impl Mapping {
    /// Maps private zeroed memory in small pages, none of which is present yet.
    ///
    /// # Errors
    /// Returns the error of `mmap(2)`.
    pub fn anonymous(length: usize) -> Result<Self, SysError> {
        let mapping = Self::without_file(length, PAGE, MapFlags::PRIVATE)?;
        // Without this the kernel may use transparent huge pages.
        mapping.advise(Advice::LinuxNoHugepage);
        Ok(mapping)
    }

    /// Maps inaccessible private memory: a touch raises SIGSEGV.
    ///
    /// # Errors
    /// Returns the error of `mmap(2)` or `mprotect(2)`.
    pub fn inaccessible(length: usize) -> Result<Self, SysError> {
        let mapping = Self::anonymous(length)?;
        mapping.mprotect_none().map_err(|why| {
            SysError::new("make memory inaccessible", why, "allow this process more mappings")
        })?;
        Ok(mapping)
    }

    /// Maps zeroed memory that this process shares with those that it forks later.
    ///
    /// # Errors
    /// Returns the error of `mmap(2)`.
    pub fn shared_with_forks(length: usize) -> Result<Self, SysError> {
        Self::without_file(length, PAGE, MapFlags::SHARED)
    }

    /// Reserves address space for private zeroed memory in small pages. No memory is committed: touching a
    /// page when memory is exhausted ends the process.
    ///
    /// # Errors
    /// Returns the error of `mmap(2)`, also if the kernel forbids overcommitment.
    pub fn reserved(length: usize) -> Result<Self, SysError> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let mapping = Self::without_file(length, PAGE, flags).map_err(|refusal| SysError {
            remedy: "allow overcommitment: sysctl vm.overcommit_memory=0".into(),
            ..refusal
        })?;
        mapping.advise(Advice::LinuxNoHugepage);
        Ok(mapping)
    }

    /// Maps private memory in 2 MiB pages from the pool, rounded up to whole pages.
    ///
    /// # Errors
    /// Fails if the pool has too few free pages.
    pub fn huge(length: usize) -> Result<Self, SysError> {
        Self::without_file(
            length,
            huge_pages::SIZE,
            MapFlags::PRIVATE | MapFlags::HUGETLB | MapFlags::HUGE_2MB,
        )
        .map_err(|refusal| SysError { remedy: huge_pages::RESERVE.into(), ..refusal })
    }

    /// Maps private memory in 1 GiB pages from the pool, rounded up to whole pages.
    ///
    /// # Errors
    /// Fails if the pool has too few free pages.
    pub fn gigantic(length: usize) -> Result<Self, SysError> {
        Self::without_file(
            length,
            1 << 30,
            MapFlags::PRIVATE | MapFlags::HUGETLB | MapFlags::HUGE_1GB,
        )
        .map_err(|refusal| SysError { remedy: huge_pages::RESERVE_GIGANTIC.into(), ..refusal })
    }

    /// Maps private memory aligned to 2 MiB and asks the kernel for transparent huge pages. The kernel may
    /// provide none: see `AnonHugePages` in /proc/self/smaps.
    ///
    /// # Errors
    /// Returns the error of `mmap(2)`, or of `madvise(2)` without transparent huge pages.
    pub fn transparent_huge(length: usize) -> Result<Self, SysError> {
        let rounded = round_up(length, huge_pages::SIZE)?;
        let mut mapping = Self::without_file(rounded + huge_pages::SIZE, PAGE, MapFlags::PRIVATE)?;
        mapping.span.keep_aligned(huge_pages::SIZE, rounded);
        mapping.length = length;
        let (start, bytes) = (mapping.span.start(), mapping.span.bytes());
        // SAFETY: the range belongs to this mapping, and the advice changes no contents.
        let advised = unsafe { madvise(start.cast(), bytes, Advice::LinuxHugepage) };
        advised.map_err(|errno| {
            let remedy = "use a kernel with CONFIG_TRANSPARENT_HUGEPAGE";
            SysError::new(
                format!("request transparent huge pages for {length} B"),
                errno.into(),
                remedy,
            )
        })?;
        Ok(mapping)
    }

    /// Maps memory that is shared with all mappings of the same memfd.
    ///
    /// # Errors
    /// Fails if the memfd is shorter than `length` or the kernel refuses.
    pub fn shared(memfd: &Memfd, length: usize) -> Result<Self, SysError> {
        let attempt = format!("map {length} B of a memfd");
        let has = memfd.length().map_err(|why| SysError::new(&attempt, why, "pass a memfd"))?;
        if has < length {
            return Err(SysError::invalid(attempt, format!("it has {has} B"), "create it longer"));
        }
        Self::of_file(memfd.as_fd(), 0, length, true, MapFlags::SHARED)
            .map_err(|why| SysError::new(attempt, why, "free memory or request less"))
    }

    /// Maps the start of an open file or of another object, e.g. a BPF map.
    ///
    /// # Errors
    /// Returns the error of `mmap(2)`.
    pub fn open_file(file: impl AsFd, length: usize, how: Sharing) -> Result<Self, SysError> {
        Self::open_file_at(file, 0, length, how)
    }

    /// Maps `length` bytes of an open file or of another object, e.g. a socket, from `start`.
    ///
    /// # Errors
    /// Returns the error of `mmap(2)`.
    pub fn open_file_at(
        file: impl AsFd,
        start: u64,
        length: usize,
        how: Sharing,
    ) -> Result<Self, SysError> {
        let (writable, flags) = match how {
            Sharing::Private => (false, MapFlags::PRIVATE),
            Sharing::Shared => (false, MapFlags::SHARED),
            Sharing::SharedWritable => (true, MapFlags::SHARED),
        };
        Self::of_file(file.as_fd(), start, length, writable, flags).map_err(|why| {
            SysError::new(format!("map {length} B of a file"), why, "free memory or request less")
        })
    }

    /// Maps a memfd twice in succession, so that data that wraps around is contiguous. The mapping is twice
    /// as long as the memfd, which has whole pages.
    ///
    /// # Errors
    /// Fails if the memfd does not have whole pages or the kernel refuses.
    pub fn mirrored(memfd: &Memfd) -> Result<Self, SysError> {
        let once =
            memfd.length().map_err(|why| SysError::new("map a ring", why, "pass a memfd"))?;
        Self::mirrored_rings(memfd, once)
    }

    /// Maps each part of `part` bytes of a memfd twice, as [`Mapping::mirrored`] does, one part after the
    /// other.
    ///
    /// # Errors
    /// Fails if the memfd does not consist of whole parts, these of whole pages, or the kernel refuses, e.g. because the pool
    /// has too few huge pages.
    pub fn mirrored_rings(memfd: &Memfd, part: usize) -> Result<Self, SysError> {
        let size = memfd.length().and_then(|all| Ok((all, memfd.page()?)));
        let (all, page) = size.map_err(|why| SysError::new("map a ring", why, "pass a memfd"))?;
        let attempt = format!("map {all} B twice, {part} B by {part} B");
        if all == 0 || part == 0 || !part.is_multiple_of(page) || !all.is_multiple_of(part) {
            let remedy = format!("use a multiple of {} KiB", page / 1024);
            return Err(SysError::invalid(attempt, "not whole pages", remedy));
        }
        let remedy = if page == PAGE { "free memory or request less" } else { huge_pages::RESERVE };
        let twice = all.saturating_mul(2);
        // One more page, so that the start can be aligned.
        let reserved = if page == PAGE { twice } else { twice.saturating_add(page) };
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let mut mapping = Self::without_file(reserved, PAGE, flags)?;
        if page > PAGE {
            mapping.span.keep_aligned(page, twice);
            mapping.length = twice;
        }
        for half in 0..twice / part {
            let at = mapping.span.start().wrapping_add(half * part).cast();
            let (flags, from) = (MapFlags::SHARED | MapFlags::FIXED, half / 2 * part);
            // SAFETY: the range belongs to this mapping, and no pointers into it exist yet.
            unsafe { mmap(at, part, READ_WRITE, flags, memfd.as_fd(), from as u64) }
                .map_err(|errno| SysError::new(&attempt, errno.into(), remedy))?;
        }
        Ok(mapping)
    }

    /// Returns the first byte.
    pub fn as_ptr(&self) -> *const u8 {
        self.as_mut_ptr()
    }

    /// Returns the first byte for writing. A write faults unless the mapping is
    /// [writable](Self::is_writable).
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.span.start().wrapping_add(self.offset)
    }

    /// Returns the requested length in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns false: an empty mapping cannot be created.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns whether the memory may be written.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Returns the memory type that the kernel gave the mapping.
    ///
    /// # Errors
    /// Returns the reason, in one line, if the kernel does not show it.
    pub fn memory_type(&self) -> Result<MemoryType, String> {
        let Some(start) = self.physical else {
            return Err("its physical address is unknown".to_owned());
        };
        let end = start.checked_add(self.span.bytes() as u64);
        let end = end.ok_or("it exceeds the physical space")?;
        caching::memory_type(start..end)
    }

    fn without_file(length: usize, page: usize, flags: MapFlags) -> Result<Self, SysError> {
        let mapped = round_up(length, page)?;
        // SAFETY: the kernel chooses an unused range.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), mapped, READ_WRITE, flags) };
        let base = base.and_then(|base| NonNull::new(base.cast()).ok_or(rustix::io::Errno::NOMEM));
        let base = base.map_err(|errno| {
            SysError::new(
                format!("map {length} B of memory"),
                errno.into(),
                "free memory or request less",
            )
        })?;
        // SAFETY: the kernel has just mapped this range of whole pages for us.
        let span = unsafe { Span::new(base, mapped) };
        Ok(Self { span, offset: 0, length, writable: true, device: false, physical: None })
    }

    /// Maps a range of a file that may start anywhere in a page.
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
        // SAFETY: the kernel chooses an unused range.
        let base = unsafe {
            mmap(ptr::null_mut(), mapped, protection, flags, file, start - offset as u64)
        }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the kernel has just mapped this range of whole pages for us.
        let span = unsafe { Span::new(base, mapped) };
        Ok(Self { span, offset, length, writable, device: false, physical: None })
    }
}

/// Creates an unnamed file of `pages` pages in `folder`, fills it with a byte, and writes it to the disk, so that its
/// pages are clean.
///
/// It is written page by page, so that the page cache contains single pages; otherwise the number of pages that one
/// fault maps would depend on the size of the kernel's folios.
///
/// # Errors
/// Returns the error of creating or writing the file.
pub fn clean_file(folder: &Path, pages: usize, byte: u8) -> io::Result<File> {
    let mut file = tempfile::tempfile_in(folder)?;
    for _ in 0..pages {
        file.write_all(&[byte; PAGE])?;
    }
    file.sync_data()?;
    Ok(file)
}

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

fn round_up(length: usize, page: usize) -> Result<usize, SysError> {
    // One spare huge page keeps the alignment arithmetic from overflowing.
    let rounded = length
        .checked_next_multiple_of(page)
        .filter(|bytes| *bytes < isize::MAX as usize - (4 << 20));
    rounded.filter(|_| length > 0).ok_or_else(|| {
        SysError::invalid(
            format!("map {length} B of memory"),
            "invalid length",
            "request at least 1 B",
        )
    })
}

#[cfg(test)]
mod tests;
