//! What a device's pipes share.

use machine::SysError;

use super::Sizes;
use super::asked::Asked;
use super::room::Room;
use super::told::Told;
use crate::host::NotConfigured;
use crate::nic::Port;
use crate::nic::configuration::Configuration;
use crate::nic::layout::{FLIT, Queue, Register};
use crate::nic::memory::Memory;
use crate::nic::posted::Doorbells;
use crate::wire::flow::Flow;

/// What a device's pipes share.
pub(in crate::host) struct Shared {
    pub(in crate::host) port: Port,
    pub(in crate::host) doorbells: Doorbells,
    pub(in crate::host) pair: u32,
    pub(in crate::host) sizes: Sizes,
    /// Notifications: those of the NIC, and then those of the program.
    pub(super) buffers: Memory,
    /// Notifications of each buffer, a power of two, less one.
    pub(super) mask: u32,
    pub(super) told: Told,
    pub(super) asked: Asked,
    pub(super) room: Room,
}

impl Shared {
    /// A pair of notification buffers, of which the NIC knows.
    pub(super) fn new(port: &Port, sizes: Sizes) -> Result<Self, SysError> {
        let each = sizes.notifications as usize * FLIT;
        let buffers = port.plain(2 * each)?;
        let (pair, doorbells) = port.attach()?;
        let place = |register: Register, value| {
            doorbells.write(register.of(Queue::Buffers(pair)), value);
        };
        let (rx, tx) = (buffers.bus(), buffers.bus() + each as u64);
        place(Register::RxMemoryLow, rx as u32);
        place(Register::RxMemoryHigh, (rx >> 32) as u32);
        place(Register::TxMemoryLow, tx as u32);
        place(Register::TxMemoryHigh, (tx >> 32) as u32);
        Ok(Self {
            port: port.clone(),
            doorbells,
            pair,
            sizes,
            buffers,
            mask: sizes.notifications - 1,
            told: Told::new(),
            asked: Asked::new(sizes.notifications),
            room: Room::new(),
        })
    }

    /// A new pipe's number.
    pub(in crate::host) fn number_pipe(&self) -> Result<u32, SysError> {
        let pipe = self.port.take_pipe()?;
        self.told.place(pipe);
        self.room.begin(pipe);
        Ok(pipe)
    }

    pub(in crate::host) fn bind(&self, pipe: u32, flow: Flow) -> Result<(), NotConfigured> {
        self.configure(Configuration::Bind { flow, pipe })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.port.detach(self.pair);
    }
}
