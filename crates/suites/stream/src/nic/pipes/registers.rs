//! What happens when a program writes a register.

use super::super::engine::Common;
use super::super::layout::{FLIT, PIPES, Queue, Register};
use super::super::sync::CREDIT;
use super::{ABSENT, Pipes};

/// Writes of one core taken in one turn: a core that writes without end must not keep the others waiting.
const WRITES: usize = 256;

impl Pipes {
    /// Takes some of the writes of a core that were made before a time.
    #[inline(always)]
    pub(super) fn take_writes(&mut self, pair: usize, before: u64, now: u64, nic: &mut Common) {
        for _ in 0..WRITES {
            if !self.take_write(pair, before, now, nic) {
                return;
            }
        }
    }

    /// Takes all writes that a core has made by now: there is no credit for more.
    #[cold]
    pub(super) fn take_all_writes(&mut self, pair: usize, now: u64, nic: &mut Common) {
        for _ in 0..CREDIT {
            if !self.take_write(pair, u64::MAX, now, nic) {
                return;
            }
        }
    }

    /// Takes the next write of a core; whether there was one.
    #[inline(always)]
    fn take_write(&mut self, pair: usize, before: u64, now: u64, nic: &mut Common) -> bool {
        let Some(one) = self.pairs[pair].as_mut() else { return false };
        let Some((address, value)) = one.arrivals.take(before) else { return false };
        match Register::at(address) {
            Some((Queue::Pipe(pipe), Register::RxHead)) => self.head(pipe, value, nic),
            Some((Queue::Buffers(it), register)) if it as usize == pair => {
                self.pair_register(pair, register, value, now, nic);
            }
            Some((Queue::Pipe(pipe), register)) => {
                self.pipe_register(pair as u32, pipe, register, value, nic);
            }
            _ => nic.counters.refused += 1,
        }
        true
    }

    /// The program has read a pipe up to there. Where there is more, it is notified again; writing the
    /// same head again asks for that.
    #[inline(always)]
    fn head(&mut self, id: u32, value: u32, nic: &mut Common) {
        nic.counters.head_updates += 1;
        let pipe = &mut self.pipes[id as usize];
        pipe.head = value & self.mask;
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
        nic: &mut Common,
    ) {
        let mask = self.notifications_mask;
        let Some(one) = self.pairs[pair].as_mut() else { return };
        let bytes = (mask as usize + 1) * FLIT;
        let at = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        let mut reached = |low| match at(low, value) {
            0 => std::ptr::null_mut(),
            bus => nic
                .reach(bus, bytes)
                .filter(|_| bus.is_multiple_of(FLIT as u64))
                .unwrap_or_else(|| {
                    nic.counters.refused += 1;
                    std::ptr::null_mut()
                }),
        };
        match register {
            Register::RxHead => one.rx_head = value & mask,
            Register::TxTail => {
                nic.counters.tail_updates += 1;
                if nic.transfer == 0 {
                    one.tx_tail = value & mask;
                } else {
                    // The NIC reads the notification, and then what it points to.
                    one.tails.push_back((now + 2 * nic.transfer, value & mask));
                }
            }
            Register::RxMemoryLow => one.rx_low = value,
            Register::TxMemoryLow => one.tx_low = value,
            Register::RxMemoryHigh => {
                one.rx = reached(one.rx_low).cast();
                (one.rx_head, one.rx_tail) = (0, 0);
            }
            Register::TxMemoryHigh => {
                one.tx = reached(one.tx_low).cast();
                (one.tx_head, one.tx_tail) = (0, 0);
                one.tails.clear();
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
        nic: &mut Common,
    ) {
        debug_assert!(id < PIPES, "Register::at gives no other");
        let pipe = &mut self.pipes[id as usize];
        match register {
            Register::RxMemoryLow => pipe.low = value,
            Register::RxMemoryHigh => {
                let low = pipe.low;
                if !pipe.ring.is_null() {
                    self.under_way.hurry(pipe.pair);
                }
                *pipe = ABSENT;
                self.due.retain(|due| *due != id);
                // The low bits of the address say which core's the pipe is.
                let bus = u64::from(value) << 32 | u64::from(low & !0xfff);
                if bus == 0 {
                    nic.steering.table.remove_all_of(id);
                    nic.steering.changed();
                    return;
                }
                // Mapped twice, so that what wraps around lies in one piece.
                let bytes = (self.mask as usize + 1) * FLIT * 2;
                match nic.reach(bus, bytes) {
                    Some(ring) if low & 0xfff == pair => {
                        let pipe = &mut self.pipes[id as usize];
                        (pipe.ring, pipe.pair) = (ring, pair);
                    }
                    _ => nic.counters.refused += 1,
                }
            }
            _ => nic.counters.refused += 1,
        }
    }
}
