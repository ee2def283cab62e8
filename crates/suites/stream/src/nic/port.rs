//! A host's access to a NIC in this or in another process.

// Sizes may come from another process, and this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::sync::Arc;

use machine::SysError;

use super::doorbell_mapping::DoorbellMapping;
use super::doorbells::{self, DoorbellSender};
use super::interface_config::InterfaceConfig;
use super::memory::{Memory, MemoryLayout};
use super::region::{ClientId, Region};
use super::remote::Connection;
use super::shared::Served;

/// A host's access to a NIC.
#[derive(Clone)]
pub struct Port(PortKind);

#[derive(Clone)]
enum PortKind {
    /// In this process.
    Local(Arc<dyn Served>),
    /// In another process.
    Remote(Arc<Connection>),
}

impl Port {
    /// Creates the access of threads in the NIC's process.
    pub(super) fn local(nic: Arc<dyn Served>) -> Self {
        Self(PortKind::Local(nic))
    }

    /// Creates the access of another process.
    pub(super) fn remote(nic: Arc<Connection>) -> Self {
        Self(PortKind::Remote(nic))
    }

    /// Returns the NIC's configuration.
    pub fn config(&self) -> InterfaceConfig {
        match &self.0 {
            PortKind::Local(nic) => nic.config(),
            PortKind::Remote(nic) => nic.config(),
        }
    }

    /// Allocates a pair of notification buffers. Returns its ID and its doorbells.
    pub(crate) fn attach(&self) -> Result<(u32, DoorbellSender), SysError> {
        let nic = match &self.0 {
            PortKind::Local(nic) => nic,
            PortKind::Remote(nic) => return nic.attach(),
        };
        let mapping = DoorbellMapping::new()?;
        let pair = nic.alloc_pair()?;
        let (doorbells, receiver) = doorbells::ends(mapping, nic.is_stamped());
        nic.attach(ClientId::default(), pair, receiver);
        Ok((pair, doorbells))
    }

    pub(crate) fn detach(&self, pair: u32) {
        match &self.0 {
            PortKind::Local(nic) => nic.detach(pair),
            PortKind::Remote(nic) => nic.detach(pair),
        }
    }

    /// Allocates a ring, mapped twice, contiguously, so that data that wraps stays in one piece.
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
            PortKind::Local(nic) => {
                let mapping = Arc::new(layout.map_private()?);
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
    pub(super) fn deregister(&self, bus: u64) {
        match &self.0 {
            PortKind::Local(nic) => nic.deregister(bus),
            PortKind::Remote(nic) => nic.deregister(bus),
        }
    }

    /// Waits until the NIC has processed all register writes made so far.
    pub(crate) fn drain_doorbells(&self) {
        match &self.0 {
            PortKind::Local(nic) => nic.drain_doorbells(ClientId::default()),
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
            PortKind::Local(nic) => nic.alloc_pipe(ClientId::default()),
            PortKind::Remote(nic) => nic.alloc_pipe(),
        }
    }

    /// Frees a pipe ID.
    pub(crate) fn free_pipe(&self, pipe: u32) {
        match &self.0 {
            PortKind::Local(nic) => nic.free_pipe(pipe),
            PortKind::Remote(nic) => nic.free_pipe(pipe),
        }
    }

    /// Returns whether the NIC has stopped.
    pub(crate) fn is_closed(&self) -> bool {
        match &self.0 {
            PortKind::Local(nic) => nic.is_closed(),
            PortKind::Remote(nic) => nic.is_closed(),
        }
    }
}
