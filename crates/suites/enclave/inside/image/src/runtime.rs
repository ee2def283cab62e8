//! How a call enters the image, and ends if it cannot continue.

use crate::arch::Host;
use crate::calls::Inside;
use crate::{allocator, arch};
use interface::{Ecall, Leave, Trusted};

/// The image's entry point. Each root call starts and ends the allocator's thread.
#[unsafe(no_mangle)]
extern "C" fn enclave_entry(number: u64, w0: u64, w1: u64, w2: u64, w3: u64, w4: u64) -> u64 {
    let Some(call) = Ecall::of(number) else { arch::trap() };
    let words = [w0, w1, w2, w3, w4];
    if call == Ecall::initialise {
        arch::construct();
        return Inside.answer(call, words);
    }
    if call == Ecall::finish {
        return Inside.answer(call, words);
    }
    // SAFETY: paired with `thread_cleanup` below, around a root call.
    unsafe { allocator::thread_init() };
    let result = Inside.answer(call, words);
    // SAFETY: paired with `thread_init` above.
    unsafe { allocator::thread_cleanup() };
    result
}

/// Sleeps outside until the word differs from `value` or a thread wakes this one: for locks of C code.
#[unsafe(no_mangle)]
pub extern "C" fn tollgate_enclave_wait(address: *const u32, value: u32) {
    let Ok(_) = Host.wait(address as u64, u64::from(value));
}

/// Wakes up to `count` threads that sleep on a word: for locks of C code.
#[unsafe(no_mangle)]
pub extern "C" fn tollgate_enclave_wake(address: *const u32, count: u32) {
    let Ok(_) = Host.wake(address as u64, u64::from(count));
}

/// The items that a freestanding image must define.
#[cfg(not(feature = "outside"))]
mod freestanding {
    #[panic_handler]
    fn panic(_: &core::panic::PanicInfo) -> ! {
        crate::arch::trap()
    }

    /// Rust's global allocator, which dependencies link but never use: every allocation fails.
    struct NoAllocator;

    // SAFETY: it allocates no memory.
    unsafe impl core::alloc::GlobalAlloc for NoAllocator {
        unsafe fn alloc(&self, _: core::alloc::Layout) -> *mut u8 {
            core::ptr::null_mut()
        }

        unsafe fn dealloc(&self, _: *mut u8, _: core::alloc::Layout) {}
    }

    #[global_allocator]
    static GLOBAL: NoAllocator = NoAllocator;
}
