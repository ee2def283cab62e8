//! rlsf, two-level segregated fit, which takes a span.

use super::sized::{Layouts, WithLayout};
use core::alloc::Layout;
use core::ptr::{self, NonNull};

/// rlsf under a lock.
pub type Rlsf = WithLayout<Span>;

/// rlsf itself, with classes up to 8 GiB.
pub struct Span(rlsf::Tlsf<'static, u32, u32, 28, 32>);

impl Layouts for Span {
    const EMPTY: Self = Self(rlsf::Tlsf::new());

    unsafe fn claim(&mut self, start: *mut u8, end: *mut u8) {
        let span = ptr::slice_from_raw_parts_mut(start, end as usize - start as usize);
        if let Some(span) = NonNull::new(span) {
            // SAFETY: passed on.
            let _ = unsafe { self.0.insert_free_block_ptr(span) };
        }
    }

    fn allocate(&mut self, layout: Layout) -> *mut u8 {
        self.0.allocate(layout).map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    unsafe fn deallocate(&mut self, pointer: *mut u8, layout: Layout) {
        if let Some(pointer) = NonNull::new(pointer) {
            // SAFETY: passed on.
            unsafe { self.0.deallocate(pointer, layout.align()) };
        }
    }
}
