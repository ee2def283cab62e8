//! Where a call comes in.

use crate::calls::Inside;
use crate::{allocator, arch};
use interface::{Ecall, Trusted};

/// The image's entry point. A root call has the allocator's thread begun and ended around it.
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
    // SAFETY: a pair, around a root call.
    unsafe { allocator::thread_init() };
    let result = Inside.answer(call, words);
    // SAFETY: as above.
    unsafe { allocator::thread_cleanup() };
    result
}
