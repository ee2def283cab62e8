//! Memory of a program that its NIC reads and writes.

// Sizes may be another process's: this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::io;
use std::sync::Arc;

use machine::SysError;
use machine::mapping::Mapping;
use machine::memfd::Memfd;

use super::Port;

/// How memory lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryLayout {
    /// Rings of so many bytes each: what wraps around in one lies in one piece, for it is mapped twice.
    Rings {
        /// How many.
        count: usize,
        /// Bytes of each, whole pages.
        each: usize,
    },
    /// So many bytes, once.
    Plain(usize),
}

impl MemoryLayout {
    /// Bytes of memory that it takes.
    pub(crate) fn bytes(self) -> Result<usize, SysError> {
        let (count, each) = match self {
            Self::Rings { count, each } => (count, each),
            Self::Plain(bytes) => (1, bytes),
        };
        count.checked_mul(each).ok_or_else(|| SysError {
            attempt: format!("make {count} rings of {each} B"),
            source: io::ErrorKind::InvalidInput.into(),
            remedy: "ask for fewer or shorter ones".into(),
        })
    }

    /// How many spans of address space it takes.
    pub(crate) fn mappings(self) -> usize {
        match self {
            Self::Rings { count, .. } => count.saturating_mul(2),
            Self::Plain(_) => 1,
        }
    }

    /// New memory of this process that lies that way.
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

    /// New memory that another process may map too.
    pub(crate) fn memfd(self) -> Result<Memfd, SysError> {
        let bytes = self.bytes()?;
        Memfd::sealed("tollgate-nic", bytes).map_err(|source| SysError {
            attempt: format!("make {bytes} B of memory for a NIC"),
            source,
            remedy: "free memory or ask for less".into(),
        })
    }

    /// Maps a memfd's memory that way, and has all of it there.
    pub(crate) fn map(self, memfd: &Memfd) -> Result<Mapping, SysError> {
        let mapping = match self {
            Self::Rings { each, .. } => Mapping::mirrored_rings(memfd, each),
            Self::Plain(bytes) => Mapping::shared(memfd, bytes),
        }?;
        mapping.prefault()?;
        Ok(mapping)
    }
}

/// Memory that the NIC may touch for as long as this is there, or a part of the same.
#[derive(Clone)]
pub struct Memory {
    /// Kept apart, so that they are found with one load.
    pointer: *mut u8,
    bus: u64,
    length: usize,
    lent: Arc<Lent>,
}

/// What the NIC was told of.
struct Lent {
    _mapping: Arc<Mapping>,
    bus: u64,
    port: Port,
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.port.deregister(self.bus);
    }
}

impl Memory {
    /// What the NIC behind this port was told that it has at an address.
    pub(crate) fn new(port: Port, mapping: Arc<Mapping>, bus: u64) -> Self {
        let (pointer, length) = (mapping.as_mut_ptr(), mapping.len());
        Self { pointer, bus, length, lent: Arc::new(Lent { _mapping: mapping, bus, port }) }
    }

    /// A part of it.
    pub(crate) fn part(&self, offset: usize, length: usize) -> Self {
        let end = offset.checked_add(length);
        assert!(end.is_some_and(|end| end <= self.length), "a part lies inside");
        let lent = Arc::clone(&self.lent);
        Self {
            pointer: self.pointer.wrapping_add(offset),
            bus: self.bus.saturating_add(offset as u64),
            length,
            lent,
        }
    }

    /// Where it lies for the NIC.
    pub fn bus(&self) -> u64 {
        self.bus
    }

    /// Bytes; those of a ring count twice.
    #[inline(always)]
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Where it lies here.
    #[inline(always)]
    pub(crate) fn pointer(&self) -> *mut u8 {
        self.pointer
    }
}
