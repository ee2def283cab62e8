//! dlmalloc, which requests memory from its system. Here the system provides the whole heap at once.

use crate::allocator::{ALIGNMENT, Allocator};
use crate::lock::{Lock, RawMutex, Spins, Waits};
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// dlmalloc under a lock, as in its own global instance.
pub struct Locked<W>(Lock<W, dlmalloc::Dlmalloc<Heap>>);

/// dlmalloc under a spinning lock.
pub type Dlmalloc = Locked<Spins>;

/// dlmalloc under a sleeping lock.
pub type DlmallocWait = Locked<Waits>;

/// The length of a page, and dlmalloc's granularity.
const PAGE: usize = 4096;

impl<W: RawMutex> Locked<W> {
    /// Creates an allocator without a heap.
    #[allow(clippy::new_without_default, reason = "it is created once, in a static")]
    pub const fn new() -> Self {
        let heap = Heap { start: AtomicUsize::new(0), length: AtomicUsize::new(0) };
        let mut inner = dlmalloc::Dlmalloc::new_with_allocator(heap);
        inner.set_granularity(PAGE);
        // No memory can be released, so there is nothing to check.
        inner.set_max_release_check_rate(0);
        Self(Lock::new(inner))
    }
}

/// The heap, which is provided once.
struct Heap {
    start: AtomicUsize,
    length: AtomicUsize,
}

// SAFETY: it returns the heap of `init`, once.
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
        // Freed memory is allocated again.
        false
    }

    fn page_size(&self) -> usize {
        PAGE
    }
}

// SAFETY: the memory is dlmalloc's, and a lock protects it.
unsafe impl<W: RawMutex> Allocator for Locked<W> {
    unsafe fn init(&self, start: *mut u8, end: *mut u8) {
        self.0.with(|inner| {
            inner.allocator().start.store(start as usize, Relaxed);
            inner.allocator().length.store(end as usize - start as usize, Relaxed);
        });
    }

    fn malloc(&self, size: usize) -> *mut u8 {
        // SAFETY: malloc has no precondition.
        self.0.with(|inner| unsafe { inner.c_malloc(size) })
    }

    unsafe fn free(&self, pointer: *mut u8) {
        // SAFETY: the caller guarantees that the pointer is valid.
        self.0.with(|inner| unsafe { inner.c_free(pointer) });
    }

    fn aligned_alloc(&self, alignment: usize, size: usize) -> *mut u8 {
        // SAFETY: the trait's alignments are powers of two.
        self.0.with(|inner| unsafe { inner.c_memalign(alignment.max(ALIGNMENT), size) })
    }

    unsafe fn realloc(&self, pointer: *mut u8, size: usize) -> *mut u8 {
        // SAFETY: the caller guarantees that the pointer is valid.
        self.0.with(|inner| unsafe { inner.c_realloc(pointer, size) })
    }

    unsafe fn usable_size(&self, pointer: *mut u8) -> usize {
        if pointer.is_null() {
            return 0;
        }
        // SAFETY: the header of a chunk is the word before its block: the chunk's size and three flags. A block
        // extends to the header of the next chunk.
        let head = unsafe { pointer.cast::<usize>().sub(1).read() };
        (head & !7) - size_of::<usize>()
    }
}
