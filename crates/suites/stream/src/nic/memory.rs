//! Memory that the host shares with the NIC.

// Sizes may come from another process, and this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::io;
use std::sync::Arc;

use machine::SysError;
use machine::mapping::Mapping;
use machine::memfd::Memfd;

use super::Port;

/// Layout of shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryLayout {
    /// Rings, each mapped twice, contiguously, so that data that wraps stays in one piece.
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

/// Memory, or a part of it, that the NIC may access as long as this value lives.
#[derive(Clone)]
pub struct Memory {
    /// Cached, so that it is found with one load.
    pointer: *mut u8,
    bus: u64,
    length: usize,
    registration: Arc<Registration>,
}

/// A memory registration with the NIC, which ends when it is dropped.
struct Registration {
    _mapping: Arc<Mapping>,
    bus: u64,
    port: Port,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.port.deregister(self.bus);
    }
}

impl Memory {
    /// Wraps memory that was registered at bus address `bus`.
    pub(crate) fn new(port: Port, mapping: Arc<Mapping>, bus: u64) -> Self {
        let (pointer, length) = (mapping.as_mut_ptr(), mapping.len());
        let registration = Arc::new(Registration { _mapping: mapping, bus, port });
        Self { pointer, bus, length, registration }
    }

    /// Returns a part of the memory.
    pub(crate) fn part(&self, offset: usize, length: usize) -> Self {
        let end = offset.checked_add(length);
        assert!(end.is_some_and(|end| end <= self.length), "the part exceeds the memory");
        let registration = Arc::clone(&self.registration);
        Self {
            pointer: self.pointer.wrapping_add(offset),
            bus: self.bus.saturating_add(offset as u64),
            length,
            registration,
        }
    }

    /// Returns the bus address.
    pub fn bus(&self) -> u64 {
        self.bus
    }

    /// Returns the mapped length in bytes, twice the size for a ring.
    #[inline(always)]
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Returns the address in this process.
    #[inline(always)]
    pub(crate) fn pointer(&self) -> *mut u8 {
        self.pointer
    }
}
