//! The inside with glibc's allocator, whose heap is the process's own.

use inside::allocator::Allocator;
use libc::c_void;

/// glibc's.
struct Glibc;

impl Glibc {
    /// The one there is.
    const fn new() -> Self {
        Self
    }
}

// SAFETY: glibc's blocks are as C promises, aligned to 16 bytes and more where asked.
unsafe impl Allocator for Glibc {
    unsafe fn init(&self, _: *mut u8, _: *mut u8) {}

    #[inline]
    fn malloc(&self, size: usize) -> *mut u8 {
        // SAFETY: it asks nothing of its caller.
        unsafe { libc::malloc(size).cast() }
    }

    #[inline]
    unsafe fn free(&self, pointer: *mut u8) {
        // SAFETY: passed on.
        unsafe { libc::free(pointer.cast()) };
    }

    fn aligned_alloc(&self, alignment: usize, size: usize) -> *mut u8 {
        // SAFETY: the trait's alignments are powers of two.
        unsafe { libc::memalign(alignment, size).cast() }
    }

    unsafe fn usable_size(&self, pointer: *mut u8) -> usize {
        // SAFETY: passed on.
        unsafe { libc::malloc_usable_size(pointer.cast::<c_void>()) }
    }

    fn calloc(&self, count: usize, size: usize) -> *mut u8 {
        // SAFETY: it asks nothing of its caller.
        unsafe { libc::calloc(count, size).cast() }
    }

    unsafe fn realloc(&self, pointer: *mut u8, size: usize) -> *mut u8 {
        // glibc would free a block of no bytes.
        // SAFETY: passed on.
        unsafe { libc::realloc(pointer.cast(), size.max(1)).cast() }
    }
}

inside::link!(Glibc);
