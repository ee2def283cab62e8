//! An image as a module of WebAssembly: an OCALL is its one imported function.

use interface::{Ocall, WORDS};

#[link(wasm_import_module = "tollgate")]
unsafe extern "C" {
    safe fn ocall(number: u64, w0: u64, w1: u64, w2: u64, w3: u64, w4: u64) -> u64;
}

/// Leaves by an OCALL.
#[inline]
pub fn leave(call: Ocall, [w0, w1, w2, w3, w4]: [u64; WORDS]) -> u64 {
    ocall(call as u64, w0, w1, w2, w3, w4)
}

/// There are no constructors: what is linked here is Rust alone.
pub fn construct() {}

/// Ends the call with a fault, which the host sees as such: nothing inside could report it.
pub fn trap() -> ! {
    core::arch::wasm32::unreachable()
}

/// A system call does not exist: as what is not to be had, all ones.
pub fn system_call() -> u64 {
    u64::MAX
}

/// Writes ever lower, from the stack down.
pub fn below_stack() -> u64 {
    let mut here = 0u8;
    let mut at = &raw mut here;
    loop {
        at = at.wrapping_sub(4096);
        // SAFETY: none: it is meant to fault, at the guard page; all that it writes before lies below the
        // stack pointer, which is nobody's.
        unsafe { at.write_volatile(1) };
    }
}
