//! dlmalloc, which asks its system for memory: the system here is the heap, given whole at once.

use crate::allocator::{ALIGNMENT, Allocator};
use crate::lock::{Lock, Spins, Waits, RawMutex};
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// dlmalloc under a lock, as its own global instance has one.
pub struct Locked<W>(Lock<W, dlmalloc::Dlmalloc<Heap>>);

/// dlmalloc under a lock that spins.
pub type Dlmalloc = Locked<Spins>;

/// dlmalloc under a lock that waits.
pub type DlmallocWait = Locked<Waits>;

/// A page, and the step in which dlmalloc asks.
const PAGE: usize = 4096;

impl<W: RawMutex> Locked<W> {
    /// With no heap yet.
    #[allow(clippy::new_without_default, reason = "it is made once, in a static")]
    pub const fn new() -> Self {
        let heap = Heap { start: AtomicUsize::new(0), length: AtomicUsize::new(0) };
        let mut inner = dlmalloc::Dlmalloc::new_with_allocator(heap);
        inner.set_granularity(PAGE);
        // Nothing can be given back, so there is nothing to look for.
        inner.set_max_release_check_rate(0);
        Self(Lock::new(inner))
    }
}

/// The heap, until it is given; then nothing.
struct Heap {
    start: AtomicUsize,
    length: AtomicUsize,
}

// SAFETY: it gives the heap of `init`, once.
unsafe impl dlmalloc::Allocator for Heap {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let length = self.length.load(Relaxed);
        if size > length {
            return (ptr::null_mut(), 0, 0);
        }
        self.length.store(0, Relaxed);
        (self.start.load(Relaxed) as *mut u8, length, 0)
    }

    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        ptr::null_mut()
    }

    fn free_part(&self, _: *mut u8, _: usize, _: usize) -> bool {
        false
    }

    fn free(&self, _: *mut u8, _: usize) -> bool {
        false
    }

    fn can_release_part(&self, _: u32) -> bool {
        false
    }

    fn allocates_zeros(&self) -> bool {
        // Memory that was in use comes again.
        false
    }

    fn page_size(&self) -> usize {
        PAGE
    }
}

// SAFETY: the memory is dlmalloc's, and a lock is around.
unsafe impl<W: RawMutex> Allocator for Locked<W> {
    unsafe fn init(&self, start: *mut u8, end: *mut u8) {
        self.0.with(|inner| {
            inner.allocator().start.store(start as usize, Relaxed);
            inner.allocator().length.store(end as usize - start as usize, Relaxed);
        });
    }

    fn malloc(&self, size: usize) -> *mut u8 {
        // SAFETY: it asks nothing of its caller.
        self.0.with(|inner| unsafe { inner.c_malloc(size) })
    }

    unsafe fn free(&self, pointer: *mut u8) {
        // SAFETY: passed on.
        self.0.with(|inner| unsafe { inner.c_free(pointer) });
    }

    fn aligned_alloc(&self, alignment: usize, size: usize) -> *mut u8 {
        // SAFETY: the trait's alignments are powers of two.
        self.0.with(|inner| unsafe { inner.c_memalign(alignment.max(ALIGNMENT), size) })
    }

    unsafe fn realloc(&self, pointer: *mut u8, size: usize) -> *mut u8 {
        // SAFETY: passed on.
        self.0.with(|inner| unsafe { inner.c_realloc(pointer, size) })
    }

    unsafe fn usable_size(&self, pointer: *mut u8) -> usize {
        if pointer.is_null() {
            return 0;
        }
        // SAFETY: a chunk's head is the word before its block: the chunk's size and three flags. A block
        // ends where the next chunk's head begins.
        let head = unsafe { pointer.cast::<usize>().sub(1).read() };
        (head & !7) - size_of::<usize>()
    }
}
