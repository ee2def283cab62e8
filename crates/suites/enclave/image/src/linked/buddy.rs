//! A buddy system, which takes a span. A block is a power of two of bytes, with its layout inside.

use super::sized::{Layouts, WithLayout};
use crate::allocator::Mallinfo;
use buddy_system_allocator::Heap;
use core::alloc::Layout;
use core::ptr::{self, NonNull};

/// A buddy system under a lock.
pub type Buddy = WithLayout<Span>;

/// The buddy system itself, with blocks below 2^40 bytes.
pub struct Span(Heap<40>);

// SAFETY: its lists lie in the heap, which whoever holds the lock may reach.
unsafe impl Send for Span {}

impl Layouts for Span {
    const EMPTY: Self = Self(Heap::new());

    unsafe fn claim(&mut self, start: *mut u8, end: *mut u8) {
        // SAFETY: passed on.
        unsafe { self.0.add_to_heap(start as usize, end as usize) };
    }

    fn allocate(&mut self, layout: Layout) -> *mut u8 {
        self.0.alloc(layout).map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    unsafe fn deallocate(&mut self, pointer: *mut u8, layout: Layout) {
        if let Some(pointer) = NonNull::new(pointer) {
            // SAFETY: passed on.
            unsafe { self.0.dealloc(pointer, layout) };
        }
    }

    fn mallinfo(&self) -> Option<Mallinfo> {
        let (current, max_heap_size) = (self.0.stats_alloc_actual(), self.0.stats_total_bytes());
        Some(Mallinfo { current, peak: 0, max_heap_size })
    }
}
