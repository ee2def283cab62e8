//! The pluggable interface: the functions that an allocator implements, in Rust as a trait, in C with the names of
//! include/tollgate_allocator.h. Both are the same interface: [`link!`](crate::link) defines the functions from the
//! trait, and all code inside calls the functions, so a missing one is a link error.

use core::ptr;

/// The default alignment of blocks: two words.
pub const ALIGNMENT: usize = 2 * size_of::<usize>();

/// ENOMEM: no space is left.
const NO_ROOM: i32 = 12;
/// Any value but 0: the allocator reports no statistics.
const NOT_TOLD: i32 = 1;
/// EINVAL: an invalid alignment.
const BAD_ALIGNMENT: i32 = 22;

/// Statistics of an allocator, bytes; 0 if the allocator does not know one of them.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Mallinfo {
    /// Memory in use, in the units that the allocator counts.
    pub current: usize,
    /// Maximum of `current` so far.
    pub peak: usize,
    /// Capacity of the heap.
    pub max_heap_size: usize,
}

/// An allocator on a heap that cannot grow.
///
/// # Safety
/// Returned memory is inside the heap of `init`, does not overlap other memory in use, and has at least the requested
/// length and alignment, which is at least [`ALIGNMENT`]. All functions are thread-safe.
pub unsafe trait Allocator: Sync {
    /// Initialises the allocator with the heap's first byte and its end.
    ///
    /// # Safety
    /// The heap is zeroed memory that nothing else uses. Called once, before all other functions.
    unsafe fn init(&self, start: *mut u8, end: *mut u8);

    /// Cleans up.
    ///
    /// # Safety
    /// No other function is called afterwards.
    unsafe fn cleanup(&self) {}

    /// Prepares for a root call of a thread.
    ///
    /// # Safety
    /// Paired with `thread_cleanup` on the same thread.
    unsafe fn thread_init(&self) {}

    /// Cleans up after a root call of a thread.
    ///
    /// # Safety
    /// Same contract as `thread_init`.
    unsafe fn thread_cleanup(&self) {}

    /// Allocates memory; returns NULL if no space is left.
    fn malloc(&self, size: usize) -> *mut u8;

    /// Frees memory.
    ///
    /// # Safety
    /// The pointer is NULL, or this allocator returned it and it is in use.
    unsafe fn free(&self, pointer: *mut u8);

    /// Allocates memory aligned to a power of two of at least [`ALIGNMENT`]; returns NULL if no space is left.
    fn aligned_alloc(&self, alignment: usize, size: usize) -> *mut u8;

    /// Returns how many bytes of a block may be used; 0 for NULL.
    ///
    /// # Safety
    /// Same contract as `free`.
    unsafe fn usable_size(&self, pointer: *mut u8) -> usize;

    /// Returns statistics, or `None` if the allocator keeps none.
    fn mallinfo(&self) -> Option<Mallinfo> {
        None
    }

    /// Implements the C function: returns 0 if it wrote the statistics.
    ///
    /// # Safety
    /// `place` must be valid for writes.
    unsafe fn write_mallinfo(&self, place: *mut Mallinfo) -> i32 {
        let Some(mallinfo) = self.mallinfo() else { return NOT_TOLD };
        // SAFETY: the caller guarantees that `place` is valid.
        unsafe { place.write(mallinfo) };
        0
    }

    /// Allocates zeroed memory; returns NULL if no space is left.
    fn calloc(&self, count: usize, size: usize) -> *mut u8 {
        let Some(bytes) = count.checked_mul(size) else { return ptr::null_mut() };
        let pointer = self.malloc(bytes);
        if !pointer.is_null() {
            // SAFETY: the block has at least this length.
            unsafe { ptr::write_bytes(pointer, 0, bytes) };
        }
        pointer
    }

    /// Grows or shrinks a block and keeps its bytes; returns NULL and changes nothing if no space is left.
    ///
    /// # Safety
    /// Same contract as `free`.
    unsafe fn realloc(&self, pointer: *mut u8, size: usize) -> *mut u8 {
        if pointer.is_null() {
            return self.malloc(size);
        }
        // SAFETY: the caller guarantees that the pointer is valid.
        let usable = unsafe { self.usable_size(pointer) };
        // The block stays if the new size fits and uses at least half of it.
        if size <= usable && size >= usable / 2 {
            return pointer;
        }
        let moved = self.malloc(size);
        if !moved.is_null() {
            // SAFETY: both have at least this length and do not overlap.
            unsafe { ptr::copy_nonoverlapping(pointer, moved, usable.min(size)) };
            // SAFETY: the caller guarantees that the pointer is valid.
            unsafe { self.free(pointer) };
        }
        moved
    }

    /// Implements the C function: returns 0, ENOMEM or EINVAL.
    ///
    /// # Safety
    /// `place` must be valid for writes.
    unsafe fn posix_memalign(&self, place: *mut *mut u8, alignment: usize, size: usize) -> i32 {
        if !alignment.is_power_of_two() || alignment < size_of::<usize>() {
            return BAD_ALIGNMENT;
        }
        let pointer = self.aligned_alloc(alignment.max(ALIGNMENT), size);
        if pointer.is_null() {
            return NO_ROOM;
        }
        // SAFETY: the caller guarantees that `place` is valid.
        unsafe { place.write(pointer) };
        0
    }
}

/// Declares the functions for callers, and defines them from an implementation of the trait.
macro_rules! functions {
    ($($(#[$doc:meta])* fn $function:ident = $method:ident($($name:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        unsafe extern "C" {
            $($(#[$doc])* pub fn $function($($name: $type),*) $(-> $result)?;)*
        }

        /// Links an allocator: the only line of an image. The type must have a constant function `new`.
        #[macro_export]
        macro_rules! link {
            ($allocator:ty) => {
                static LINKED: $allocator = <$allocator>::new();
                $(
                    #[unsafe(no_mangle)]
                    unsafe extern "C" fn $function($($name: $type),*) $(-> $result)? {
                        // SAFETY: the contract of the C interface is that of the trait.
                        #[allow(unused_unsafe, reason = "some of the methods are safe")]
                        unsafe { $crate::allocator::Allocator::$method(&LINKED, $($name),*) }
                    }
                )*
            };
        }
    };
}

functions! {
    /// [`Allocator::init`]
    fn tollgate_allocator_init = init(start: *mut u8, end: *mut u8);
    /// [`Allocator::cleanup`]
    fn tollgate_allocator_cleanup = cleanup();
    /// [`Allocator::thread_init`]
    fn tollgate_allocator_thread_init = thread_init();
    /// [`Allocator::thread_cleanup`]
    fn tollgate_allocator_thread_cleanup = thread_cleanup();
    /// [`Allocator::malloc`]
    fn tollgate_allocator_malloc = malloc(size: usize) -> *mut u8;
    /// [`Allocator::free`]
    fn tollgate_allocator_free = free(pointer: *mut u8);
    /// [`Allocator::calloc`]
    fn tollgate_allocator_calloc = calloc(count: usize, size: usize) -> *mut u8;
    /// [`Allocator::realloc`]
    fn tollgate_allocator_realloc = realloc(pointer: *mut u8, size: usize) -> *mut u8;
    /// [`Allocator::aligned_alloc`]
    fn tollgate_allocator_aligned_alloc = aligned_alloc(alignment: usize, size: usize) -> *mut u8;
    /// [`Allocator::posix_memalign`]
    fn tollgate_allocator_posix_memalign
        = posix_memalign(place: *mut *mut u8, alignment: usize, size: usize) -> i32;
    /// [`Allocator::usable_size`]
    fn tollgate_allocator_usable_size = usable_size(pointer: *mut u8) -> usize;
    /// [`Allocator::write_mallinfo`]
    fn tollgate_allocator_mallinfo = write_mallinfo(place: *mut inside::allocator::Mallinfo) -> i32;
}

// The default for allocators in C that do not define it: reports no statistics.
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .text.tollgate_allocator_mallinfo, \"ax\", @progbits",
    ".weak tollgate_allocator_mallinfo",
    ".type tollgate_allocator_mallinfo, @function",
    "tollgate_allocator_mallinfo:",
    "mov eax, {not_told}",
    "ret",
    ".popsection",
    not_told = const NOT_TOLD,
);

pub use {
    tollgate_allocator_aligned_alloc as aligned_alloc, tollgate_allocator_calloc as calloc,
    tollgate_allocator_cleanup as cleanup, tollgate_allocator_free as free,
    tollgate_allocator_init as init, tollgate_allocator_mallinfo as mallinfo,
    tollgate_allocator_malloc as malloc, tollgate_allocator_posix_memalign as posix_memalign,
    tollgate_allocator_realloc as realloc, tollgate_allocator_thread_cleanup as thread_cleanup,
    tollgate_allocator_thread_init as thread_init, tollgate_allocator_usable_size as usable_size,
};
