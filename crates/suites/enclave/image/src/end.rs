//! How a call ends that cannot go on, and what compiled code names though nothing uses it.

use crate::arch::trap;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    trap()
}

/// Rust's own allocations, which dependencies name and nothing makes: none.
struct None;

// SAFETY: it gives no memory.
unsafe impl core::alloc::GlobalAlloc for None {
    unsafe fn alloc(&self, _: core::alloc::Layout) -> *mut u8 {
        core::ptr::null_mut()
    }

    unsafe fn dealloc(&self, _: *mut u8, _: core::alloc::Layout) {}
}

#[global_allocator]
static NONE: None = None;
