//! Posted writes: how a program's writes to registers reach the NIC, in order, as over PCIe.
//!
//! A card has its registers changed under it; a thread would have to look at all of thousands for those that
//! changed. So writes travel as PCIe carries them: a queue of address and value, with credit for as many as
//! it holds. Only this queue would go where a card stands.
//!
//! How the memory is held is not its matter, so that it may be shared with another process: whatever lies
//! there, the NIC reads each word once and makes a write of it.

use std::cell::Cell;

use super::held::Held;
use super::sync::{AtomicU32, AtomicU64, CREDIT, Ordering, spin_loop};

/// The queue of one core, as it lies in memory; where all is zero, it is empty.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Posted {
    slots: [AtomicU64; CREDIT as usize],
    /// When each write was made, where doorbells are modelled to take time.
    stamps: [AtomicU64; CREDIT as usize],
    taken: Line<AtomicU32>,
    /// Not 0 once the NIC has gone.
    closed: Line<AtomicU32>,
}

#[derive(Debug, Default)]
#[repr(C, align(128))]
struct Line<T>(T);

impl Default for Posted {
    fn default() -> Self {
        let zeros = || std::array::from_fn(|_| AtomicU64::new(0));
        Self { slots: zeros(), stamps: zeros(), taken: Line::default(), closed: Line::default() }
    }
}

impl Posted {
    /// The NIC has gone: nobody waits for it.
    pub(super) fn close(&self) {
        self.closed.0.store(1, Ordering::Relaxed);
    }
}

/// The two ends of an empty queue.
pub(super) fn ends(posted: Held, stamped: bool) -> (Doorbells, Arrivals) {
    (Doorbells::new(posted.clone(), stamped), Arrivals::new(posted, stamped))
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
pub(crate) struct Doorbells {
    posted: Held,
    stamped: bool,
    next: Cell<u32>,
    /// Up to where the NIC was known to have taken them.
    known: Cell<u32>,
}

impl Doorbells {
    /// That of an empty queue.
    pub(super) fn new(posted: Held, stamped: bool) -> Self {
        Self { posted, stamped, next: Cell::new(0), known: Cell::new(0) }
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
            self.posted.stamps[slot].store(now, Ordering::Relaxed);
        }
        self.posted.slots[slot].store(packed(address, value, next), Ordering::Release);
        self.next.set(next.wrapping_add(1));
    }

    #[cold]
    fn wait_for_credit(&self, next: u32) -> bool {
        loop {
            let taken = self.posted.taken.0.load(Ordering::Acquire);
            self.known.set(taken);
            if next.wrapping_sub(taken) < CREDIT {
                return true;
            }
            if self.posted.closed.0.load(Ordering::Relaxed) != 0 {
                return false;
            }
            spin_loop();
        }
    }
}

/// The NIC's end.
#[derive(Debug)]
pub(crate) struct Arrivals {
    posted: Held,
    stamped: bool,
    next: u32,
    /// What the program was told of.
    told: u32,
}

impl Arrivals {
    /// That of an empty queue.
    pub(super) fn new(posted: Held, stamped: bool) -> Self {
        Self { posted, stamped, next: 0, told: 0 }
    }

    /// The next write that has arrived: address and value. Those made after `before`, ticks, have not.
    #[inline(always)]
    pub(crate) fn take(&mut self, before: u64) -> Option<(u32, u32)> {
        let slot = (self.next % CREDIT) as usize;
        let write = self.posted.slots[slot].load(Ordering::Acquire);
        if write & 1 != lap(self.next) {
            return None;
        }
        if self.stamped && self.posted.stamps[slot].load(Ordering::Relaxed) > before {
            return None;
        }
        self.next = self.next.wrapping_add(1);
        if self.next.wrapping_sub(self.told) >= CREDIT / 4 {
            self.told = self.next;
            self.posted.taken.0.store(self.next, Ordering::Release);
        }
        Some(((write >> 33) as u32, (write >> 1) as u32))
    }
}

impl Drop for Arrivals {
    fn drop(&mut self) {
        self.posted.close();
    }
}
