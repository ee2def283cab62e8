//! A queue: a ring each way.

use std::rc::Rc;

use machine::SysError;

use super::Burst;
use super::Shared;
use super::rings::{Rx, Tx};
use crate::host::answer;
use crate::host::{ConfigError, NicClosed};
use crate::nic::configuration::Configuration;
use crate::nic::descriptor::Descriptor;
use crate::nic::layout::{FLIT, Queue as Which, Register};
use crate::nic::memory::Memory;
use crate::nic::notification::TxNotification;
use crate::wire::Flow;

/// A queue of the NIC, to receive from and to send by.
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
        queue.place(Register::RxMemoryLow, Register::RxMemoryHigh, start);
        let start = start + u64::from(sizes.rx) * size_of::<Descriptor>() as u64;
        queue.place(Register::TxMemoryLow, Register::TxMemoryHigh, start);
        while queue.refill() {}
        Ok(queue)
    }

    /// The number that the NIC has for it.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Has packets of a flow come here. What the NIC looks up of a flow depends on its protocol: see
    /// [`flow_table::looked_up`](crate::nic::flow_table::looked_up).
    ///
    /// # Errors
    /// Where the NIC has gone, its flow table has no place for the rule, or no buffer is free.
    pub fn bind(&mut self, flow: Flow) -> Result<(), ConfigError> {
        self.configure(Configuration::Bind { flow, pipe: self.id })
    }

    /// Adds packets that have come to a burst, as many as it has room for; how many they were.
    ///
    /// # Panics
    /// Where the burst is of another device.
    #[inline(always)]
    pub fn receive(&mut self, burst: &mut Burst) -> usize {
        self.assert_ours(burst);
        let Self { memory, rx, shared, .. } = self;
        let received = rx.take(&rings(memory)[..shared.sizes.rx as usize], burst);
        self.refill();
        received
    }

    /// Sends all packets of a burst. Waits where the ring is full.
    ///
    /// # Errors
    /// Where the NIC has gone: what was not sent is still in the burst.
    ///
    /// # Panics
    /// Where the burst is of another device.
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

    /// Sends the first packets of a burst, as many as the ring has room for; how many they were. The others are
    /// still in the burst.
    ///
    /// # Panics
    /// Where the burst is of another device.
    #[inline(always)]
    pub fn try_send(&mut self, burst: &mut Burst) -> usize {
        self.assert_ours(burst);
        let Self { memory, tx, shared, .. } = self;
        let ring = &rings(memory)[shared.sizes.rx as usize..];
        tx.clean(ring, &shared.pool);
        let put = tx.put(ring, &shared.pool, burst);
        if put > 0 {
            self.ring();
        }
        put
    }

    /// Changes the NIC's configuration, and waits until it is done.
    ///
    /// # Errors
    /// Where the NIC has gone, no buffer is free, or it cannot be configured so.
    pub fn configure(&mut self, configuration: Configuration) -> Result<(), ConfigError> {
        if matches!(configuration, Configuration::Timestamp { .. }) {
            return Err(ConfigError::Timestamp);
        }
        let mut buffer = [0];
        if self.shared.pool.take(&mut buffer) == 0 {
            return Err(ConfigError::NoBuffer);
        }
        let place = self.shared.pool.place(buffer[0]).cast::<TxNotification>();
        // SAFETY: the buffer is nobody else's, longer than a notification and aligned to a flit; all of its
        // fields are atomic. The pool has the memory for as long as the queue is there.
        let asked = unsafe { &*place };
        asked.set_words(configuration.words());
        let slot = self.wait_for(|queue| {
            let Self { memory, tx, shared, .. } = queue;
            let ring = &rings(memory)[shared.sizes.rx as usize..];
            tx.clean(ring, &shared.pool);
            tx.configure(ring, &shared.pool, buffer[0])
        });
        let slot = slot.inspect_err(|_| self.shared.pool.give(&buffer))?;
        self.ring();
        self.wait_until_done(slot)?;
        // The buffer goes back to the pool with what is sent next.
        answer(configuration, asked)
    }

    /// Waits until a descriptor that was to be reported is done.
    fn wait_until_done(&mut self, slot: usize) -> Result<(), NicClosed> {
        self.wait_for(|queue| {
            let ring = &rings(&queue.memory)[queue.shared.sizes.rx as usize..];
            Tx::is_done(ring, slot).then_some(())
        })
    }

    /// Waits for something of the NIC.
    fn wait_for<T>(
        &mut self,
        mut what: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<T, NicClosed> {
        loop {
            if let Some(done) = what(self) {
                return Ok(done);
            }
            if self.shared.port.is_closed() {
                return Err(NicClosed);
            }
            std::hint::spin_loop();
        }
    }

    /// Waits until all that was to be sent has been.
    fn wait_until_sent(&mut self) -> Result<(), NicClosed> {
        let slot = self.wait_for(|queue| {
            let Self { memory, tx, shared, .. } = queue;
            let ring = &rings(memory)[shared.sizes.rx as usize..];
            tx.clean(ring, &shared.pool);
            tx.ask(ring)
        })?;
        let tail = (slot as u32 + 1) & (self.shared.sizes.tx - 1);
        self.shared.doorbells.write(Register::TxTail.of(Which::Pipe(self.id)), tail);
        self.wait_until_done(slot)
    }

    /// Gives the NIC buffers for a burst where it has room for them; whether it did.
    #[inline(always)]
    fn refill(&mut self) -> bool {
        let Self { memory, rx, shared, .. } = self;
        let tail = rx.refill(&rings(memory)[..shared.sizes.rx as usize], &shared.pool);
        if let Some(tail) = tail {
            shared.doorbells.write(Register::RxTail.of(Which::Pipe(self.id)), tail);
        }
        tail.is_some()
    }

    /// Tells the NIC up to where there is something to send.
    #[inline(always)]
    fn ring(&self) {
        let register = Register::TxTail.of(Which::Pipe(self.id));
        self.shared.doorbells.write(register, self.tx.tail());
    }

    /// Tells the NIC where a ring lies, or by 0 that there is none.
    fn place(&self, low: Register, high: Register, bus: u64) {
        let write = |register: Register, value| {
            self.shared.doorbells.write(register.of(Which::Pipe(self.id)), value);
        };
        write(low, bus as u32);
        write(high, (bus >> 32) as u32);
    }

    #[inline(always)]
    fn assert_ours(&self, burst: &Burst) {
        assert!(Rc::ptr_eq(&burst.pool, &self.shared.pool), "a burst of another device");
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let _ = self.wait_until_sent();
        self.place(Register::RxMemoryLow, Register::RxMemoryHigh, 0);
        self.place(Register::TxMemoryLow, Register::TxMemoryHigh, 0);
        self.shared.port.drain_doorbells();
        self.rx.empty(&self.shared.pool);
        self.tx.empty(&self.shared.pool);
        self.shared.port.give_pipe(self.id);
    }
}

/// The descriptors of both rings, those to receive first.
struct Rings {
    /// Where they begin, kept at hand as the pool's memory is.
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
    // SAFETY: the memory holds so many, aligned to a page, as long as it is borrowed; all fields are atomic.
    unsafe { std::slice::from_raw_parts(rings.start, rings.count) }
}

const _: () = assert!(size_of::<TxNotification>() == FLIT);
