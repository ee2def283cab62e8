//! Where the heap is: every pointer that an allocator gives is checked against it.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

static START: AtomicU64 = AtomicU64::new(0);
static END: AtomicU64 = AtomicU64::new(0);

/// Remembers the heap.
pub fn set(start: u64, end: u64) {
    START.store(start, Relaxed);
    END.store(end, Relaxed);
}

/// A size as the allocator takes it. One too long for a pointer becomes the longest, which no heap has.
#[inline]
pub fn bytes(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

/// Whether so many bytes at an address lie in the heap.
#[inline]
pub fn holds(address: u64, length: u64) -> bool {
    let end = END.load(Relaxed);
    address >= START.load(Relaxed) && address <= end && length <= end - address
}

/// What came of allocations.
#[derive(Default)]
pub struct Tally {
    /// How many came to nothing.
    pub nothing: u32,
    /// How many pointers lay outside the heap.
    pub outside: u32,
}

impl Tally {
    /// Allocates, and counts what is wrong with it. A pointer outside the heap is not used.
    #[inline]
    pub fn malloc(&mut self, size: u64) -> *mut u8 {
        // SAFETY: it asks nothing of its caller.
        let pointer = unsafe { crate::allocator::malloc(bytes(size)) };
        if pointer.is_null() {
            self.nothing += 1;
        } else if !holds(pointer as u64, size) {
            self.outside += 1;
            return core::ptr::null_mut();
        }
        pointer
    }

    /// Both counts in one word, as the interface has it.
    pub fn word(&self) -> u64 {
        u64::from(self.outside) << 32 | u64::from(self.nothing)
    }
}
