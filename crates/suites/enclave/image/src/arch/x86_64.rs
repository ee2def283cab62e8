//! The inside as a program of the x86-64 processor: alone, or outside with a system below it.

use core::arch::{asm, global_asm};
use interface::{Ocall, WORDS};

#[cfg(not(feature = "outside"))]
mod alone;
#[cfg(feature = "outside")]
mod outside;

#[cfg(not(feature = "outside"))]
use alone::block;
#[cfg(not(feature = "outside"))]
pub use alone::construct;
#[cfg(feature = "outside")]
use outside::block;
#[cfg(feature = "outside")]
pub use outside::construct;

/// Leaves by an OCALL.
#[inline]
pub fn leave(call: Ocall, [w0, w1, w2, w3, w4]: [u64; WORDS]) -> u64 {
    type Way = extern "sysv64" fn(u64, u64, u64, u64, u64, u64) -> u64;
    // SAFETY: the loader writes a function of this type there.
    let way: Way = unsafe { core::mem::transmute(block().ocall as usize) };
    way(call as u64, w0, w1, w2, w3, w4)
}

/// Ends the call with a fault, which the host sees as such: nothing inside could report it.
pub fn trap() -> ! {
    // SAFETY: the instruction does nothing but fault.
    unsafe { asm!("ud2", options(noreturn, nomem, nostack)) }
}

// The one system call in an image, in a section of its own: the code proper holds none, which a test sees.
global_asm!(
    ".pushsection forbidden, \"ax\", @progbits",
    "forbidden_system_call:",
    "mov eax, 39", // getpid, which would do no harm
    "syscall",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    fn forbidden_system_call() -> u64;
}

/// A system call.
pub fn system_call() -> u64 {
    // SAFETY: its result is the host's, and it changes nothing.
    unsafe { forbidden_system_call() }
}

/// Writes ever lower, from the stack down.
pub fn below_stack() -> u64 {
    // SAFETY: none: it is meant to fault, at the guard page; all that it writes before lies below the stack
    // pointer, which is nobody's.
    unsafe {
        asm!("lea rax, [rsp - 4096]", "2:", "mov byte ptr [rax], 1", "sub rax, 4096", "jmp 2b",
            in("rax") 0, options(noreturn));
    }
}
