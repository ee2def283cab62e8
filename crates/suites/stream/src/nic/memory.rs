//! Layout and allocation of memory that the host shares with the NIC.

// Sizes may come from another process, and this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::io;

use machine::SysError;
use machine::mapping::Mapping;
use machine::memfd::Memfd;

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

    /// Allocates memory for this process.
    pub(crate) fn map_private(self) -> Result<Mapping, SysError> {
        let Self::Rings { .. } = self else {
            let bytes = self.bytes()?;
            let mapping =
                Mapping::transparent_huge(bytes).or_else(|_| Mapping::anonymous(bytes))?;
            mapping.prefault()?;
            return Ok(mapping);
        };
        self.map(&self.memfd()?)
    }

    /// Allocates memory that another process can map.
    pub(crate) fn memfd(self) -> Result<Memfd, SysError> {
        let bytes = self.bytes()?;
        Memfd::sealed("tollgate-nic", bytes).map_err(|source| SysError {
            attempt: format!("allocate {bytes} B for a NIC"),
            source,
            remedy: "free memory or use smaller rings".into(),
        })
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
