//! A queue: a receive and a transmit ring.

use std::rc::Rc;

use machine::SysError;

use super::driver::{Dpdk, Driver};
use super::rings::{Rx, Tx};
use super::{BURST, Burst, Shared, Sizes};
use crate::host::config_result;
use crate::host::{ConfigError, NicClosed};
use crate::nic::configuration::Configuration;
use crate::nic::descriptor::{Descriptor, RxDescriptor};
use crate::nic::layout::{FLIT, Queue as Which, Register};
use crate::nic::notification::TxNotification;
use crate::nic::{Memory, Port};
use crate::wire::Flow;

/// A queue of the NIC.
pub struct Queue<D: Driver = Dpdk> {
    shared: Rc<Shared<D>>,
    id: u32,
    memory: Rings<D::Rx>,
    rx: Rx,
    tx: Tx,
}

impl<D: Driver> Queue<D> {
    pub(super) fn new(shared: Rc<Shared<D>>) -> Result<Self, SysError> {
        let sizes = shared.sizes;
        let memory = Rings::new(&shared.port, sizes)?;
        let id = shared.port.alloc_pipe()?;
        let (rx, tx) = (Rx::new(sizes.rx), Tx::new(sizes.tx));
        let mut queue = Self { shared, id, memory, rx, tx };
        let start = queue.memory.memory.bus();
        queue.set_address(Register::RxMemoryLow, Register::RxMemoryHigh, start);
        let start = start + u64::from(sizes.rx) * size_of::<D::Rx>() as u64;
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
    pub fn receive(&mut self, burst: &mut Burst<D>) -> usize {
        self.assert_same_device(burst);
        let mut received = 0;
        loop {
            let taken = self.rx.take(self.memory.rx(), burst);
            self.refill();
            received += taken;
            if taken < BURST || burst.space() == 0 {
                return received;
            }
        }
    }

    /// Sends all packets of a burst. Waits while the ring is full.
    ///
    /// # Errors
    /// Returns [`NicClosed`] if the NIC has stopped; unsent packets remain in the burst.
    ///
    /// # Panics
    /// Panics if the burst belongs to another device.
    #[inline(always)]
    pub fn send(&mut self, burst: &mut Burst<D>) -> Result<(), NicClosed> {
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
    pub fn try_send(&mut self, burst: &mut Burst<D>) -> usize {
        self.assert_same_device(burst);
        let mut sent = 0;
        loop {
            let Self { memory, tx, shared, .. } = self;
            tx.clean::<D>(memory.tx(), &shared.pool);
            let put = tx.put(memory.tx(), &shared.pool, burst, sent);
            if put > 0 {
                self.ring();
            }
            sent += put;
            if put < BURST || sent == burst.len() {
                burst.remove_sent(sent);
                return sent;
            }
        }
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
            tx.clean::<D>(memory.tx(), &shared.pool);
            tx.configure(memory.tx(), &shared.pool, buffer[0])
        });
        let slot = slot.inspect_err(|_| self.shared.pool.free(&buffer))?;
        self.ring();
        self.wait_until_done(slot)?;
        // The buffer returns to the pool with the next completion report.
        config_result(configuration, request)
    }

    /// Waits until the NIC has reported a descriptor.
    fn wait_until_done(&mut self, slot: usize) -> Result<(), NicClosed> {
        self.wait_for(|queue| Tx::is_done(queue.memory.tx(), slot).then_some(()))
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
            tx.clean::<D>(memory.tx(), &shared.pool);
            tx.request_report(memory.tx())
        })?;
        let tail = (slot as u32 + 1) & (self.shared.sizes.tx - 1);
        self.shared.doorbells.write(Register::TxTail.of(Which::Pipe(self.id)), tail);
        self.wait_until_done(slot)
    }

    /// Gives the NIC one burst of buffers if the ring has space. Returns whether it did.
    #[inline(always)]
    fn refill(&mut self) -> bool {
        let Self { memory, rx, shared, .. } = self;
        let tail = rx.refill(memory.rx(), &shared.pool);
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
    fn assert_same_device(&self, burst: &Burst<D>) {
        assert!(Rc::ptr_eq(&burst.pool, &self.shared.pool), "the burst belongs to another device");
    }
}

impl<D: Driver> Drop for Queue<D> {
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
struct Rings<R> {
    /// Starts of the rings, cached as in the pool.
    rx: *const R,
    tx: *const Descriptor,
    sizes: Sizes,
    memory: Memory,
}

impl<R: RxDescriptor> Rings<R> {
    fn new(port: &Port, sizes: Sizes) -> Result<Self, SysError> {
        let rx_bytes = sizes.rx as usize * size_of::<R>();
        let memory = port.plain(rx_bytes + sizes.tx as usize * size_of::<Descriptor>())?;
        let start = memory.pointer();
        let tx = start.wrapping_add(rx_bytes).cast_const().cast();
        Ok(Self { rx: start.cast_const().cast(), tx, sizes, memory })
    }

    #[inline(always)]
    fn rx(&self) -> &[R] {
        // SAFETY: the memory starts with this many aligned descriptors, and is mapped as long as it is borrowed; all
        // fields are atomic.
        unsafe { std::slice::from_raw_parts(self.rx, self.sizes.rx as usize) }
    }

    #[inline(always)]
    fn tx(&self) -> &[Descriptor] {
        // SAFETY: as for `rx`, after the receive ring.
        unsafe { std::slice::from_raw_parts(self.tx, self.sizes.tx as usize) }
    }
}

const _: () = assert!(size_of::<TxNotification>() == FLIT);
