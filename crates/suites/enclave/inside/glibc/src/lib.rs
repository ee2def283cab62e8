//! The inside with glibc's allocator, whose heap is the process's.

use inside::allocator::Allocator;
use libc::c_void;

/// glibc's allocator.
struct Glibc;

impl Glibc {
    /// Creates the only instance.
    const fn new() -> Self {
        Self
    }
}

// SAFETY: glibc returns blocks as C requires, aligned to 16 bytes or more if requested.
unsafe impl Allocator for Glibc {
    unsafe fn init(&self, _: *mut u8, _: *mut u8) {}

    #[inline]
    fn malloc(&self, size: usize) -> *mut u8 {
        // SAFETY: malloc has no precondition.
        unsafe { libc::malloc(size).cast() }
    }

    #[inline]
    unsafe fn free(&self, pointer: *mut u8) {
        // SAFETY: the caller guarantees that the pointer is valid.
        unsafe { libc::free(pointer.cast()) };
    }

    fn aligned_alloc(&self, alignment: usize, size: usize) -> *mut u8 {
        // SAFETY: the trait's alignments are powers of two.
        unsafe { libc::memalign(alignment, size).cast() }
    }

    unsafe fn usable_size(&self, pointer: *mut u8) -> usize {
        // SAFETY: the caller guarantees that the pointer is valid.
        unsafe { libc::malloc_usable_size(pointer.cast::<c_void>()) }
    }

    fn calloc(&self, count: usize, size: usize) -> *mut u8 {
        // SAFETY: calloc has no precondition.
        unsafe { libc::calloc(count, size).cast() }
    }

    unsafe fn realloc(&self, pointer: *mut u8, size: usize) -> *mut u8 {
        // glibc would free a block of size 0.
        // SAFETY: the caller guarantees that the pointer is valid.
        unsafe { libc::realloc(pointer.cast(), size.max(1)).cast() }
    }
}

inside::link!(Glibc);
