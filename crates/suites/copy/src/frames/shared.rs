//! Memory shared by the two processes: a ring of slots for frames, records, and control cells.
//!
//! One side writes each cell and the other reads it. Each cell has two cache lines, because CPUs
//! fetch lines in pairs. Both processes see the memory at the same address, because one is forked
//! from the other.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use machine::SysError;
use machine::mapping::{Mapping, PAGE};
use machine::memfd::Memfd;
use machine::tsc;

/// Maximum times recorded per sample.
pub(super) const RECORDS: usize = 1 << 16;
/// Value of a cell before its number is known.
pub(super) const UNKNOWN: u64 = u64::MAX;
/// Checks of a condition between two readings of the clock.
const CHECKS_PER_READING: usize = 64;

/// An atomic number with two cache lines to itself.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Cell(AtomicU64);

impl Cell {
    /// Loads the number, with acquire ordering.
    #[inline(always)]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Stores the number, with release ordering.
    #[inline(always)]
    pub fn set(&self, number: u64) {
        self.0.store(number, Ordering::Release);
    }
}

/// The control cells of a transfer.
#[derive(Debug)]
#[repr(C)]
pub struct Control {
    /// Frames that the writer has published.
    pub head: Cell,
    /// Frames that the reader has finished.
    pub tail: Cell,
    /// Total number of frames, once the writer knows it.
    pub last: Cell,
    /// Times that a side of the ceiling passed a batch on: if even, the writer is next; if odd, the
    /// reader.
    pub passed: Cell,
    /// Frames per batch; 0 ends the ceiling.
    pub batch: Cell,
    /// Duration of the reader's batch, in ticks.
    pub read_ticks: Cell,
    /// 1 once the reader runs on its CPU with the slots in its page tables.
    pub ready: Cell,
    /// Results of the reader.
    pub found: Found,
}

/// Results of the reader, published at its end.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Found {
    /// Frames that arrived.
    pub received: AtomicU64,
    /// Frames that did not arrive.
    pub lost: AtomicU64,
    /// Frames that arrived incomplete.
    pub torn: AtomicU64,
    /// Frames that arrived again, or late.
    pub repeated: AtomicU64,
    /// Number of recorded times.
    pub records: AtomicU64,
    /// 1 if a timestamp was in the future, so that the two CPUs' counters differ.
    pub backwards: AtomicU32,
}

/// Control cells, records and slots in a memfd, mapped shared.
#[derive(Debug)]
pub struct SharedFrames {
    mapping: Mapping,
}

const CONTROL: usize = PAGE;
const SLOTS_AT: usize = CONTROL + RECORDS * size_of::<u64>();
const _: () = assert!(size_of::<Control>() <= CONTROL);

impl SharedFrames {
    /// Creates the memory for `bytes` bytes of slots, with all pages present.
    ///
    /// # Errors
    /// Returns an error if there is not enough memory.
    pub fn new(bytes: usize) -> Result<Self, SysError> {
        let length = SLOTS_AT + bytes;
        let memfd = Memfd::create("tollgate-frames", length).map_err(|source| SysError {
            attempt: format!("create a ring of {length} B"),
            source,
            remedy: "free memory, or use fewer or shorter frames".into(),
        })?;
        let mapping = Mapping::shared(&memfd, length)?;
        mapping.prefault()?;
        Ok(Self { mapping })
    }

    /// Returns the capacity for slots, in bytes.
    pub fn capacity(&self) -> usize {
        self.mapping.len() - SLOTS_AT
    }

    /// Resets the control cells before a transfer.
    pub fn clear(&mut self) {
        // SAFETY: the page is in the mapping, zero is a valid Control, and no other process uses the
        // memory now: a reader has exited before its transfer returns.
        unsafe { self.mapping.as_mut_ptr().write_bytes(0, CONTROL) };
        self.control().last.set(UNKNOWN);
    }

    /// Returns the control cells.
    pub fn control(&self) -> &Control {
        // SAFETY: the page is in the mapping and aligned; Control consists of atomics, valid for any bits.
        unsafe { &*self.mapping.as_ptr().cast::<Control>() }
    }

    /// Returns the times that the reader records.
    pub fn records(&self) -> &[AtomicU64] {
        let start = self.mapping.as_ptr().wrapping_add(CONTROL).cast::<AtomicU64>();
        // SAFETY: the records are in the mapping, aligned, and atomics.
        unsafe { std::slice::from_raw_parts(start, RECORDS) }
    }

    /// Returns the address of the first slot.
    pub fn slots(&self) -> *mut u8 {
        self.mapping.as_mut_ptr().wrapping_add(SLOTS_AT)
    }

    /// Maps the slots into this process's page tables, which a forked child must do for itself.
    pub fn touch(&self, bytes: usize) {
        for at in (0..SLOTS_AT + bytes).step_by(PAGE) {
            // SAFETY: `at` is in the mapping, which is readable; the value is not used.
            unsafe { self.mapping.as_ptr().wrapping_add(at).read_volatile() };
        }
    }
}

/// Spins until the condition is true; false if the deadline (a timestamp) passes first.
#[inline(always)]
pub(super) fn spin(deadline: u64, mut condition: impl FnMut() -> bool) -> bool {
    loop {
        for _ in 0..CHECKS_PER_READING {
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
    fn clearing_resets_the_control_cells() {
        let mut shared = SharedFrames::new(4096).unwrap();
        shared.control().head.set(5);
        shared.clear();
        assert_eq!((shared.control().head.get(), shared.control().last.get()), (0, UNKNOWN));
        assert_eq!((shared.capacity(), shared.records().len()), (4096, RECORDS));
        assert_eq!(shared.slots() as usize % PAGE, 0);
    }

    #[test]
    fn a_spin_ends_at_its_deadline() {
        assert!(spin(0, || true));
        assert!(!spin(tsc::start() + 1_000_000, || false));
    }
}
