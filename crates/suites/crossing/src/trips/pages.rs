//! Mappings whose pages are absent until touched, and the order in which they are touched.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use lab::sample::Failure;
use machine::mapping::{Mapping, PAGE, Sharing, clean_file};
use machine::memfd::Memfd;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

/// Value of the file's bytes.
pub(super) const FILLED: u8 = 0x5a;

/// A mapping of whole pages.
pub(super) struct Pages {
    start: *mut u8,
    mapping: Mapping,
    /// The mapped file; `None` for anonymous memory.
    file: Option<File>,
    /// This process's pagemap, which lists the present pages.
    pagemap: File,
}

impl Pages {
    /// Maps anonymous memory in small pages.
    pub(super) fn anonymous(count: usize) -> Result<Self, Failure> {
        Self::new(Mapping::anonymous(count * PAGE)?, None)
    }

    /// Maps inaccessible pages.
    pub(super) fn inaccessible(count: usize) -> Result<Self, Failure> {
        Self::new(Mapping::inaccessible(count * PAGE)?, None)
    }

    /// Maps a new file, private and read-only, whose pages are in the page cache. The file is created in `folder`
    /// and unlinked immediately.
    pub(super) fn file(count: usize, folder: &Path) -> Result<Self, Failure> {
        let file = clean_file(folder, count, FILLED).map_err(|why| {
            Failure::unavailable(
                format!("create a file of {} B in {}: {why}", count * PAGE, folder.display()),
                "free space, or choose another folder: --set file-folder=DIR",
            )
        })?;
        Self::of_file(file, count)
    }

    /// Maps shared memory whose pages exist but are not yet in this mapping.
    pub(super) fn shared(count: usize) -> Result<Self, Failure> {
        let memfd = Memfd::create("tollgate-crossing", count * PAGE)?;
        let pages = Self::new(Mapping::shared(&memfd, count * PAGE)?, None)?;
        // Page by page, because the kernel could otherwise allocate larger folios, which one fault maps whole.
        for page in 0..count {
            // SAFETY: the word is inside this writable mapping.
            unsafe { pages.word(page).write_volatile(0) };
        }
        pages.madvise_dontneed();
        Ok(pages)
    }

    fn of_file(file: File, count: usize) -> Result<Self, Failure> {
        Self::new(Mapping::open_file(&file, count * PAGE, Sharing::Private)?, Some(file))
    }

    fn new(mapping: Mapping, file: Option<File>) -> Result<Self, Failure> {
        let pagemap = File::open("/proc/self/pagemap").map_err(|why| {
            Failure::unavailable(
                format!("/proc/self/pagemap: {why}"),
                "mount /proc, on a kernel with CONFIG_PROC_PAGE_MONITOR",
            )
        })?;
        Ok(Self { start: mapping.as_mut_ptr(), mapping, file, pagemap })
    }

    /// Maps the same file again, with all pages absent.
    pub(super) fn remap(&self) -> Result<Self, Failure> {
        let file =
            self.file.as_ref().ok_or_else(|| Failure::failed("anonymous pages have no file"))?;
        Self::of_file(file.try_clone()?, self.count())
    }

    /// Returns the number of pages.
    pub(super) fn count(&self) -> usize {
        self.mapping.len() / PAGE
    }

    /// Returns the address of the first byte.
    pub(super) fn start(&self) -> *mut u8 {
        self.start
    }

    /// Returns the address of a page's first word.
    pub(super) fn word(&self, page: usize) -> *mut u64 {
        self.start().wrapping_add(page * PAGE).cast()
    }

    /// Removes the pages from this mapping. Anonymous pages are freed, others stay in the page cache.
    pub(super) fn madvise_dontneed(&self) {
        self.mapping.madvise_dontneed();
    }

    /// Returns how many of `count` pages starting at `first` are present in this process's page table. While the kernel
    /// migrates a page, its entry is of the kind of a swapped one, and counts.
    pub(super) fn present(&self, first: usize, count: usize) -> Result<usize, Failure> {
        /// Bits of a pagemap entry: present, and swapped or being migrated.
        const PRESENT: u64 = 1 << 63 | 1 << 62;
        let mut entries = vec![0; count * 8];
        let at = (self.start() as usize / PAGE + first) * 8;
        self.pagemap.read_exact_at(&mut entries, at as u64)?;
        let entry = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
        let present = |bytes: &&[u8]| entry(bytes) & PRESENT != 0;
        Ok(entries.chunks(8).filter(present).count())
    }
}

/// Returns the numbers below `count` in a random order, as lmbench touches pages, so that the next fault cannot be
/// predicted.
pub(super) fn permutation(count: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.shuffle(&mut Pcg64Mcg::seed_from_u64(seed));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_present_from_the_first_touch_until_madvise_dontneed() {
        let folder = std::env::temp_dir();
        for pages in [Pages::anonymous(8), Pages::shared(8), Pages::file(8, &folder)] {
            let pages = pages.unwrap();
            assert_eq!(pages.present(0, 8).unwrap(), 0);
            // SAFETY: the word is inside this readable mapping.
            let word = unsafe { pages.word(3).read_volatile() };
            assert!(word == 0 || word == u64::from_ne_bytes([FILLED; 8]));
            assert!(pages.present(0, 8).unwrap() >= 1);
            assert_eq!(pages.present(3, 1).unwrap(), 1);
            pages.madvise_dontneed();
            assert_eq!(pages.present(0, 8).unwrap(), 0);
        }
    }

    #[test]
    fn only_a_file_can_be_mapped_again() {
        let pages = Pages::file(8, &std::env::temp_dir()).unwrap();
        let second = pages.remap().unwrap();
        assert_eq!((second.count(), second.present(0, 8).unwrap()), (8, 0));
        assert!(Pages::anonymous(1).unwrap().remap().is_err());
        let absent = Pages::file(1, Path::new("/nowhere")).err().unwrap();
        assert!(absent.why.contains("/nowhere") && absent.remedy.is_some());
    }

    #[test]
    fn a_permutation_has_every_number_once_in_an_order_of_its_seed() {
        let mut order = permutation(512, 7);
        assert!(!order.is_sorted() && order != permutation(512, 9));
        assert_eq!(order, permutation(512, 7));
        order.sort_unstable();
        assert!(order.into_iter().eq(0..512));
    }
}
