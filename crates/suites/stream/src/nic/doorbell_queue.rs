//! The memory layout of a doorbell queue, which two processes may share.

use super::sync::{AtomicU32, AtomicU64, CREDIT, Ordering};

/// The queue of one core, as it lies in memory; where all is zero, it is empty.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct DoorbellQueue {
    pub(crate) slots: [AtomicU64; CREDIT as usize],
    /// When each write was made, where doorbells are modelled to take time.
    pub(crate) stamps: [AtomicU64; CREDIT as usize],
    pub(crate) taken: CachePadded<AtomicU32>,
    /// Not 0 once the NIC has gone.
    pub(crate) closed: CachePadded<AtomicU32>,
}

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
    /// The NIC has gone: nobody waits for it.
    pub(crate) fn close(&self) {
        self.closed.0.store(1, Ordering::Relaxed);
    }
}
