//! The pages that a thread touches: anonymous memory, or a file mapped shared.

use std::io;
use std::path::Path;

use lab::factor::LevelType;
use lab::sample::Failure;
use machine::mapping::{Mapping, PAGE, Sharing, clean_file};

/// Origin of the pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub enum Backing {
    /// Anonymous memory in 4 KiB pages: each first touch gets a zeroed page.
    Heap,
    /// A file whose pages are in the page cache: a touch maps up to 16 of them.
    #[level("file-mapped")]
    File,
}

/// A mapping of pages of one backing.
#[derive(Debug)]
pub struct Pages {
    mapping: Mapping,
    backing: Backing,
}

impl Pages {
    /// Maps `pages` pages; a file is created in `folder` and unlinked at once.
    ///
    /// # Errors
    /// Returns an error if memory or the file is unavailable.
    pub fn new(backing: Backing, pages: usize, folder: &Path) -> Result<Self, Failure> {
        let length = pages * PAGE;
        let mapping = match backing {
            Backing::Heap => Mapping::anonymous(length).map_err(|why| why.to_string()),
            // The mapping keeps the file, which has no name.
            Backing::File => clean_file(folder, pages, 0x5a)
                .map_err(|why| format!("a file in {}: {why}", folder.display()))
                .and_then(|file| {
                    let mapping = Mapping::open_file(&file, length, Sharing::Shared);
                    mapping.map_err(|why| why.to_string())
                }),
        };
        let mapping = mapping.map_err(|why| {
            Failure::unavailable(why, "free memory, or --set file-folder=DIR, a folder on a disk")
        })?;
        Ok(Self { mapping, backing })
    }

    /// Returns the number of pages.
    pub fn count(&self) -> usize {
        self.mapping.len() / PAGE
    }

    /// Makes all pages present.
    ///
    /// # Errors
    /// Returns an error if there is not enough memory.
    pub fn bring_in(&self) -> Result<(), Failure> {
        Ok(self.mapping.prefault()?)
    }

    /// Discards the pages, as munmap(2) and a new mmap(2) would. Pages of a file stay in the page
    /// cache; pages of the heap are freed.
    pub fn madvise_dontneed(&self) {
        self.mapping.madvise_dontneed();
    }

    /// Evicts the pages, as the kernel does under memory pressure. A file's pages leave the page cache
    /// too; the heap's are discarded, because without swap they cannot be stored.
    ///
    /// # Errors
    /// Returns the error of madvise(2), e.g. if the kernel does not support the advice.
    pub fn evict(&self) -> io::Result<()> {
        let advice = match self.backing {
            Backing::Heap => libc::MADV_DONTNEED,
            Backing::File => libc::MADV_PAGEOUT,
        };
        // SAFETY: the range belongs to the mapping, and no references into it exist.
        let code =
            unsafe { libc::madvise(self.mapping.as_mut_ptr().cast(), self.mapping.len(), advice) };
        if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Returns how many pages are resident.
    ///
    /// # Errors
    /// Returns the error of mincore(2).
    pub fn resident(&self) -> io::Result<usize> {
        let mut present = vec![0u8; self.count()];
        // SAFETY: the range belongs to the mapping, and the vector has one byte for each of its pages.
        let code = unsafe {
            libc::mincore(
                self.mapping.as_mut_ptr().cast(),
                self.mapping.len(),
                present.as_mut_ptr(),
            )
        };
        match code {
            0 => Ok(present.iter().filter(|page| **page & 1 == 1).count()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Touches one word of every page: writes to the heap, reads from a file (writing would measure
    /// the file system's bookkeeping).
    #[inline(never)]
    pub fn touch(&self) {
        let start = self.mapping.as_mut_ptr();
        for page in 0..self.count() {
            let word = start.wrapping_add(page * PAGE).cast::<u64>();
            match self.backing {
                // SAFETY: the word is in the mapping, which is writable.
                Backing::Heap => unsafe { word.write_volatile(page as u64) },
                Backing::File => {
                    // SAFETY: the word is in the mapping, which is readable.
                    unsafe { word.read_volatile() };
                }
            }
        }
    }

    /// Reads one word of every page, in the loop that a shootdown disturbs. It is a different word
    /// than [`touch`](Self::touch) writes, so that no cache line moves between the CPUs.
    #[inline(never)]
    pub fn read(&self) {
        for page in 0..self.count() {
            let word = self.mapping.as_ptr().wrapping_add(page * PAGE + PAGE / 2).cast::<u64>();
            // SAFETY: the word is in the mapping, which stays readable.
            unsafe { word.read_volatile() };
        }
    }

    /// Makes the pages writable or read-only.
    ///
    /// # Errors
    /// Returns the error of mprotect(2).
    #[inline(never)]
    pub fn protect(&self, writable: bool) -> io::Result<()> {
        let write = if writable { libc::PROT_WRITE } else { 0 };
        // SAFETY: the range belongs to the mapping; it stays readable, and only its owner writes.
        let code = unsafe {
            libc::mprotect(
                self.mapping.as_mut_ptr().cast(),
                self.mapping.len(),
                libc::PROT_READ | write,
            )
        };
        if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}
