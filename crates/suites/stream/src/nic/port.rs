//! A host's access to a NIC in this or in another process, and the memory that it shares with it.

// Sizes may come from another process, and this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::sync::Arc;

use machine::SysError;
use machine::mapping::Mapping;

use super::doorbell_mapping::DoorbellMapping;
use super::doorbells::{self, DoorbellSender};
use super::interface_config::InterfaceConfig;
use super::memory::{MemoryLayout, Pages};
use super::region::{ClientId, Region};
use super::remote::Connection;
use super::shared::Served;

/// A host's access to a NIC.
#[derive(Clone)]
pub struct Port(PortKind);

#[derive(Clone)]
enum PortKind {
    /// In this process, with memory in these pages.
    Local(Arc<dyn Served>, Pages),
    /// In another process.
    Remote(Arc<Connection>),
}

impl Port {
    /// Creates the access of threads in the NIC's process, with memory in small pages.
    pub(super) fn local(nic: Arc<dyn Served>) -> Self {
        Self(PortKind::Local(nic, Pages::default()))
    }

    /// Returns the same access, with memory in these pages. That of another process always is in small ones: a program could
    /// remove huge pages of its memory, and the NIC would find no others in the pool.
    #[must_use]
    pub fn with_pages(self, pages: Pages) -> Self {
        match self.0 {
            PortKind::Local(nic, _) => Self(PortKind::Local(nic, pages)),
            PortKind::Remote(nic) => Self(PortKind::Remote(nic)),
        }
    }

    /// Returns the NIC's configuration.
    pub fn config(&self) -> InterfaceConfig {
        match &self.0 {
            PortKind::Local(nic, _) => nic.config(),
            PortKind::Remote(nic) => nic.config(),
        }
    }

    /// Allocates a pair of notification buffers. Returns its ID and its doorbells.
    pub(crate) fn attach(&self) -> Result<(u32, DoorbellSender), SysError> {
        let nic = match &self.0 {
            PortKind::Local(nic, _) => nic,
            PortKind::Remote(nic) => return nic.attach(),
        };
        let mapping = DoorbellMapping::new()?;
        let pair = nic.alloc_pair()?;
        let (doorbells, receiver) = doorbells::ends(mapping, nic.delays());
        nic.attach(ClientId::default(), pair, receiver);
        Ok((pair, doorbells))
    }

    pub(crate) fn detach(&self, pair: u32) {
        match &self.0 {
            PortKind::Local(nic, _) => nic.detach(pair),
            PortKind::Remote(nic) => nic.detach(pair),
        }
    }

    /// Allocates a ring, mapped twice in a row, so that data that wraps is contiguous.
    pub(crate) fn ring(&self, bytes: usize) -> Result<Memory, SysError> {
        self.register_memory(MemoryLayout::Rings { count: 1, each: bytes })
    }

    /// Allocates rings of `each` bytes. Registers all of them in one request, which is faster for thousands.
    pub(crate) fn rings(&self, count: usize, each: usize) -> Result<Vec<Memory>, SysError> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let memory = self.register_memory(MemoryLayout::Rings { count, each })?;
        let twice = each.saturating_mul(2);
        Ok((0..count).map(|ring| memory.part(twice.saturating_mul(ring), twice)).collect())
    }

    /// Allocates `bytes` bytes of plain memory.
    pub(crate) fn plain(&self, bytes: usize) -> Result<Memory, SysError> {
        self.register_memory(MemoryLayout::Plain(bytes))
    }

    fn register_memory(&self, layout: MemoryLayout) -> Result<Memory, SysError> {
        let (mapping, bus) = match &self.0 {
            PortKind::Local(nic, pages) => {
                let pages = layout.pages(*pages);
                let mapping = Arc::new(layout.map_private(pages)?);
                nic.record_pages(layout, pages);
                nic.register(Region::new(ClientId::default(), Arc::clone(&mapping)));
                let bus = mapping.as_ptr() as u64;
                (mapping, bus)
            }
            PortKind::Remote(nic) => {
                let (mapping, bus) = nic.register_memory(layout)?;
                (Arc::new(mapping), bus)
            }
        };
        Ok(Memory::new(self.clone(), mapping, bus))
    }

    /// Ends the NIC's access to the memory at a bus address.
    fn deregister(&self, bus: u64) {
        match &self.0 {
            PortKind::Local(nic, _) => nic.deregister(bus),
            PortKind::Remote(nic) => nic.deregister(bus),
        }
    }

    /// Waits until the NIC has processed all register writes made so far.
    pub(crate) fn drain_doorbells(&self) {
        match &self.0 {
            PortKind::Local(nic, _) => nic.drain_doorbells(ClientId::default()),
            PortKind::Remote(nic) => nic.drain_doorbells(),
        }
    }

    /// Announces the allocation of `count` pipes.
    pub(crate) fn reserve_pipes(&self, count: usize) {
        if let PortKind::Remote(nic) = &self.0 {
            nic.reserve_pipes(count);
        }
    }

    /// Allocates an unused pipe ID.
    pub(crate) fn alloc_pipe(&self) -> Result<u32, SysError> {
        match &self.0 {
            PortKind::Local(nic, _) => nic.alloc_pipe(ClientId::default()),
            PortKind::Remote(nic) => nic.alloc_pipe(),
        }
    }

    /// Frees a pipe ID.
    pub(crate) fn free_pipe(&self, pipe: u32) {
        match &self.0 {
            PortKind::Local(nic, _) => nic.free_pipe(pipe),
            PortKind::Remote(nic) => nic.free_pipe(pipe),
        }
    }

    /// Returns whether the NIC has stopped.
    pub(crate) fn is_closed(&self) -> bool {
        match &self.0 {
            PortKind::Local(nic, _) => nic.is_closed(),
            PortKind::Remote(nic) => nic.is_closed(),
        }
    }
}

impl Connection {
    /// Returns access to the NIC.
    pub fn port(self: &Arc<Self>) -> Port {
        Port(PortKind::Remote(Arc::clone(self)))
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
    fn new(port: Port, mapping: Arc<Mapping>, bus: u64) -> Self {
        let (pointer, length) = (mapping.as_mut_ptr(), mapping.len());
        let registration = Arc::new(Registration { _mapping: mapping, bus, port });
        Self { pointer, bus, length, registration }
    }

    /// Returns a part of the memory.
    fn part(&self, offset: usize, length: usize) -> Self {
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
    #[cfg(test)]
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Returns the address in this process.
    #[inline(always)]
    pub(crate) fn pointer(&self) -> *mut u8 {
        self.pointer
    }
}
