//! The heap's bounds, against which every allocated pointer is checked.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

static START: AtomicU64 = AtomicU64::new(0);
static END: AtomicU64 = AtomicU64::new(0);

/// Sets the heap's bounds.
pub fn set(start: u64, end: u64) {
    START.store(start, Relaxed);
    END.store(end, Relaxed);
}

/// Converts a size to the allocator's type. A size beyond that type becomes the maximum, which no heap can satisfy.
#[inline]
pub fn bytes(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

/// Whether a range of addresses is in the heap.
#[inline]
pub fn contains(address: u64, length: u64) -> bool {
    let end = END.load(Relaxed);
    address >= START.load(Relaxed) && address <= end && length <= end - address
}

/// The numbers of failed allocations.
#[derive(Default)]
pub struct Tally {
    /// Allocations that returned NULL.
    pub nothing: u32,
    /// Pointers outside the heap.
    pub outside: u32,
}

impl Tally {
    /// Allocates, and counts failures. Returns NULL for a pointer outside the heap.
    #[inline]
    pub fn malloc(&mut self, size: u64) -> *mut u8 {
        // SAFETY: malloc has no precondition.
        let pointer = unsafe { crate::allocator::malloc(bytes(size)) };
        if pointer.is_null() {
            self.nothing += 1;
        } else if !contains(pointer as u64, size) {
            self.outside += 1;
            return core::ptr::null_mut();
        }
        pointer
    }

    /// Returns both numbers in one word, as the interface defines.
    pub fn word(&self) -> u64 {
        u64::from(self.outside) << 32 | u64::from(self.nothing)
    }
}
