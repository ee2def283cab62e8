//! Pages that are not there until they are touched.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::ptr::{self, NonNull};

use lab::sample::Failure;
use machine::mapping::PAGE;
use machine::memfd::Memfd;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

/// What the file's bytes are.
pub(super) const FILLED: u8 = 0x5a;

/// A span of whole pages, unmapped when dropped. It hands out a pointer only: none outlives it.
pub(super) struct Pages {
    base: NonNull<u8>,
    count: usize,
    /// What is mapped, where it has a descriptor.
    file: Option<OwnedFd>,
    /// Says which pages this process has in its page table.
    table: File,
}

impl Pages {
    /// Anonymous memory in small pages.
    pub(super) fn anonymous(count: usize) -> Result<Self, Failure> {
        let pages = Self::without_file(count, READ_WRITE)?;
        // A kernel without huge pages knows no such advice, and needs none.
        let _ = pages.advise(Advice::LinuxNoHugepage);
        Ok(pages)
    }

    /// Pages that may not be touched at all.
    pub(super) fn forbidden(count: usize) -> Result<Self, Failure> {
        Self::without_file(count, ProtFlags::empty())
    }

    /// A private read-only mapping of a file of our own, whose pages are in the page cache. The file
    /// lies in `folder`, where its name is gone at once.
    pub(super) fn file(count: usize, folder: &Path) -> Result<Self, Failure> {
        let file = filled_file(count, folder).map_err(|why| {
            Failure::unavailable(
                format!("a file of {} B in {}: {why}", count * PAGE, folder.display()),
                "free space, or name another folder: --set file-folder=FOLDER",
            )
        })?;
        Self::of_file(count, file, ProtFlags::READ, MapFlags::PRIVATE)
    }

    /// Shared memory whose pages are all there, and not yet in this mapping.
    pub(super) fn shared(count: usize) -> Result<Self, Failure> {
        let memfd = Memfd::create("tollgate-crossing", count * PAGE)?;
        let pages = Self::of_file(
            count,
            memfd.as_fd().try_clone_to_owned()?,
            READ_WRITE,
            MapFlags::SHARED,
        )?;
        // One by one: the kernel could otherwise take larger pieces, which one fault maps whole.
        for page in 0..count {
            // SAFETY: the word lies in this writable mapping.
            unsafe { pages.word(page).write_volatile(0) };
        }
        pages.unmap()?;
        Ok(pages)
    }

    fn without_file(count: usize, protection: ProtFlags) -> Result<Self, Failure> {
        // SAFETY: the kernel chooses a new range; nothing else is replaced.
        let base =
            unsafe { mmap_anonymous(ptr::null_mut(), count * PAGE, protection, MapFlags::PRIVATE) };
        Self::mapped_at(base, count, None)
    }

    fn of_file(
        count: usize,
        file: OwnedFd,
        protection: ProtFlags,
        flags: MapFlags,
    ) -> Result<Self, Failure> {
        // SAFETY: the kernel chooses a new range; nothing else is replaced.
        let base = unsafe { mmap(ptr::null_mut(), count * PAGE, protection, flags, &file, 0) };
        Self::mapped_at(base, count, Some(file))
    }

    fn mapped_at(
        base: Result<*mut std::ffi::c_void, rustix::io::Errno>,
        count: usize,
        file: Option<OwnedFd>,
    ) -> Result<Self, Failure> {
        let refused =
            |why: io::Error| Failure::failed(format!("map {} B: {why}; free memory", count * PAGE));
        let base = base.map_err(|errno| refused(errno.into()))?;
        let base = NonNull::new(base.cast()).ok_or_else(|| refused(io::ErrorKind::Other.into()))?;
        let table = File::open("/proc/self/pagemap").map_err(|why| {
            Failure::unavailable(
                format!("/proc/self/pagemap: {why}"),
                "mount /proc, on a kernel with CONFIG_PROC_PAGE_MONITOR",
            )
        })?;
        Ok(Self { base, count, file, table })
    }

    /// The same file mapped once more, none of it touched.
    pub(super) fn mapped_anew(&self) -> Result<Self, Failure> {
        let file = self.file.as_ref().ok_or_else(|| Failure::failed("these pages have no file"))?;
        Self::of_file(self.count, file.try_clone()?, ProtFlags::READ, MapFlags::PRIVATE)
    }

    /// How many they are.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The first byte.
    pub(super) fn start(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// A page's first word.
    pub(super) fn word(&self, page: usize) -> *mut u64 {
        self.start().wrapping_add(page * PAGE).cast()
    }

    /// Takes the pages out of this mapping: anonymous ones are gone, others stay where they are.
    pub(super) fn unmap(&self) -> Result<(), Failure> {
        // rustix's DontNeed is POSIX's, which does nothing on Linux.
        self.advise(Advice::LinuxDontNeed).map_err(|errno| Failure::from(io::Error::from(errno)))
    }

    /// How many of the pages from the first on are in this process's page table.
    pub(super) fn present(&self, first: usize, count: usize) -> Result<usize, Failure> {
        /// The bit of an entry of the kernel's pagemap.
        const PRESENT: u64 = 1 << 63;
        let mut entries = vec![0; count * 8];
        let at = (self.start() as usize / PAGE + first) * 8;
        self.table.read_exact_at(&mut entries, at as u64)?;
        let entry = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
        let present = |bytes: &&[u8]| entry(bytes) & PRESENT != 0;
        Ok(entries.chunks(8).filter(present).count())
    }

    fn advise(&self, advice: Advice) -> rustix::io::Result<()> {
        // SAFETY: the range is this mapping's own; nobody holds references into it, only pointers.
        unsafe { madvise(self.start().cast(), self.count * PAGE, advice) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping's own.
        let _ = unsafe { munmap(self.start().cast(), self.count * PAGE) };
    }
}

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// A file without a name, on the disk, so that its pages are clean.
fn filled_file(count: usize, folder: &Path) -> io::Result<OwnedFd> {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = folder.join(format!("tollgate-crossing-{}-{number}", std::process::id()));
    let mut file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    // Page by page, so that the page cache holds single pages: what a fault maps at once would
    // otherwise hang on how large a folio the kernel happened to have.
    for _ in 0..count {
        file.write_all(&[FILLED; PAGE])?;
    }
    file.sync_data()?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_there_once_touched_and_until_unmapped() {
        let folder = std::env::temp_dir();
        for pages in [Pages::anonymous(8), Pages::shared(8), Pages::file(8, &folder)] {
            let pages = pages.unwrap();
            assert_eq!(pages.present(0, 8).unwrap(), 0);
            // SAFETY: the word lies in this readable mapping.
            let word = unsafe { pages.word(3).read_volatile() };
            assert!(word == 0 || word == u64::from_ne_bytes([FILLED; 8]));
            assert!(pages.present(0, 8).unwrap() >= 1);
            assert_eq!(pages.present(3, 1).unwrap(), 1);
            pages.unmap().unwrap();
            assert_eq!(pages.present(0, 8).unwrap(), 0);
        }
    }

    #[test]
    fn a_file_may_be_mapped_twice() {
        let pages = Pages::file(8, &std::env::temp_dir()).unwrap();
        let again = pages.mapped_anew().unwrap();
        assert_eq!((again.count(), again.present(0, 8).unwrap()), (8, 0));
        assert!(Pages::anonymous(1).unwrap().mapped_anew().is_err());
        let absent = Pages::file(1, Path::new("/nowhere")).err().unwrap();
        assert!(absent.why.contains("/nowhere") && absent.remedy.is_some());
    }
}
