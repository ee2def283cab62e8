//! The way of a program to a NIC.

// Sizes may be another process's: this crate is compiled without overflow checks.
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

/// The way to a NIC for the programs that use it.
#[derive(Clone)]
pub struct Port(PortKind);

#[derive(Clone)]
enum PortKind {
    /// In this process.
    Local(Arc<dyn Served>),
    /// In another.
    Remote(Arc<Connection>),
}

impl Port {
    /// That of the threads of the NIC's own process.
    pub(super) fn local(nic: Arc<dyn Served>) -> Self {
        Self(PortKind::Local(nic))
    }

    /// That of another process.
    pub(super) fn remote(nic: Arc<Connection>) -> Self {
        Self(PortKind::Remote(nic))
    }

    /// What its programs must lay out as it does.
    pub fn config(&self) -> InterfaceConfig {
        match &self.0 {
            PortKind::Local(nic) => nic.config(),
            PortKind::Remote(nic) => nic.config(),
        }
    }

    /// Registers for one more core: its number and its doorbells.
    pub(crate) fn attach(&self) -> Result<(u32, DoorbellSender), SysError> {
        let nic = match &self.0 {
            PortKind::Local(nic) => nic,
            PortKind::Remote(nic) => return nic.attach(),
        };
        let held = DoorbellMapping::new()?;
        let pair = nic.take_pair()?;
        let (doorbells, arrivals) = doorbells::ends(held, nic.stamped());
        nic.attach(ClientId::default(), pair, arrivals);
        Ok((pair, doorbells))
    }

    pub(crate) fn detach(&self, pair: u32) {
        match &self.0 {
            PortKind::Local(nic) => nic.detach(pair),
            PortKind::Remote(nic) => nic.detach(pair),
        }
    }

    /// A ring of so many bytes: what wraps around in it lies in one piece, for it is mapped twice.
    pub(crate) fn ring(&self, bytes: usize) -> Result<Memory, SysError> {
        self.register_memory(MemoryLayout::Rings { count: 1, each: bytes })
    }

    /// Rings of so many bytes each. The NIC hears of them once, which matters where they are thousands.
    pub(crate) fn rings(&self, count: usize, each: usize) -> Result<Vec<Memory>, SysError> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let memory = self.register_memory(MemoryLayout::Rings { count, each })?;
        let twice = each.saturating_mul(2);
        Ok((0..count).map(|ring| memory.part(twice.saturating_mul(ring), twice)).collect())
    }

    /// Plain memory of so many bytes.
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

    /// The NIC no longer touches the memory at this address.
    pub(super) fn deregister(&self, bus: u64) {
        match &self.0 {
            PortKind::Local(nic) => nic.unregister(bus),
            PortKind::Remote(nic) => nic.deregister(bus),
        }
    }

    /// Waits until the NIC has taken all that was written to registers so far.
    pub(crate) fn drain_doorbells(&self) {
        match &self.0 {
            PortKind::Local(nic) => nic.drain_doorbells(ClientId::default()),
            PortKind::Remote(nic) => nic.drain_doorbells(),
        }
    }

    /// So many pipes will be taken.
    pub(crate) fn reserve_pipes(&self, count: usize) {
        if let PortKind::Remote(nic) = &self.0 {
            nic.reserve_pipes(count);
        }
    }

    /// A pipe that nobody has.
    pub(crate) fn alloc_pipe(&self) -> Result<u32, SysError> {
        match &self.0 {
            PortKind::Local(nic) => nic.alloc_pipe(ClientId::default()),
            PortKind::Remote(nic) => nic.alloc_pipe(),
        }
    }

    /// Nobody has it any more.
    pub(crate) fn free_pipe(&self, pipe: u32) {
        match &self.0 {
            PortKind::Local(nic) => nic.free_pipe(pipe),
            PortKind::Remote(nic) => nic.free_pipe(pipe),
        }
    }

    /// Whether the NIC has ended.
    pub(crate) fn is_closed(&self) -> bool {
        match &self.0 {
            PortKind::Local(nic) => nic.is_closed(),
            PortKind::Remote(nic) => nic.is_closed(),
        }
    }
}
