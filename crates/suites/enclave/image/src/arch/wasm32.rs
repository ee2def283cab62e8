//! The inside as a WebAssembly module: an OCALL is its only imported function.

use interface::{Ocall, WORDS};

#[link(wasm_import_module = "tollgate")]
unsafe extern "C" {
    safe fn ocall(number: u64, w0: u64, w1: u64, w2: u64, w3: u64, w4: u64) -> u64;
}

/// Makes an OCALL.
#[inline]
pub fn leave(call: Ocall, [w0, w1, w2, w3, w4]: [u64; WORDS]) -> u64 {
    ocall(call as u64, w0, w1, w2, w3, w4)
}

/// Does nothing: a module contains only Rust code, which has no constructors.
pub fn construct() {}

/// Ends the call with a fault, which the host detects; code inside has no other way to report it.
pub fn trap() -> ! {
    core::arch::wasm32::unreachable()
}

/// Returns all ones, because WebAssembly has no system calls.
pub fn system_call() -> u64 {
    u64::MAX
}

/// Writes to descending addresses, from the stack pointer down.
pub fn below_stack() -> u64 {
    let mut here = 0u8;
    let mut at = &raw mut here;
    loop {
        at = at.wrapping_sub(4096);
        // SAFETY: this is meant to fault at the guard page. The memory below the stack pointer, which it overwrites
        // before, is unused.
        unsafe { at.write_volatile(1) };
    }
}
