//! The memory layout of a doorbell queue, which two processes may share.

use super::sync::{AtomicU32, AtomicU64, CREDIT, Ordering};

/// The doorbell queue of one core. Zeroed memory is an empty queue.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct DoorbellQueue {
    /// Packed writes: see [`doorbells`](super::doorbells).
    pub(crate) slots: [AtomicU64; CREDIT as usize],
    /// Time of each write in ticks, if doorbell delays are modelled.
    pub(crate) stamps: [AtomicU64; CREDIT as usize],
    /// Number of writes that the NIC has taken.
    pub(crate) taken: CachePadded<AtomicU32>,
    /// Not 0 once the NIC has stopped.
    pub(crate) closed: CachePadded<AtomicU32>,
}

/// A value on separate cache lines.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct CachePadded<T>(pub(super) T);

impl Default for DoorbellQueue {
    fn default() -> Self {
        let zeros = || std::array::from_fn(|_| AtomicU64::new(0));
        Self {
            slots: zeros(),
            stamps: zeros(),
            taken: CachePadded::default(),
            closed: CachePadded::default(),
        }
    }
}

impl DoorbellQueue {
    /// Marks the NIC as stopped, so that senders stop waiting.
    pub(crate) fn close(&self) {
        self.closed.0.store(1, Ordering::Relaxed);
    }
}
