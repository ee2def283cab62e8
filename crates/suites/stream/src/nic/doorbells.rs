//! Posted writes: how a program's writes to registers reach the NIC, in order, as over PCIe.
//!
//! A card has its registers changed under it; a thread would have to look at all of thousands for those that
//! changed. So writes travel as PCIe carries them: a queue of address and value, with credit for as many as
//! it holds. Only this queue would go where a card stands.
//!
//! How the memory is held is not its matter, so that it may be shared with another process: whatever lies
//! there, the NIC reads each word once and makes a write of it.

use std::cell::Cell;

use super::doorbell_mapping::DoorbellMapping;
use super::sync::{CREDIT, Ordering, spin_loop};

/// The two ends of an empty queue.
pub(super) fn ends(queue: DoorbellMapping, stamped: bool) -> (DoorbellSender, DoorbellReceiver) {
    (DoorbellSender::new(queue.clone(), stamped), DoorbellReceiver::new(queue, stamped))
}

/// A write in a slot: its address, its value, and in the lowest bit the parity of the queue's lap, by which
/// the other end sees that it is new.
#[inline(always)]
fn packed(address: u32, value: u32, next: u32) -> u64 {
    u64::from(address) << 33 | u64::from(value) << 1 | lap(next)
}

/// 1 in the first lap, so that an empty queue holds nothing new.
#[inline(always)]
fn lap(next: u32) -> u64 {
    u64::from((next / CREDIT).is_multiple_of(2))
}

/// The program's end.
#[derive(Debug)]
pub(crate) struct DoorbellSender {
    queue: DoorbellMapping,
    stamped: bool,
    next: Cell<u32>,
    /// Up to where the NIC was known to have taken them.
    known: Cell<u32>,
}

impl DoorbellSender {
    /// That of an empty queue.
    pub(super) fn new(queue: DoorbellMapping, stamped: bool) -> Self {
        Self { queue, stamped, next: Cell::new(0), known: Cell::new(0) }
    }

    /// Writes a register. Waits where the NIC has taken none of the last 4096 writes; a NIC that has gone
    /// takes no more, and the write is lost as on a card that was pulled.
    #[inline(always)]
    pub(crate) fn write(&self, address: u32, value: u32) {
        let next = self.next.get();
        if next.wrapping_sub(self.known.get()) == CREDIT && !self.wait_for_credit(next) {
            return;
        }
        let slot = (next % CREDIT) as usize;
        if self.stamped {
            // SAFETY: the counter may be read; it has no effect.
            let now = unsafe { std::arch::x86_64::_rdtsc() };
            self.queue.stamps[slot].store(now, Ordering::Relaxed);
        }
        self.queue.slots[slot].store(packed(address, value, next), Ordering::Release);
        self.next.set(next.wrapping_add(1));
    }

    #[cold]
    fn wait_for_credit(&self, next: u32) -> bool {
        loop {
            let taken = self.queue.taken.0.load(Ordering::Acquire);
            self.known.set(taken);
            if next.wrapping_sub(taken) < CREDIT {
                return true;
            }
            if self.queue.closed.0.load(Ordering::Relaxed) != 0 {
                return false;
            }
            spin_loop();
        }
    }
}

/// The NIC's end.
#[derive(Debug)]
pub(crate) struct DoorbellReceiver {
    queue: DoorbellMapping,
    stamped: bool,
    next: u32,
    /// What the program was told of.
    told: u32,
}

impl DoorbellReceiver {
    /// That of an empty queue.
    pub(super) fn new(queue: DoorbellMapping, stamped: bool) -> Self {
        Self { queue, stamped, next: 0, told: 0 }
    }

    /// The next write that has arrived: address and value. Those made after `before`, ticks, have not.
    #[inline(always)]
    pub(crate) fn take(&mut self, before: u64) -> Option<(u32, u32)> {
        let slot = (self.next % CREDIT) as usize;
        let write = self.queue.slots[slot].load(Ordering::Acquire);
        if write & 1 != lap(self.next) {
            return None;
        }
        if self.stamped && self.queue.stamps[slot].load(Ordering::Relaxed) > before {
            return None;
        }
        self.next = self.next.wrapping_add(1);
        if self.next.wrapping_sub(self.told) >= CREDIT / 4 {
            self.told = self.next;
            self.queue.taken.0.store(self.next, Ordering::Release);
        }
        Some(((write >> 33) as u32, (write >> 1) as u32))
    }
}

impl Drop for DoorbellReceiver {
    fn drop(&mut self) {
        self.queue.close();
    }
}
