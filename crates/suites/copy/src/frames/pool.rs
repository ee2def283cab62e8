//! The shared pool: a ring of slots for frames, and what the two processes tell each other.
//!
//! One side writes each cell and the other reads it, and each cell has two cache lines of its own, for
//! processors fetch lines by pairs. Both processes see the pool at the same address, for one is forked
//! from the other.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use machine::SysError;
use machine::mapping::{Mapping, PAGE};
use machine::memfd::Memfd;
use machine::tsc;

/// Times that a sample can record.
pub(super) const RECORDS: usize = 1 << 16;
/// What a cell holds before its number is known.
pub(super) const UNKNOWN: u64 = u64::MAX;
/// Tries between two looks at the clock.
const TRIES: usize = 64;

/// A number on two cache lines of its own.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Cell(AtomicU64);

impl Cell {
    /// The number, and all that was written before it was set.
    #[inline(always)]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Sets the number, after all that was written before.
    #[inline(always)]
    pub fn set(&self, number: u64) {
        self.0.store(number, Ordering::Release);
    }
}

/// What the two processes tell each other.
#[derive(Debug)]
#[repr(C)]
pub struct Control {
    /// Frames that the writer has published.
    pub head: Cell,
    /// Frames that the reader has done with.
    pub tail: Cell,
    /// Frames that there will be in all, once the writer knows.
    pub last: Cell,
    /// Whose turn it is, where they take turns: even the writer's, odd the reader's.
    pub turn: Cell,
    /// Frames a turn; 0 ends it.
    pub batch: Cell,
    /// How long the reader's turn took, ticks.
    pub taken: Cell,
    /// 1 once the reader runs on its CPU with the pool in its page tables.
    pub ready: Cell,
    /// What the reader found.
    pub found: Found,
}

/// What the reader found, told once it is done.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Found {
    /// Frames that came.
    pub received: AtomicU64,
    /// Frames that never came.
    pub lost: AtomicU64,
    /// Frames that were not whole.
    pub torn: AtomicU64,
    /// Frames that came again, or late.
    pub repeated: AtomicU64,
    /// Times recorded.
    pub records: AtomicU64,
    /// 1 where a stamp lay in the future, so that the two CPUs' counters differ.
    pub backwards: AtomicU32,
}

/// A control block, records and slots in a memfd, mapped shared.
#[derive(Debug)]
pub struct Pool {
    mapping: Mapping,
}

const CONTROL: usize = PAGE;
const SLOTS_AT: usize = CONTROL + RECORDS * size_of::<u64>();
const _: () = assert!(size_of::<Control>() <= CONTROL);

impl Pool {
    /// A pool with room for so many bytes of slots, all present.
    ///
    /// # Errors
    /// Where there is not enough memory.
    pub fn new(bytes: usize) -> Result<Self, SysError> {
        let length = SLOTS_AT + bytes;
        let memfd = Memfd::create("tollgate-frames", length).map_err(|source| SysError {
            attempt: format!("make a pool of {length} B"),
            source,
            remedy: "free memory or ask for less".into(),
        })?;
        let mapping = Mapping::shared(&memfd, length)?;
        mapping.prefault()?;
        Ok(Self { mapping })
    }

    /// Bytes of slots that it has room for.
    pub fn room(&self) -> usize {
        self.mapping.len() - SLOTS_AT
    }

    /// Makes the pool as new: nothing sent, nobody ready.
    pub fn clear(&mut self) {
        // SAFETY: the block lies in the mapping, zero is a valid Control, and no other process has the
        // pool now: a reader is gone before its transfer returns.
        unsafe { self.mapping.as_mut_ptr().write_bytes(0, CONTROL) };
        self.control().last.set(UNKNOWN);
    }

    /// What the two processes tell each other.
    pub fn control(&self) -> &Control {
        // SAFETY: the page is in the mapping, aligned, and holds only atomics, for which any bits do.
        unsafe { &*self.mapping.as_ptr().cast::<Control>() }
    }

    /// The times that the reader records.
    pub fn records(&self) -> &[AtomicU64] {
        let start = self.mapping.as_ptr().wrapping_add(CONTROL).cast::<AtomicU64>();
        // SAFETY: the records lie in the mapping, aligned, and are atomics.
        unsafe { std::slice::from_raw_parts(start, RECORDS) }
    }

    /// The first slot.
    pub fn slots(&self) -> *mut u8 {
        self.mapping.as_mut_ptr().wrapping_add(SLOTS_AT)
    }

    /// Brings the slots into this process's page tables; what a fresh child must do itself.
    pub fn touch(&self, bytes: usize) {
        for at in (0..SLOTS_AT + bytes).step_by(PAGE) {
            // SAFETY: `at` lies in the mapping, which is readable; nothing is made of the value.
            unsafe { self.mapping.as_ptr().wrapping_add(at).read_volatile() };
        }
    }
}

/// Spins until the condition holds; false where the deadline (a time stamp) passes first.
#[inline(always)]
pub(super) fn spin(deadline: u64, mut condition: impl FnMut() -> bool) -> bool {
    loop {
        for _ in 0..TRIES {
            if condition() {
                return true;
            }
        }
        if tsc::start() > deadline {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cleared_pool_knows_no_end() {
        let mut pool = Pool::new(4096).unwrap();
        pool.control().head.set(5);
        pool.clear();
        assert_eq!((pool.control().head.get(), pool.control().last.get()), (0, UNKNOWN));
        assert_eq!((pool.room(), pool.records().len()), (4096, RECORDS));
        assert_eq!(pool.slots() as usize % PAGE, 0);
    }

    #[test]
    fn a_spin_ends_at_its_deadline() {
        assert!(spin(0, || true));
        assert!(!spin(tsc::start() + 1_000_000, || false));
    }
}
