//! Doorbells: ordered delivery of register writes to the NIC, as over PCIe.
//!
//! A card sees writes to its registers; a thread would have to poll thousands of registers for changes. So writes
//! travel as PCIe carries them: in a queue of addresses and values, with credit for as many as it has slots. With a
//! card in place of the thread, only this queue would be omitted.
//!
//! The queue may be shared with another process. The NIC reads each word once, and any word is a valid write.

use std::cell::Cell;

use super::doorbell_mapping::DoorbellMapping;
use super::sync::{CREDIT, Ordering, spin_loop};

/// Modelled properties of doorbells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DoorbellDelays {
    /// Whether they carry their time, because they arrive later.
    pub(crate) stamped: bool,
    /// How long each stalls the sender, in ticks.
    pub(crate) stall: u64,
}

/// Returns the two ends of an empty queue.
pub(super) fn ends(
    queue: DoorbellMapping,
    delays: DoorbellDelays,
) -> (DoorbellSender, DoorbellReceiver) {
    (DoorbellSender::new(queue.clone(), delays), DoorbellReceiver::new(queue, delays.stamped))
}

/// Reads the time-stamp counter.
#[inline(always)]
fn ticks() -> u64 {
    // SAFETY: RDTSC has no side effect.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Packs a write: its address, its value, and in the lowest bit the parity of the queue's lap, by which the receiver
/// recognises a new write.
#[inline(always)]
fn packed(address: u32, value: u32, next: u32) -> u64 {
    u64::from(address) << 33 | u64::from(value) << 1 | lap(next)
}

/// Returns the parity of a lap: 1 in the first, so that a zeroed queue has no new writes.
#[inline(always)]
fn lap(next: u32) -> u64 {
    u64::from((next / CREDIT).is_multiple_of(2))
}

/// The host's end of a doorbell queue.
#[derive(Debug)]
pub(crate) struct DoorbellSender {
    queue: DoorbellMapping,
    delays: DoorbellDelays,
    next: Cell<u32>,
    /// Last known number of writes that the NIC has taken.
    known: Cell<u32>,
}

impl DoorbellSender {
    /// Creates the end of an empty queue.
    pub(super) fn new(queue: DoorbellMapping, delays: DoorbellDelays) -> Self {
        Self { queue, delays, next: Cell::new(0), known: Cell::new(0) }
    }

    /// Writes a register. Waits while the NIC has taken none of the last 4096 writes. If the NIC has stopped the write is
    /// lost, as with a removed card.
    #[inline(always)]
    pub(crate) fn write(&self, address: u32, value: u32) {
        let next = self.next.get();
        if next.wrapping_sub(self.known.get()) == CREDIT && !self.wait_for_credit(next) {
            return;
        }
        let slot = (next % CREDIT) as usize;
        if self.delays.stamped {
            let now = ticks();
            self.queue.stamps[slot].store(now, Ordering::Relaxed);
        }
        self.queue.slots[slot].store(packed(address, value, next), Ordering::Release);
        self.next.set(next.wrapping_add(1));
        if self.delays.stall != 0 {
            self.stall();
        }
    }

    /// Keeps the core busy as long as a write to a register of a card would.
    #[cold]
    fn stall(&self) {
        let end = ticks().saturating_add(self.delays.stall);
        while ticks() < end {
            spin_loop();
        }
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

/// The NIC's end of a doorbell queue.
#[derive(Debug)]
pub(crate) struct DoorbellReceiver {
    queue: DoorbellMapping,
    stamped: bool,
    next: u32,
    /// Number of taken writes last published to the sender.
    published: u32,
}

impl DoorbellReceiver {
    /// Creates the end of an empty queue.
    pub(super) fn new(queue: DoorbellMapping, stamped: bool) -> Self {
        Self { queue, stamped, next: 0, published: 0 }
    }

    /// Takes the next write as address and value. Writes made after `before`, in ticks, have not arrived yet.
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
        if self.next.wrapping_sub(self.published) >= CREDIT / 4 {
            self.published = self.next;
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
