//! Code shared by the workloads: allocation that checks each pointer against the heap's bounds, and random numbers.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

static START: AtomicU64 = AtomicU64::new(0);
static END: AtomicU64 = AtomicU64::new(0);

/// Sets the heap's bounds.
pub fn set_heap(start: u64, end: u64) {
    START.store(start, Relaxed);
    END.store(end, Relaxed);
}

/// Converts a size to the allocator's type. A size beyond that type becomes the maximum, which no heap can satisfy.
#[inline]
pub fn bytes(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

/// Returns whether a range of addresses is in the heap.
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

/// A random number generator: splitmix64, one per thread.
pub struct Random(u64);

impl Random {
    /// Creates a generator with a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    #[inline]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns the next number below a limit, like `rand() % limit` in the sample; 0 if the limit is 0.
    #[inline]
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next().checked_rem(limit).unwrap_or(0)
    }
}
