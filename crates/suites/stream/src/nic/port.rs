//! The way of a program to a NIC.

// Sizes may be another process's: this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::sync::Arc;

use machine::SysError;

use super::form::Form;
use super::held::Held;
use super::memory::{Memory, Shape};
use super::posted::{self, Doorbells};
use super::region::{Program, Region};
use super::remote::Connection;
use super::shared::Served;

/// The way to a NIC for the programs that use it.
#[derive(Clone)]
pub struct Port(Way);

#[derive(Clone)]
enum Way {
    /// In this process.
    Here(Arc<dyn Served>),
    /// In another.
    There(Arc<Connection>),
}

impl Port {
    /// That of the threads of the NIC's own process.
    pub(super) fn here(nic: Arc<dyn Served>) -> Self {
        Self(Way::Here(nic))
    }

    /// That of another process.
    pub(super) fn there(nic: Arc<Connection>) -> Self {
        Self(Way::There(nic))
    }

    /// What its programs must lay out as it does.
    pub fn form(&self) -> Form {
        match &self.0 {
            Way::Here(nic) => nic.form(),
            Way::There(nic) => nic.form(),
        }
    }

    /// Registers for one more core: its number and its doorbells.
    pub(crate) fn attach(&self) -> Result<(u32, Doorbells), SysError> {
        let nic = match &self.0 {
            Way::Here(nic) => nic,
            Way::There(nic) => return nic.attach(),
        };
        let held = Held::new()?;
        let pair = nic.take_pair()?;
        let (doorbells, arrivals) = posted::ends(held, nic.stamped());
        nic.attach(Program::default(), pair, arrivals);
        Ok((pair, doorbells))
    }

    pub(crate) fn detach(&self, pair: u32) {
        match &self.0 {
            Way::Here(nic) => nic.detach(pair),
            Way::There(nic) => nic.detach(pair),
        }
    }

    /// A ring of so many bytes: what wraps around in it lies in one piece, for it is mapped twice.
    pub(crate) fn ring(&self, bytes: usize) -> Result<Memory, SysError> {
        self.lend(Shape::Rings { count: 1, each: bytes })
    }

    /// Rings of so many bytes each. The NIC hears of them once, which matters where they are thousands.
    pub(crate) fn rings(&self, count: usize, each: usize) -> Result<Vec<Memory>, SysError> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let memory = self.lend(Shape::Rings { count, each })?;
        let twice = each.saturating_mul(2);
        Ok((0..count).map(|ring| memory.part(twice.saturating_mul(ring), twice)).collect())
    }

    /// Plain memory of so many bytes.
    pub(crate) fn plain(&self, bytes: usize) -> Result<Memory, SysError> {
        self.lend(Shape::Plain(bytes))
    }

    fn lend(&self, shape: Shape) -> Result<Memory, SysError> {
        let (mapping, bus) = match &self.0 {
            Way::Here(nic) => {
                let mapping = Arc::new(shape.here()?);
                nic.register(Region::new(Program::default(), Arc::clone(&mapping)));
                let bus = mapping.as_ptr() as u64;
                (mapping, bus)
            }
            Way::There(nic) => {
                let (mapping, bus) = nic.lend(shape)?;
                (Arc::new(mapping), bus)
            }
        };
        Ok(Memory::new(self.clone(), mapping, bus))
    }

    /// The NIC no longer touches the memory at this address.
    pub(super) fn take_back(&self, bus: u64) {
        match &self.0 {
            Way::Here(nic) => nic.unregister(bus),
            Way::There(nic) => nic.take_back(bus),
        }
    }

    /// Waits until the NIC has taken all that was written to registers so far.
    pub(crate) fn settle(&self) {
        match &self.0 {
            Way::Here(nic) => nic.settle(Program::default()),
            Way::There(nic) => nic.settle(),
        }
    }

    /// So many pipes will be taken.
    pub(crate) fn reserve_pipes(&self, count: usize) {
        if let Way::There(nic) = &self.0 {
            nic.reserve_pipes(count);
        }
    }

    /// A pipe that nobody has.
    pub(crate) fn take_pipe(&self) -> Result<u32, SysError> {
        match &self.0 {
            Way::Here(nic) => nic.take_pipe(Program::default()),
            Way::There(nic) => nic.take_pipe(),
        }
    }

    /// Nobody has it any more.
    pub(crate) fn give_pipe(&self, pipe: u32) {
        match &self.0 {
            Way::Here(nic) => nic.give_pipe(pipe),
            Way::There(nic) => nic.give_pipe(pipe),
        }
    }

    /// Whether the NIC has ended.
    pub(crate) fn gone(&self) -> bool {
        match &self.0 {
            Way::Here(nic) => nic.gone(),
            Way::There(nic) => nic.gone(),
        }
    }
}
