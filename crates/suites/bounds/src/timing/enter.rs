//! Entry into measured code and exit from it: registers are loaded from a state and saved to it.

use std::arch::naked_asm;
use std::mem::offset_of;

use super::state::State;

/// Runs code with the registers of a state, to which a fault handler may write concurrently.
///
/// # Safety
/// The state is valid and no reference to it is used until this function returns. The code preserves r13 and leaves by
/// jumping to the state's exit.
pub(super) unsafe fn enter(state: *mut State, code: *const u8, loops: u64) {
    // SAFETY: the caller guarantees that the state is valid. `into` saves the callee-saved registers, and `leave`, which
    // the code or the fault handler jumps to, restores them and returns here.
    unsafe {
        (*state).general[15] = loops;
        (*state).code = code as u64;
        (*state).exit = leave as *const () as u64;
        into(state);
    }
}

/// Returns the address of the exit for code and fault handler; r13 must contain the address of the state.
pub(super) fn exit() -> u64 {
    leave as *const () as u64
}

/// Saves the callee-saved registers, loads all registers and jumps to the code.
#[unsafe(naked)]
unsafe extern "sysv64" fn into(state: *mut State) {
    naked_asm!(
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "sub rsp, 8",
        "stmxcsr [rsp]",
        "mov [rdi + {saved_stack}], rsp",
        "mov r13, rdi",
        "cmp qword ptr [r13 + {has_x87}], 0",
        "je 5f",
        "fninit",
        ".rept 6",
        "fld qword ptr [r13 + {x87_others}]",
        ".endr",
        "fld qword ptr [r13 + {x87_top}]",
        "5:",
        "cmp qword ptr [r13 + {has_wide}], 0",
        "je 1f",
        "vzeroupper",
        "1:",
        "cmp qword ptr [r13 + {width}], 32",
        "ja 3f",
        "je 2f",
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
        "movups xmm\\n, [r13 + {vectors} + \\n*64]",
        ".endr",
        "jmp 4f",
        "2:",
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
        "vmovups ymm\\n, [r13 + {vectors} + \\n*64]",
        ".endr",
        "jmp 4f",
        "3:",
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
        "vmovups zmm\\n, [r13 + {vectors} + \\n*64]",
        ".endr",
        ".irp n,1,2,3,4,5,6,7",
        "kmovq k\\n, [r13 + {masks} + \\n*8]",
        ".endr",
        "4:",
        "mov rax, [r13 + {general}]",
        "mov rcx, [r13 + {general} + 8]",
        "mov rdx, [r13 + {general} + 16]",
        "mov rbx, [r13 + {general} + 24]",
        "mov rbp, [r13 + {general} + 40]",
        "mov rsi, [r13 + {general} + 48]",
        "mov rdi, [r13 + {general} + 56]",
        ".irp n,8,9,10,11,12,14,15",
        "mov r\\n, [r13 + {general} + \\n*8]",
        ".endr",
        "jmp [r13 + {code}]",
        saved_stack = const offset_of!(State, saved_stack),
        has_x87 = const offset_of!(State, has_x87),
        x87_others = const offset_of!(State, x87_others),
        x87_top = const offset_of!(State, x87_top),
        width = const offset_of!(State, width),
        has_wide = const offset_of!(State, has_wide),
        vectors = const offset_of!(State, vectors),
        masks = const offset_of!(State, masks),
        general = const offset_of!(State, general),
        code = const offset_of!(State, code),
    )
}

/// Saves the general registers to the state, restores the callee-saved ones and returns.
#[unsafe(naked)]
unsafe extern "sysv64" fn leave() {
    naked_asm!(
        "mov rsp, [r13 + {saved_stack}]",
        "mov [r13 + {general}], rax",
        "mov [r13 + {general} + 8], rcx",
        "mov [r13 + {general} + 16], rdx",
        "mov [r13 + {general} + 24], rbx",
        "mov [r13 + {general} + 40], rbp",
        "mov [r13 + {general} + 48], rsi",
        "mov [r13 + {general} + 56], rdi",
        ".irp n,8,9,10,11,12",
        "mov [r13 + {general} + \\n*8], r\\n",
        ".endr",
        "cld",
        "emms",
        "cmp qword ptr [r13 + {has_wide}], 0",
        "je 2f",
        "vzeroupper",
        "2:",
        "ldmxcsr [rsp]",
        "add rsp, 8",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "ret",
        saved_stack = const offset_of!(State, saved_stack),
        has_wide = const offset_of!(State, has_wide),
        general = const offset_of!(State, general),
    )
}
