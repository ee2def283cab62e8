//! talc, which takes a span.

use super::sized::{Layouts, WithLayout};
use core::alloc::Layout;
use core::ptr;
use talc::DefaultBinning;
use talc::source::Manual;

/// talc under a lock.
pub type Talc = WithLayout<Span>;

/// talc itself.
pub struct Span(talc::base::Talc<Manual, DefaultBinning>);

impl Layouts for Span {
    const EMPTY: Self = Self(talc::base::Talc::new(Manual));

    unsafe fn claim(&mut self, start: *mut u8, end: *mut u8) {
        // SAFETY: passed on. A span too short for its tables is none, and gives no memory.
        let _ = unsafe { self.0.claim(start, end as usize - start as usize) };
    }

    fn allocate(&mut self, layout: Layout) -> *mut u8 {
        // SAFETY: no layout here is of no size.
        unsafe { self.0.allocate(layout) }.map_or(ptr::null_mut(), ptr::NonNull::as_ptr)
    }

    unsafe fn deallocate(&mut self, pointer: *mut u8, layout: Layout) {
        // SAFETY: passed on.
        unsafe { self.0.deallocate(pointer, layout) };
    }
}
