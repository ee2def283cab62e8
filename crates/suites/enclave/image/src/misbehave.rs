//! What is forbidden, done for the tests.

use core::arch::{asm, global_asm};

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

/// Does what is forbidden; the numbers are the interface's.
pub fn misbehave(how: u64) -> u64 {
    match how {
        // SAFETY: its result is the host's, and it changes nothing.
        0 => unsafe { forbidden_system_call() },
        1 => below_stack(),
        2 => {
            // SAFETY: none: it is meant to fault.
            unsafe { core::ptr::without_provenance_mut::<u8>(0x10).write_volatile(1) };
            0
        }
        3 => crate::trap::trap(),
        4 => loop {
            core::hint::spin_loop();
        },
        _ => u64::MAX,
    }
}

/// Writes ever lower, from the stack down.
fn below_stack() -> u64 {
    // SAFETY: none: it is meant to fault, at the guard page; all that it writes before lies below the stack
    // pointer, which is nobody's.
    unsafe {
        asm!("lea rax, [rsp - 4096]", "2:", "mov byte ptr [rax], 1", "sub rax, 4096", "jmp 2b",
            in("rax") 0, options(noreturn));
    }
}
