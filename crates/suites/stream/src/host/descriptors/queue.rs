//! A queue: a receive and a transmit ring.

use std::rc::Rc;

use machine::SysError;

use super::Burst;
use super::Shared;
use super::rings::{Rx, Tx};
use crate::host::config_result;
use crate::host::{ConfigError, NicClosed};
use crate::nic::Memory;
use crate::nic::configuration::Configuration;
use crate::nic::descriptor::Descriptor;
use crate::nic::layout::{FLIT, Queue as Which, Register};
use crate::nic::notification::TxNotification;
use crate::wire::Flow;

/// A queue of the NIC.
pub struct Queue {
    shared: Rc<Shared>,
    id: u32,
    memory: Rings,
    rx: Rx,
    tx: Tx,
}

impl Queue {
    pub(super) fn new(shared: Rc<Shared>) -> Result<Self, SysError> {
        let sizes = shared.sizes;
        let bytes = (sizes.rx + sizes.tx) as usize * size_of::<Descriptor>();
        let memory = Rings::new(shared.port.plain(bytes)?);
        let id = shared.port.alloc_pipe()?;
        let (rx, tx) = (Rx::new(sizes.rx), Tx::new(sizes.tx));
        let mut queue = Self { shared, id, memory, rx, tx };
        let start = queue.memory.memory.bus();
        queue.set_address(Register::RxMemoryLow, Register::RxMemoryHigh, start);
        let start = start + u64::from(sizes.rx) * size_of::<Descriptor>() as u64;
        queue.set_address(Register::TxMemoryLow, Register::TxMemoryHigh, start);
        while queue.refill() {}
        Ok(queue)
    }

    /// Returns the NIC's ID of the queue.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Directs packets of a flow to this queue. Which fields the NIC matches depends on the protocol: see
    /// [`flow_table::looked_up`](crate::nic::flow_table::looked_up).
    ///
    /// # Errors
    /// Returns an error if the NIC has stopped, its flow table is full, or no buffer is free.
    pub fn bind(&mut self, flow: Flow) -> Result<(), ConfigError> {
        self.configure(Configuration::Bind { flow, pipe: self.id })
    }

    /// Adds received packets to a burst as far as it has space. Returns their number.
    ///
    /// # Panics
    /// Panics if the burst belongs to another device.
    #[inline(always)]
    pub fn receive(&mut self, burst: &mut Burst) -> usize {
        self.assert_same_device(burst);
        let Self { memory, rx, shared, .. } = self;
        let received = rx.take(&rings(memory)[..shared.sizes.rx as usize], burst);
        self.refill();
        received
    }

    /// Sends all packets of a burst. Waits while the ring is full.
    ///
    /// # Errors
    /// Returns [`NicClosed`] if the NIC has stopped; unsent packets remain in the burst.
    ///
    /// # Panics
    /// Panics if the burst belongs to another device.
    #[inline(always)]
    pub fn send(&mut self, burst: &mut Burst) -> Result<(), NicClosed> {
        loop {
            let sent = self.try_send(burst);
            if burst.is_empty() {
                return Ok(());
            }
            std::hint::cold_path();
            if sent == 0 && self.shared.port.is_closed() {
                return Err(NicClosed);
            }
            std::hint::spin_loop();
        }
    }

    /// Sends the first packets of a burst as far as the ring has space, and removes them from the burst. Returns their
    /// number.
    ///
    /// # Panics
    /// Panics if the burst belongs to another device.
    #[inline(always)]
    pub fn try_send(&mut self, burst: &mut Burst) -> usize {
        self.assert_same_device(burst);
        let Self { memory, tx, shared, .. } = self;
        let ring = &rings(memory)[shared.sizes.rx as usize..];
        tx.clean(ring, &shared.pool);
        let put = tx.put(ring, &shared.pool, burst);
        if put > 0 {
            self.ring();
        }
        put
    }

    /// Changes the NIC's configuration and waits until it is done.
    ///
    /// # Errors
    /// Returns an error if the NIC has stopped or refuses the configuration, or no buffer is free.
    pub fn configure(&mut self, configuration: Configuration) -> Result<(), ConfigError> {
        if matches!(configuration, Configuration::Timestamp { .. }) {
            return Err(ConfigError::Timestamp);
        }
        let mut buffer = [0];
        if self.shared.pool.alloc(&mut buffer) == 0 {
            return Err(ConfigError::NoBuffer);
        }
        let address = self.shared.pool.address(buffer[0]).cast::<TxNotification>();
        // SAFETY: the buffer is allocated to this function, is larger than a notification and aligned to a flit; all
        // fields are atomic. The pool keeps the memory mapped as long as the queue exists.
        let request = unsafe { &*address };
        request.set_words(configuration.words());
        let slot = self.wait_for(|queue| {
            let Self { memory, tx, shared, .. } = queue;
            let ring = &rings(memory)[shared.sizes.rx as usize..];
            tx.clean(ring, &shared.pool);
            tx.configure(ring, &shared.pool, buffer[0])
        });
        let slot = slot.inspect_err(|_| self.shared.pool.free(&buffer))?;
        self.ring();
        self.wait_until_done(slot)?;
        // The buffer returns to the pool with the next completion report.
        config_result(configuration, request)
    }

    /// Waits until the NIC has reported a descriptor.
    fn wait_until_done(&mut self, slot: usize) -> Result<(), NicClosed> {
        self.wait_for(|queue| {
            let ring = &rings(&queue.memory)[queue.shared.sizes.rx as usize..];
            Tx::is_done(ring, slot).then_some(())
        })
    }

    /// Polls until `poll` returns a value.
    fn wait_for<T>(
        &mut self,
        mut poll: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<T, NicClosed> {
        loop {
            if let Some(done) = poll(self) {
                return Ok(done);
            }
            if self.shared.port.is_closed() {
                return Err(NicClosed);
            }
            std::hint::spin_loop();
        }
    }

    /// Waits until all packets have been sent.
    fn wait_until_sent(&mut self) -> Result<(), NicClosed> {
        let slot = self.wait_for(|queue| {
            let Self { memory, tx, shared, .. } = queue;
            let ring = &rings(memory)[shared.sizes.rx as usize..];
            tx.clean(ring, &shared.pool);
            tx.request_report(ring)
        })?;
        let tail = (slot as u32 + 1) & (self.shared.sizes.tx - 1);
        self.shared.doorbells.write(Register::TxTail.of(Which::Pipe(self.id)), tail);
        self.wait_until_done(slot)
    }

    /// Gives the NIC one burst of buffers if the ring has space. Returns whether it did.
    #[inline(always)]
    fn refill(&mut self) -> bool {
        let Self { memory, rx, shared, .. } = self;
        let tail = rx.refill(&rings(memory)[..shared.sizes.rx as usize], &shared.pool);
        if let Some(tail) = tail {
            shared.doorbells.write(Register::RxTail.of(Which::Pipe(self.id)), tail);
        }
        tail.is_some()
    }

    /// Notifies the NIC of new descriptors to send.
    #[inline(always)]
    fn ring(&self) {
        let register = Register::TxTail.of(Which::Pipe(self.id));
        self.shared.doorbells.write(register, self.tx.tail());
    }

    /// Writes the address of a ring to the NIC; 0 removes the ring.
    fn set_address(&self, low: Register, high: Register, bus: u64) {
        let write = |register: Register, value| {
            self.shared.doorbells.write(register.of(Which::Pipe(self.id)), value);
        };
        write(low, bus as u32);
        write(high, (bus >> 32) as u32);
    }

    #[inline(always)]
    fn assert_same_device(&self, burst: &Burst) {
        assert!(Rc::ptr_eq(&burst.pool, &self.shared.pool), "the burst belongs to another device");
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let _ = self.wait_until_sent();
        self.set_address(Register::RxMemoryLow, Register::RxMemoryHigh, 0);
        self.set_address(Register::TxMemoryLow, Register::TxMemoryHigh, 0);
        self.shared.port.drain_doorbells();
        self.rx.free_all(&self.shared.pool);
        self.tx.free_all(&self.shared.pool);
        self.shared.port.free_pipe(self.id);
    }
}

/// The descriptors of both rings, the receive ring first.
struct Rings {
    /// Start of the memory, cached as in the pool.
    start: *const Descriptor,
    count: usize,
    memory: Memory,
}

impl Rings {
    fn new(memory: Memory) -> Self {
        let count = memory.length() / size_of::<Descriptor>();
        Self { start: memory.pointer().cast(), count, memory }
    }
}

#[inline(always)]
fn rings(rings: &Rings) -> &[Descriptor] {
    // SAFETY: the memory contains `count` page-aligned descriptors as long as it is borrowed; all fields are atomic.
    unsafe { std::slice::from_raw_parts(rings.start, rings.count) }
}

const _: () = assert!(size_of::<TxNotification>() == FLIT);
