//! The pluggable interface: what an allocator answers, in Rust as a trait, in C as functions by the names
//! of include/tollgate_allocator.h. The two are one: [`link!`](crate::link) defines the functions from the
//! trait, and all code inside calls the functions, so that a missing one is an error of the linker.

use core::ptr;

/// What an address is aligned to where nothing else was asked: two words.
pub const ALIGNMENT: usize = 2 * size_of::<usize>();

/// ENOMEM: no room.
const NO_ROOM: i32 = 12;
/// Whatever is not 0: nothing is told.
const NOT_TOLD: i32 = 1;
/// EINVAL: an alignment that is none.
const BAD_ALIGNMENT: i32 = 22;

/// What an allocator tells of itself, in bytes; 0 where it does not know one of them.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Mallinfo {
    /// In use: in whatever pieces the allocator counts by.
    pub current: usize,
    /// The most that ever was.
    pub peak: usize,
    /// What the heap can hold.
    pub max_heap_size: usize,
}

/// An allocator on a heap that cannot grow.
///
/// # Safety
/// Memory it gives lies in the heap of `init`, overlaps no other that is in use, is as long as asked and
/// aligned as asked, at least to [`ALIGNMENT`]. Any number of threads call at once.
pub unsafe trait Allocator: Sync {
    /// Begins, with the heap's first byte and its end.
    ///
    /// # Safety
    /// The heap is zeroed memory that nobody else uses; called once, before all else.
    unsafe fn init(&self, start: *mut u8, end: *mut u8);

    /// Ends.
    ///
    /// # Safety
    /// Nothing is called after it.
    unsafe fn cleanup(&self) {}

    /// A thread begins a root call.
    ///
    /// # Safety
    /// Paired with `thread_cleanup` on one thread.
    unsafe fn thread_init(&self) {}

    /// A thread ends a root call.
    ///
    /// # Safety
    /// As `thread_init`.
    unsafe fn thread_cleanup(&self) {}

    /// Memory; NULL where there is no room.
    fn malloc(&self, size: usize) -> *mut u8;

    /// Takes memory back.
    ///
    /// # Safety
    /// The pointer is NULL or of this allocator, and in use.
    unsafe fn free(&self, pointer: *mut u8);

    /// Memory at a power of two, which is at least [`ALIGNMENT`]; NULL where there is no room.
    fn aligned_alloc(&self, alignment: usize, size: usize) -> *mut u8;

    /// How many bytes may be used; 0 for NULL.
    ///
    /// # Safety
    /// As `free`.
    unsafe fn usable_size(&self, pointer: *mut u8) -> usize;

    /// What it tells of itself; nothing where it counts nothing.
    fn mallinfo(&self) -> Option<Mallinfo> {
        None
    }

    /// As the C function: 0 where it has told.
    ///
    /// # Safety
    /// The place can be written.
    unsafe fn write_mallinfo(&self, place: *mut Mallinfo) -> i32 {
        let Some(told) = self.mallinfo() else { return NOT_TOLD };
        // SAFETY: passed on.
        unsafe { place.write(told) };
        0
    }

    /// Zeroed memory; NULL where there is no room.
    fn calloc(&self, count: usize, size: usize) -> *mut u8 {
        let Some(bytes) = count.checked_mul(size) else { return ptr::null_mut() };
        let pointer = self.malloc(bytes);
        if !pointer.is_null() {
            // SAFETY: it is this many bytes long.
            unsafe { ptr::write_bytes(pointer, 0, bytes) };
        }
        pointer
    }

    /// Grows or shrinks, and keeps the bytes; NULL where there is no room, and then nothing has changed.
    ///
    /// # Safety
    /// As `free`.
    unsafe fn realloc(&self, pointer: *mut u8, size: usize) -> *mut u8 {
        if pointer.is_null() {
            return self.malloc(size);
        }
        // SAFETY: passed on.
        let usable = unsafe { self.usable_size(pointer) };
        // What fits stays, unless more than half would lie idle.
        if size <= usable && size >= usable / 2 {
            return pointer;
        }
        let moved = self.malloc(size);
        if !moved.is_null() {
            // SAFETY: both are at least this long, and apart.
            unsafe { ptr::copy_nonoverlapping(pointer, moved, usable.min(size)) };
            // SAFETY: passed on.
            unsafe { self.free(pointer) };
        }
        moved
    }

    /// As the C function: 0, ENOMEM or EINVAL.
    ///
    /// # Safety
    /// The place can be written.
    unsafe fn posix_memalign(&self, place: *mut *mut u8, alignment: usize, size: usize) -> i32 {
        if !alignment.is_power_of_two() || alignment < size_of::<usize>() {
            return BAD_ALIGNMENT;
        }
        let pointer = self.aligned_alloc(alignment.max(ALIGNMENT), size);
        if pointer.is_null() {
            return NO_ROOM;
        }
        // SAFETY: passed on.
        unsafe { place.write(pointer) };
        0
    }
}

/// Declares the functions for those who call, and defines them from a trait's implementation.
macro_rules! functions {
    ($($(#[$doc:meta])* fn $function:ident = $method:ident($($name:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        unsafe extern "C" {
            $($(#[$doc])* pub fn $function($($name: $type),*) $(-> $result)?;)*
        }

        /// Links an allocator: the one line that an image consists of. The type is a unit or has `new`.
        #[macro_export]
        macro_rules! link {
            ($allocator:ty) => {
                static LINKED: $allocator = <$allocator>::new();
                $(
                    #[unsafe(no_mangle)]
                    unsafe extern "C" fn $function($($name: $type),*) $(-> $result)? {
                        // SAFETY: passed on: the C interface promises what the trait does.
                        #[allow(unused_unsafe, reason = "some are safe to call")]
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

// An allocator in C may lack it: then this tells nothing.
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
