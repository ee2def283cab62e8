//! Where a call comes in.

use crate::calls::Inside;
use crate::{allocator, thread, trap};
use interface::{Ecall, Trusted};

/// Runs the constructors of C and C++ code, as a system's loader does where there is one.
#[cfg(not(feature = "outside"))]
fn construct() {
    unsafe extern "C" {
        // The linker's: what runs before all else in an image that has such.
        static __init_array_start: [extern "C" fn(); 0];
        static __init_array_end: [extern "C" fn(); 0];
    }
    // SAFETY: the linker says where they stand; the loader has relocated them.
    unsafe {
        let mut at = (&raw const __init_array_start).cast::<extern "C" fn()>();
        while at < (&raw const __init_array_end).cast() {
            (*at)();
            at = at.add(1);
        }
    }
}

/// The image's entry point. A root call has the allocator's thread begun and ended around it.
#[unsafe(no_mangle)]
extern "sysv64" fn enclave_entry(number: u64, w0: u64, w1: u64, w2: u64, w3: u64, w4: u64) -> u64 {
    let Some(call) = Ecall::of(number) else { trap::trap() };
    let words = [w0, w1, w2, w3, w4];
    if call == Ecall::initialise {
        #[cfg(not(feature = "outside"))]
        construct();
        return Inside.answer(call, words);
    }
    if call == Ecall::finish || thread::block().depth > 0 {
        return Inside.answer(call, words);
    }
    // SAFETY: a pair, around a root call.
    unsafe { allocator::thread_init() };
    let result = Inside.answer(call, words);
    // SAFETY: as above.
    unsafe { allocator::thread_cleanup() };
    result
}
