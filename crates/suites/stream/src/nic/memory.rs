//! Layout and allocation of memory that the host shares with the NIC.

// Sizes may come from another process, and this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::io;

use machine::mapping::Mapping;
use machine::memfd::Memfd;
use machine::{SysError, huge_pages};

/// The pages of memory that host and NIC share.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pages {
    /// Huge pages of the kernel's pool.
    Huge,
    /// Small pages.
    #[default]
    Small,
}

impl Pages {
    /// Returns their size as text.
    pub fn name(self) -> &'static str {
        match self {
            Self::Huge => "2 MiB",
            Self::Small => "4 KiB",
        }
    }
}

/// Layout of shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryLayout {
    /// Rings, each mapped twice in a row, so that data that wraps is contiguous.
    Rings {
        /// Number of rings.
        count: usize,
        /// Size of each, in bytes: whole pages.
        each: usize,
    },
    /// This number of bytes, mapped once.
    Plain(usize),
}

impl MemoryLayout {
    /// Returns the size of the memory, in bytes.
    pub(crate) fn bytes(self) -> Result<usize, SysError> {
        let (count, each) = match self {
            Self::Rings { count, each } => (count, each),
            Self::Plain(bytes) => (1, bytes),
        };
        count.checked_mul(each).ok_or_else(|| SysError {
            attempt: format!("allocate {count} rings of {each} B"),
            source: io::ErrorKind::InvalidInput.into(),
            remedy: "use fewer or shorter rings".into(),
        })
    }

    /// Returns the number of mappings.
    pub(crate) fn mappings(self) -> usize {
        match self {
            Self::Rings { count, .. } => count.saturating_mul(2),
            Self::Plain(_) => 1,
        }
    }

    /// Returns the pages that the memory has if these are requested: a ring that is shorter than a huge page cannot be mapped
    /// twice in huge pages.
    pub(crate) fn pages(self, requested: Pages) -> Pages {
        match self {
            Self::Rings { each, .. } if !each.is_multiple_of(huge_pages::SIZE) => Pages::Small,
            Self::Rings { .. } | Self::Plain(_) => requested,
        }
    }

    /// Allocates memory for this process, in [these](Self::pages) pages.
    pub(crate) fn map_private(self, pages: Pages) -> Result<Mapping, SysError> {
        let bytes = self.bytes()?;
        let mapping = match (self, pages) {
            (Self::Rings { .. }, Pages::Small) => return self.map(&self.memfd()?),
            (Self::Rings { .. }, Pages::Huge) => {
                let memfd = Memfd::sealed_huge("tollgate-nic", bytes);
                return self.map(&memfd.map_err(|why| refused(bytes, why, huge_pages::RESERVE))?);
            }
            (Self::Plain(_), Pages::Small) => Mapping::anonymous(bytes),
            (Self::Plain(_), Pages::Huge) => Mapping::huge(bytes),
        }?;
        mapping.prefault()?;
        Ok(mapping)
    }

    /// Allocates memory that another process can map.
    pub(crate) fn memfd(self) -> Result<Memfd, SysError> {
        let bytes = self.bytes()?;
        Memfd::sealed("tollgate-nic", bytes)
            .map_err(|why| refused(bytes, why, "free memory or use smaller rings"))
    }

    /// Maps and prefaults a memfd.
    pub(crate) fn map(self, memfd: &Memfd) -> Result<Mapping, SysError> {
        let mapping = match self {
            Self::Rings { each, .. } => Mapping::mirrored_rings(memfd, each),
            Self::Plain(bytes) => Mapping::shared(memfd, bytes),
        }?;
        mapping.prefault()?;
        Ok(mapping)
    }
}

fn refused(bytes: usize, source: io::Error, remedy: &str) -> SysError {
    SysError { attempt: format!("allocate {bytes} B for a NIC"), source, remedy: remedy.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_rings_are_on_small_pages() {
        let pages = |layout: MemoryLayout| [Pages::Huge, Pages::Small].map(|it| layout.pages(it));
        let ring = |each| MemoryLayout::Rings { count: 3, each };
        assert_eq!(pages(ring(1 << 20)), [Pages::Small, Pages::Small]);
        assert_eq!(pages(ring(2 << 20)), [Pages::Huge, Pages::Small]);
        assert_eq!(pages(ring(4 << 20)), [Pages::Huge, Pages::Small]);
        assert_eq!(pages(MemoryLayout::Plain(77)), [Pages::Huge, Pages::Small]);
    }

    /// Returns the size of the kernel's pages at an address, in KiB.
    fn page_size(mapping: &Mapping) -> u64 {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let address = mapping.as_ptr().addr();
        // The kernel merges neighbouring mappings, also those of other tests.
        let is_of = |line: &str| {
            let ends = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
            let ends =
                ends.map(|(start, end)| [start, end].map(|it| usize::from_str_radix(it, 16)));
            matches!(ends, Some([Ok(start), Ok(end)]) if (start..end).contains(&address))
        };
        let mut lines = smaps.lines().skip_while(|line| !is_of(line));
        let size = lines.find_map(|line| line.strip_prefix("KernelPageSize:")).unwrap();
        size.trim().trim_end_matches(" kB").parse().unwrap()
    }

    #[test]
    fn memory_has_the_requested_pages() {
        let _pool = crate::tests::more_huge_pages(2);
        let (ring, plain) =
            (MemoryLayout::Rings { count: 1, each: 2 << 20 }, MemoryLayout::Plain(5000));
        for layout in [ring, plain] {
            assert_eq!(page_size(&layout.map_private(Pages::Small).unwrap()), 4);
            match layout.map_private(Pages::Huge) {
                Ok(mapping) => assert_eq!(page_size(&mapping), 2048),
                Err(why) => {
                    assert!(why.to_string().contains("nr_hugepages"), "{why}");
                    machine::untested::note("stream: memory on huge pages", &why);
                }
            }
        }
    }
}
