//! The allocators written in Rust, each confined to the heap that it is given. Allocators in C or C++ define the
//! interface themselves, e.g. in snmalloc/ and rpmalloc/.
//!
//! dlmalloc requests memory from its system, which here provides the whole heap at once. Buddy, rlsf and talc take a
//! span of memory and need a block's layout to free it; the layout is stored before the block.

use crate::allocator::{ALIGNMENT, Allocator, Mallinfo};
use crate::lock::{Lock, RawMutex, Spin, Spins, Waits};
use core::alloc::Layout;
use core::ptr::{self, NonNull};
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

/// An allocator that needs a block's layout to free it.
pub trait SpanAllocator: Send {
    /// The allocator before it has memory.
    const EMPTY: Self;

    /// Takes a span to allocate from.
    ///
    /// # Safety
    /// As [`Allocator::init`].
    unsafe fn claim(&mut self, start: *mut u8, end: *mut u8);

    /// Allocates memory; returns NULL if no space is left.
    fn allocate(&mut self, layout: Layout) -> *mut u8;

    /// Frees memory.
    ///
    /// # Safety
    /// `allocate` returned the pointer for this layout, and the memory is in use.
    unsafe fn deallocate(&mut self, pointer: *mut u8, layout: Layout);

    /// As [`Allocator::mallinfo`].
    fn mallinfo(&self) -> Option<Mallinfo> {
        None
    }
}

/// An allocator that stores each block's layout before the block, under one lock.
pub struct WithLayout<L>(Spin<L>);

impl<L: SpanAllocator> WithLayout<L> {
    /// Creates an allocator without a heap.
    #[allow(clippy::new_without_default, reason = "it is created once, in a static")]
    pub const fn new() -> Self {
        Self(Spin::new(L::EMPTY))
    }
}

/// The header before a block: its size and its alignment. The alignment is also the distance from the start of the
/// memory to the block.
type Header = [usize; 2];

/// The layout of a block with the space before it.
fn whole(alignment: usize, size: usize) -> Option<Layout> {
    Layout::from_size_align(size.checked_add(alignment)?, alignment).ok()
}

// SAFETY: the memory comes from the inner allocator, without the space before the block, and a lock protects it.
unsafe impl<L: SpanAllocator> Allocator for WithLayout<L> {
    unsafe fn init(&self, start: *mut u8, end: *mut u8) {
        // SAFETY: the caller's contract is the same.
        self.0.with(|span| unsafe { span.claim(start, end) });
    }

    fn malloc(&self, size: usize) -> *mut u8 {
        self.aligned_alloc(ALIGNMENT, size)
    }

    unsafe fn free(&self, pointer: *mut u8) {
        if pointer.is_null() {
            return;
        }
        // SAFETY: `aligned_alloc` wrote the header.
        let [size, alignment] = unsafe { pointer.cast::<Header>().sub(1).read() };
        if let Some(layout) = whole(alignment, size) {
            // SAFETY: the memory was allocated with this layout.
            self.0.with(|span| unsafe { span.deallocate(pointer.sub(alignment), layout) });
        }
    }

    fn aligned_alloc(&self, alignment: usize, size: usize) -> *mut u8 {
        let Some(layout) = whole(alignment, size) else { return ptr::null_mut() };
        let memory = self.0.with(|span| span.allocate(layout));
        if memory.is_null() {
            return memory;
        }
        // SAFETY: the memory is longer than the alignment, which is at least the length of a header.
        unsafe {
            let pointer = memory.add(alignment);
            pointer.cast::<Header>().sub(1).write([size, alignment]);
            pointer
        }
    }

    fn mallinfo(&self) -> Option<Mallinfo> {
        self.0.with(|span| span.mallinfo())
    }

    unsafe fn usable_size(&self, pointer: *mut u8) -> usize {
        if pointer.is_null() {
            return 0;
        }
        // SAFETY: `aligned_alloc` wrote the header.
        unsafe { pointer.cast::<Header>().sub(1).read()[0] }
    }
}

/// A buddy allocator. A block, with its header, takes a power of two of bytes.
pub type Buddy = WithLayout<BuddySpan>;

/// The buddy allocator without its lock, for blocks below 2^40 bytes.
pub struct BuddySpan(buddy_system_allocator::Heap<40>);

// SAFETY: its lists are in the heap, which only the holder of the lock accesses.
unsafe impl Send for BuddySpan {}

impl SpanAllocator for BuddySpan {
    const EMPTY: Self = Self(buddy_system_allocator::Heap::new());

    unsafe fn claim(&mut self, start: *mut u8, end: *mut u8) {
        // SAFETY: the caller's contract is the same.
        unsafe { self.0.add_to_heap(start as usize, end as usize) };
    }

    fn allocate(&mut self, layout: Layout) -> *mut u8 {
        self.0.alloc(layout).map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    unsafe fn deallocate(&mut self, pointer: *mut u8, layout: Layout) {
        if let Some(pointer) = NonNull::new(pointer) {
            // SAFETY: the caller's contract is the same.
            unsafe { self.0.dealloc(pointer, layout) };
        }
    }

    fn mallinfo(&self) -> Option<Mallinfo> {
        let (current, max_heap_size) = (self.0.stats_alloc_actual(), self.0.stats_total_bytes());
        Some(Mallinfo { current, peak: 0, max_heap_size })
    }
}

/// rlsf, a two-level segregated-fit allocator.
pub type Rlsf = WithLayout<RlsfSpan>;

/// rlsf without its lock, with size classes up to 8 GiB.
pub struct RlsfSpan(rlsf::Tlsf<'static, u32, u32, 28, 32>);

impl SpanAllocator for RlsfSpan {
    const EMPTY: Self = Self(rlsf::Tlsf::new());

    unsafe fn claim(&mut self, start: *mut u8, end: *mut u8) {
        let span = ptr::slice_from_raw_parts_mut(start, end as usize - start as usize);
        if let Some(span) = NonNull::new(span) {
            // SAFETY: the caller's contract is the same.
            let _ = unsafe { self.0.insert_free_block_ptr(span) };
        }
    }

    fn allocate(&mut self, layout: Layout) -> *mut u8 {
        self.0.allocate(layout).map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    unsafe fn deallocate(&mut self, pointer: *mut u8, layout: Layout) {
        if let Some(pointer) = NonNull::new(pointer) {
            // SAFETY: the caller's contract is the same.
            unsafe { self.0.deallocate(pointer, layout.align()) };
        }
    }
}

/// talc.
pub type Talc = WithLayout<TalcSpan>;

/// talc without its lock.
pub struct TalcSpan(talc::base::Talc<talc::source::Manual, talc::DefaultBinning>);

impl SpanAllocator for TalcSpan {
    const EMPTY: Self = Self(talc::base::Talc::new(talc::source::Manual));

    unsafe fn claim(&mut self, start: *mut u8, end: *mut u8) {
        // SAFETY: the caller's contract is the same. A span too short for talc's tables is refused, and every
        // allocation then returns NULL.
        let _ = unsafe { self.0.claim(start, end as usize - start as usize) };
    }

    fn allocate(&mut self, layout: Layout) -> *mut u8 {
        // SAFETY: no layout has size 0, because it includes the header.
        unsafe { self.0.allocate(layout) }.map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    unsafe fn deallocate(&mut self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract is the same.
        unsafe { self.0.deallocate(pointer, layout) };
    }
}
