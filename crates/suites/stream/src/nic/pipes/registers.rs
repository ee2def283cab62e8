//! Register writes.

use super::super::doorbells::DoorbellReceiver;
use super::super::engine::EngineContext;
use super::super::layout::{FLIT, PIPES, Queue, Register};
use super::super::register_writes::DelayedTail;
use super::super::register_writes::{Registers, Write};
use super::{ABSENT, NO_PAIR, Pipes};

impl Registers for Pipes {
    #[inline(always)]
    fn pairs(&self) -> usize {
        self.pairs.len()
    }

    #[inline(always)]
    fn doorbells_of(&mut self, pair: usize) -> Option<&mut DoorbellReceiver> {
        self.pairs[pair].as_mut().map(|pair| &mut pair.doorbells)
    }

    #[inline(always)]
    fn apply_write(&mut self, pair: u32, write: Write, now: u64, nic: &mut EngineContext) {
        let Write { queue, register, value } = write;
        match (queue, register) {
            (Queue::Pipe(pipe), Register::RxHead) => self.set_head(pair, pipe, value, nic),
            (Queue::Buffers(it), register) if it == pair => {
                self.pair_register(pair as usize, register, value, now, nic);
            }
            (Queue::Pipe(pipe), register) => self.pipe_register(pair, pipe, register, value, nic),
            _ => nic.counters.refused += 1,
        }
    }
}

impl Pipes {
    /// Sets the head of a pipe, up to which the host has read. If there are more packets, a notification becomes due;
    /// writing an unchanged head requests one.
    #[inline(always)]
    fn set_head(&mut self, pair: u32, id: u32, value: u32, nic: &mut EngineContext) {
        let pipe = &mut self.pipes[id as usize];
        if pipe.pair != pair {
            std::hint::cold_path();
            nic.counters.refused += 1;
            return;
        }
        nic.counters.head_updates += 1;
        self.unread -= pipe.unread(self.mask);
        pipe.head = value & self.mask;
        self.unread += pipe.unread(self.mask);
        if pipe.head == pipe.tail {
            pipe.notified = false;
        } else if self.notify == super::Notify::Reactively && !pipe.due {
            pipe.due = true;
            self.due.push(id);
        }
    }

    fn pair_register(
        &mut self,
        pair: usize,
        register: Register,
        value: u32,
        now: u64,
        nic: &mut EngineContext,
    ) {
        let mask = self.notifications_mask;
        let Some(one) = self.pairs[pair].as_mut() else { return };
        let bytes = (mask as usize + 1) * FLIT;
        let bus = |low: u32| u64::from(value) << 32 | u64::from(low);
        match register {
            Register::RxHead => one.rx_head = value & mask,
            Register::TxTail => {
                nic.counters.tail_updates += 1;
                one.announce(value & mask, mask, nic);
                // The NIC reads the notification, then the packets.
                one.tx_tail.set(value & mask, now, nic.read_delay(2));
            }
            Register::RxMemoryLow => one.rx_low = value,
            Register::TxMemoryLow => one.tx_low = value,
            Register::RxMemoryHigh => {
                one.rx = nic.resolve_ring(pair as u32, bus(one.rx_low), bytes).cast();
                (one.rx_head, one.rx_tail) = (0, 0);
            }
            Register::TxMemoryHigh => {
                one.tx = nic.resolve_ring(pair as u32, bus(one.tx_low), bytes).cast();
                (one.tx_head, one.tx_tail) = (0, DelayedTail::default());
            }
            Register::RxTail | Register::TxHead => nic.counters.refused += 1,
        }
    }

    fn pipe_register(
        &mut self,
        pair: u32,
        id: u32,
        register: Register,
        value: u32,
        nic: &mut EngineContext,
    ) {
        debug_assert!(id < PIPES, "Register::at returns no other");
        let pipe = &mut self.pipes[id as usize];
        // A pair may write to its pipes, and to pipes of its client that belong to no pair.
        if !nic.owns_pipe(pair, id) || pipe.pair != pair && pipe.pair != NO_PAIR {
            nic.counters.refused += 1;
            return;
        }
        match register {
            Register::RxMemoryLow => pipe.low = value,
            Register::RxMemoryHigh => {
                let low = pipe.low;
                self.reset(id, nic);
                // The low bits of the address contain the pair.
                let bus = u64::from(value) << 32 | u64::from(low & !0xfff);
                if bus == 0 {
                    nic.unbind(id);
                    return;
                }
                // Mapped twice, so that data that wraps is contiguous.
                let bytes = (self.mask as usize + 1) * FLIT * 2;
                match nic.resolve_dma(pair, bus, bytes) {
                    Some(ring) if low & 0xfff == pair => {
                        let pipe = &mut self.pipes[id as usize];
                        (pipe.ring, pipe.pair) = (ring, pair);
                        nic.ring_set(pair, id);
                    }
                    _ => {
                        nic.counters.refused += 1;
                        // It belongs to no pair, so its rules would survive the pair.
                        nic.unbind(id);
                    }
                }
            }
            _ => nic.counters.refused += 1,
        }
    }

    /// Removes a pipe with its rules.
    pub(super) fn remove(&mut self, id: u32, nic: &mut EngineContext) {
        self.reset(id, nic);
        nic.unbind(id);
    }

    /// Removes the ring of a pipe.
    fn reset(&mut self, id: u32, nic: &mut EngineContext) {
        let Some(pipe) = self.pipes.get_mut(id as usize) else { return };
        if !pipe.ring.is_null() {
            self.pending.flush(pipe.pair, nic);
        }
        self.unread -= pipe.unread(self.mask);
        *pipe = ABSENT;
        self.due.retain(|due| *due != id);
    }
}
