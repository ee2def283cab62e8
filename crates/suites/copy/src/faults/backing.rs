//! The pages that a thread touches: anonymous memory, or a file mapped shared.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use lab::factor::LevelType;
use lab::sample::Failure;
use machine::mapping::{Mapping, PAGE};

/// Where the pages come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub enum Backing {
    /// Anonymous memory in small pages: each first touch gets a zeroed page.
    Heap,
    /// A file whose pages are in the page cache: a touch maps them, and up to 16 at once.
    #[level("file-mapped")]
    File,
}

/// Some pages of one backing.
#[derive(Debug)]
pub struct Pages {
    mapping: Mapping,
    backing: Backing,
}

impl Pages {
    /// So many pages; those of a file lie in `folder`, where their name is gone at once.
    ///
    /// # Errors
    /// Where memory or the file cannot be had.
    pub fn new(backing: Backing, pages: usize, folder: &Path) -> Result<Self, Failure> {
        let length = pages * PAGE;
        let mapping = match backing {
            Backing::Heap => Mapping::anonymous(length).map_err(|why| why.to_string()),
            Backing::File => of_file(length, folder),
        };
        let mapping = mapping.map_err(|why| {
            Failure::unavailable(why, "free memory, or name a folder on a disk: file-folder")
        })?;
        Ok(Self { mapping, backing })
    }

    /// How many they are.
    pub fn count(&self) -> usize {
        self.mapping.len() / PAGE
    }

    /// Brings all pages in.
    ///
    /// # Errors
    /// Where there is not enough memory.
    pub fn bring_in(&self) -> Result<(), Failure> {
        self.mapping.prefault().map_err(|why| Failure::failed(why.to_string()))
    }

    /// Unmaps the pages, as munmap and a new mmap would. Those of a file stay in the page cache, those
    /// of the heap are gone.
    pub fn unmap(&self) {
        self.mapping.madvise_dontneed();
    }

    /// Evicts the pages, as the kernel does when memory is short: a file's leave the page cache too;
    /// the heap's are given up, for without swap they have nowhere to go.
    ///
    /// # Errors
    /// The kernel's, where it knows no such advice.
    pub fn evict(&self) -> io::Result<()> {
        let advice = match self.backing {
            Backing::Heap => libc::MADV_DONTNEED,
            Backing::File => libc::MADV_PAGEOUT,
        };
        // SAFETY: the range is the mapping's own, and nobody holds references into it.
        let code =
            unsafe { libc::madvise(self.mapping.as_mut_ptr().cast(), self.mapping.len(), advice) };
        if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// How many pages are in memory.
    ///
    /// # Errors
    /// The kernel's.
    pub fn resident(&self) -> io::Result<usize> {
        let mut present = vec![0u8; self.count()];
        // SAFETY: the range is the mapping's own, and there is a byte for each of its pages.
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

    /// Touches one word of every page: writes the heap's, reads a file's (writing would measure the
    /// file system's bookkeeping).
    #[inline(never)]
    pub fn touch(&self) {
        let start = self.mapping.as_mut_ptr();
        for page in 0..self.count() {
            let word = start.wrapping_add(page * PAGE).cast::<u64>();
            match self.backing {
                // SAFETY: the word lies in the mapping, which is writable.
                Backing::Heap => unsafe { word.write_volatile(page as u64) },
                Backing::File => {
                    // SAFETY: the word lies in the mapping, which is readable.
                    unsafe { word.read_volatile() };
                }
            }
        }
    }

    /// Reads one word of every page; for the loop that a shootdown disturbs. It is not the word that
    /// [`touch`](Self::touch) writes, so that no cache line goes from one CPU to the other.
    #[inline(never)]
    pub fn read(&self) {
        for page in 0..self.count() {
            let word = self.mapping.as_ptr().wrapping_add(page * PAGE + PAGE / 2).cast::<u64>();
            // SAFETY: the word lies in the mapping, which stays readable.
            unsafe { word.read_volatile() };
        }
    }

    /// Lets the pages be written, or only read.
    ///
    /// # Errors
    /// The kernel's.
    #[inline(never)]
    pub fn protect(&self, writable: bool) -> io::Result<()> {
        let write = if writable { libc::PROT_WRITE } else { 0 };
        // SAFETY: the range is the mapping's own; it stays readable, and only its owner writes.
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

/// A file of so many bytes, none zero, on the disk: so that its pages are clean.
fn of_file(length: usize, folder: &Path) -> Result<Mapping, String> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = folder.join(format!("tollgate-faults-{}-{number}", std::process::id()));
    let written = write_file(&path, length);
    let mapping = written
        .map_err(|why| format!("{}: {why}", path.display()))
        .and_then(|()| Mapping::file(&path, length, false).map_err(|why| why.to_string()));
    // The mapping holds the file; without a name it is gone with it.
    let _ = std::fs::remove_file(&path);
    mapping
}

fn write_file(path: &Path, length: usize) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).open(path)?;
    // Page by page, so that the page cache holds single pages: what a fault brings in at once would
    // otherwise hang on how large a folio the kernel happened to have.
    for _ in 0..length / PAGE {
        file.write_all(&[0x5a; PAGE])?;
    }
    file.sync_data()
}
