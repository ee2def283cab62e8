//! Posted writes: how a program's writes to registers reach the NIC, in order, as over PCIe.
//!
//! A card has its registers changed under it; a thread would have to look at all of thousands for those that
//! changed. So writes travel as PCIe carries them: a queue of address and value, with credit for as many as
//! it holds. Only this queue would go where a card stands.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Writes under way at most: the credit.
pub(crate) const CREDIT: u32 = 4096;

/// The queue of one core.
#[derive(Debug)]
pub(crate) struct Posted {
    slots: Box<[AtomicU64]>,
    /// When each write was made, where doorbells are modelled to take time.
    stamps: Option<Box<[AtomicU64]>>,
    taken: Line<AtomicU32>,
    closed: Line<AtomicBool>,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Line<T>(T);

impl Posted {
    /// An empty queue; its two ends.
    pub(crate) fn queue(stamped: bool) -> (Doorbells, Arrivals) {
        let zeros = || (0..CREDIT).map(|_| AtomicU64::new(0)).collect::<Box<[_]>>();
        let posted = Arc::new(Self {
            slots: zeros(),
            stamps: stamped.then(zeros),
            taken: Line::default(),
            closed: Line::default(),
        });
        let arrivals = Arrivals { posted: Arc::clone(&posted), next: 0, told: 0 };
        (Doorbells { posted, next: Cell::new(0), known: Cell::new(0) }, arrivals)
    }
}

/// A write in a slot: its address, its value, and in the lowest bit the parity of the queue's lap, by which
/// the other end sees that it is new.
fn packed(address: u32, value: u32, next: u32) -> u64 {
    u64::from(address) << 33 | u64::from(value) << 1 | lap(next)
}

/// 1 in the first lap, so that an empty queue holds nothing new.
fn lap(next: u32) -> u64 {
    u64::from((next / CREDIT).is_multiple_of(2))
}

/// The program's end.
#[derive(Debug)]
pub(crate) struct Doorbells {
    posted: Arc<Posted>,
    next: Cell<u32>,
    /// Up to where the NIC was known to have taken them.
    known: Cell<u32>,
}

impl Doorbells {
    /// Writes a register. Waits where the NIC has taken none of the last 4096 writes; a NIC that has gone
    /// takes no more, and the write is lost as on a card that was pulled.
    #[inline(always)]
    pub(crate) fn write(&self, address: u32, value: u32) {
        let next = self.next.get();
        if next.wrapping_sub(self.known.get()) == CREDIT && !self.wait_for_credit(next) {
            return;
        }
        let slot = (next % CREDIT) as usize;
        if let Some(stamps) = &self.posted.stamps {
            // SAFETY: the counter may be read; it has no effect.
            let now = unsafe { std::arch::x86_64::_rdtsc() };
            stamps[slot].store(now, Ordering::Relaxed);
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
            if self.posted.closed.0.load(Ordering::Relaxed) {
                return false;
            }
            std::hint::spin_loop();
        }
    }
}

/// The NIC's end.
#[derive(Debug)]
pub(crate) struct Arrivals {
    posted: Arc<Posted>,
    next: u32,
    /// What the program was told of.
    told: u32,
}

impl Arrivals {
    /// The next write that has arrived: address and value. Those made after `before`, ticks, have not.
    #[inline(always)]
    pub(crate) fn take(&mut self, before: u64) -> Option<(u32, u32)> {
        let slot = (self.next % CREDIT) as usize;
        let write = self.posted.slots[slot].load(Ordering::Acquire);
        if write & 1 != lap(self.next) {
            return None;
        }
        if let Some(stamps) = &self.posted.stamps
            && stamps[slot].load(Ordering::Relaxed) > before
        {
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
        self.posted.closed.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_arrive_once_and_in_order() {
        let (doorbells, mut arrivals) = Posted::queue(false);
        assert_eq!(arrivals.take(u64::MAX), None);
        let writer = std::thread::spawn(move || {
            for number in 0..1_000_000u32 {
                doorbells.write(number >> 8, number);
            }
        });
        let mut expected = 0;
        while expected < 1_000_000 {
            if let Some(write) = arrivals.take(u64::MAX) {
                assert_eq!(write, (expected >> 8, expected));
                expected += 1;
            }
        }
        writer.join().unwrap();
        assert_eq!(arrivals.take(u64::MAX), None);
    }

    #[test]
    fn a_delayed_write_has_not_arrived() {
        let (doorbells, mut arrivals) = Posted::queue(true);
        doorbells.write(8, 9);
        assert_eq!(arrivals.take(0), None);
        assert_eq!(arrivals.take(u64::MAX), Some((8, 9)));
    }

    #[test]
    fn a_nic_that_has_gone_takes_no_credit() {
        let (doorbells, arrivals) = Posted::queue(false);
        drop(arrivals);
        for number in 0..10_000 {
            doorbells.write(0, number);
        }
    }
}
