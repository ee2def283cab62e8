//! Allocators that must be told a block's layout when it is freed: it stands before the block.

use crate::allocator::{ALIGNMENT, Allocator, Mallinfo};
use crate::lock::Spin;
use core::alloc::Layout;
use core::ptr;

/// Memory by layouts.
pub trait Layouts: Send {
    /// With no memory yet.
    const EMPTY: Self;

    /// Takes a span to allocate from.
    ///
    /// # Safety
    /// As [`Allocator::init`].
    unsafe fn claim(&mut self, start: *mut u8, end: *mut u8);

    /// Memory; NULL where there is no room.
    fn allocate(&mut self, layout: Layout) -> *mut u8;

    /// Takes memory back.
    ///
    /// # Safety
    /// The pointer came from `allocate` with this layout, and is in use.
    unsafe fn deallocate(&mut self, pointer: *mut u8, layout: Layout);

    /// As [`Allocator::mallinfo`].
    fn mallinfo(&self) -> Option<Mallinfo> {
        None
    }
}

/// An allocator that writes each block's layout before it, under one lock.
pub struct WithLayout<L>(Spin<L>);

impl<L: Layouts> WithLayout<L> {
    /// With no heap yet.
    #[allow(clippy::new_without_default, reason = "it is made once, in a static")]
    pub const fn new() -> Self {
        Self(Spin::new(L::EMPTY))
    }
}

/// What stands before a block: its size and its alignment, which is also how far before it memory begins.
type Before = [usize; 2];

/// The whole of a block and what stands before it.
fn whole(alignment: usize, size: usize) -> Option<Layout> {
    Layout::from_size_align(size.checked_add(alignment)?, alignment).ok()
}

// SAFETY: the memory is the inner allocator's, less what stands before it, and a lock is around.
unsafe impl<L: Layouts> Allocator for WithLayout<L> {
    unsafe fn init(&self, start: *mut u8, end: *mut u8) {
        // SAFETY: passed on.
        self.0.with(|layouts| unsafe { layouts.claim(start, end) });
    }

    fn malloc(&self, size: usize) -> *mut u8 {
        self.aligned_alloc(ALIGNMENT, size)
    }

    unsafe fn free(&self, pointer: *mut u8) {
        if pointer.is_null() {
            return;
        }
        // SAFETY: what `aligned_alloc` wrote.
        let [size, alignment] = unsafe { pointer.cast::<Before>().sub(1).read() };
        if let Some(layout) = whole(alignment, size) {
            // SAFETY: the layout that it was allocated with.
            self.0.with(|layouts| unsafe { layouts.deallocate(pointer.sub(alignment), layout) });
        }
    }

    fn aligned_alloc(&self, alignment: usize, size: usize) -> *mut u8 {
        let Some(layout) = whole(alignment, size) else { return ptr::null_mut() };
        let memory = self.0.with(|layouts| layouts.allocate(layout));
        if memory.is_null() {
            return memory;
        }
        // SAFETY: the memory is longer than the alignment, which is at least what stands before.
        unsafe {
            let pointer = memory.add(alignment);
            pointer.cast::<Before>().sub(1).write([size, alignment]);
            pointer
        }
    }

    fn mallinfo(&self) -> Option<Mallinfo> {
        self.0.with(|layouts| layouts.mallinfo())
    }

    unsafe fn usable_size(&self, pointer: *mut u8) -> usize {
        if pointer.is_null() {
            return 0;
        }
        // SAFETY: what `aligned_alloc` wrote.
        unsafe { pointer.cast::<Before>().sub(1).read()[0] }
    }
}
