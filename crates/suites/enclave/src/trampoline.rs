//! The trampolines by which threads enter and leave: assembly that changes the stack and the FS base.
//!
//! FS is read from FS:0, where the x86-64 ABI stores its address, and written by `wrfsbase`. GS is unchanged if
//! possible: neither the host nor an image uses it, and each write of a base costs as much as the rest of an ECALL.
//! The byte at [`Tcs::selector`] tells Syscall User Dispatch which side runs; the trampolines of a kind without
//! dispatch do not write it. The host's control words of SSE and x87 are saved on its stack, as in Open Enclave, for
//! an ECALL that a fault cuts short.

use std::arch::global_asm;
use std::mem::offset_of;

use enclave_interface::ThreadBlock;

use crate::region::Top;
use crate::tcs::Tcs;

/// The result of an ECALL, in RAX and RDX.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct EcallReturn {
    /// The enclave's result.
    pub(crate) word: u64,
    /// 0, or 1 if a fault cut the ECALL short.
    pub(crate) failed: u64,
}

/// A trampoline into an enclave, with the five words of a call.
pub(crate) type EnterFn =
    unsafe extern "sysv64" fn(tcs: *const Tcs, number: u64, words: *const u64) -> EcallReturn;

unsafe extern "sysv64" {
    /// Makes an ECALL; sets FS by `wrfsbase`.
    pub(crate) fn tollgate_enclave_enter(
        tcs: *const Tcs,
        number: u64,
        words: *const u64,
    ) -> EcallReturn;
    /// The target of the OCALLs of an image that is entered so.
    pub(crate) fn tollgate_enclave_ocall();
    /// Makes an ECALL; reads and writes FS and GS by six system calls.
    pub(crate) fn tollgate_enclave_enter_prctl(
        tcs: *const Tcs,
        number: u64,
        words: *const u64,
    ) -> EcallReturn;
    /// The target of the OCALLs of an image that is entered so.
    pub(crate) fn tollgate_enclave_ocall_prctl();
    /// Makes `times` calls (at least one) on the host's stack, with FS set once around all of them.
    pub(crate) fn tollgate_enclave_call(
        tcs: *const Tcs,
        number: u64,
        words: *const u64,
        times: u64,
    ) -> EcallReturn;
    /// The target of the OCALLs of such calls: a plain call.
    pub(crate) fn tollgate_enclave_ocall_plain();
    /// The end of an ECALL after a fault: the handler continues here, with the host's FS and the host's stack.
    pub(crate) fn tollgate_enclave_aborted();
}

global_asm!(
    ".macro tollgate_no_way",
    ".endm",
    // Saves the host's FS and sets FS to the block in RBX. Preserves all registers but R10.
    ".macro tollgate_in_base",
    "mov r10, qword ptr fs:[0]",
    "mov [rbx + {host_fs}], r10",
    "wrfsbase rbx",
    ".endm",
    // Restores the FS that the block in RBX saved. Preserves all registers but R10.
    ".macro tollgate_out_base",
    "mov r10, [rbx + {host_fs}]",
    "wrfsbase r10",
    ".endm",
    ".macro tollgate_arch_prctl code",
    "mov eax, 158",
    "mov edi, \\code",
    "syscall",
    ".endm",
    ".macro tollgate_in_prctl",
    "lea rsi, [rbx + {host_fs}]",
    "tollgate_arch_prctl 0x1003", // ARCH_GET_FS
    "lea rsi, [rbx + {host_gs}]",
    "tollgate_arch_prctl 0x1004", // ARCH_GET_GS
    "mov rsi, rbx",
    "tollgate_arch_prctl 0x1002", // ARCH_SET_FS
    "tollgate_arch_prctl 0x1001", // ARCH_SET_GS
    ".endm",
    ".macro tollgate_out_prctl",
    "push rdi",
    "push rsi",
    "push rcx",
    "mov rsi, [rbx + {host_gs}]",
    "tollgate_arch_prctl 0x1001",
    "mov rsi, [rbx + {host_fs}]",
    "tollgate_arch_prctl 0x1002",
    "pop rcx",
    "pop rsi",
    "pop rdi",
    ".endm",
    // Load the selector's address, and write the byte there; both are empty for a kind without dispatch.
    ".macro tollgate_selector register",
    "mov \\register, [r12 + {selector}]",
    ".endm",
    ".macro tollgate_select register, byte",
    "mov byte ptr [\\register], \\byte",
    ".endm",
    ".macro tollgate_no_selector register",
    ".endm",
    ".macro tollgate_no_select register, byte",
    ".endm",
    // Six registers, the two control words and the TCS; this leaves the stack aligned to 16 bytes.
    ".macro tollgate_save",
    "push rbp",
    "push rbx",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "sub rsp, 16",
    "stmxcsr [rsp]",
    "fnstcw [rsp + 4]",
    "push rdi",
    ".endm",
    ".macro tollgate_restore_and_return",
    "add rsp, 24",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbx",
    "pop rbp",
    "ret",
    ".endm",
    ".macro tollgate_words from",
    "mov rsi, [\\from]",
    "mov rdx, [\\from + 8]",
    "mov rcx, [\\from + 16]",
    "mov r8, [\\from + 24]",
    "mov r9, [\\from + 32]",
    ".endm",
    // `wrfsbase` serialises, so loads for the entry precede it and the remaining work of the exit follows it. System
    // calls need the opposite order: they clobber registers, and are blocked inside.
    ".macro tollgate_way enter, ocall, in_first, in_last, out_first, out_last, selector, select",
    ".globl \\enter",
    ".p2align 6",
    ".type \\enter, @function",
    "\\enter:",
    "tollgate_save",
    "mov r12, rdi",
    "mov r13, rsi",
    "mov r14, rdx",
    "mov rbx, [rdi + {top}]",
    "mov [rbx + {host_stack}], rsp",
    "\\in_first",
    "mov rdi, r13",
    "tollgate_words r14",
    // The calling convention preserves RBX; an image that violates it faults below, still inside.
    "mov r13, [r12 + {entry}]",
    "\\selector rax",
    "mov rsp, [r12 + {stack}]",
    "\\in_last",
    "\\select rax, 1",
    "call r13",
    "\\out_first",
    "mov rsp, [rbx + {host_stack}]",
    "mov r12, [rsp]",
    "\\selector rcx",
    "\\select rcx, 0",
    "mov r13, rax",
    "\\out_last",
    "mov rax, r13",
    "xor edx, edx",
    "tollgate_restore_and_return",
    ".globl \\ocall",
    ".p2align 6",
    ".type \\ocall, @function",
    "\\ocall:",
    "push rbp",
    "push rbx",
    "push r12",
    "push r13",
    "mov rbx, qword ptr fs:[0]",
    "mov rbp, rsp",
    "mov rsp, [rbx + {host_stack}]",
    "mov r12, [rsp]",
    "\\selector rax",
    "\\select rax, 0",
    "\\out_first",
    "\\out_last",
    "inc qword ptr [r12 + {ocalls}]",
    // The seventh argument, pushed twice to keep the stack aligned.
    "push r12",
    "push r12",
    "call qword ptr [r12 + {answer}]",
    "mov r13, rax",
    "\\in_first",
    "\\in_last",
    "\\selector rax",
    "\\select rax, 1",
    "mov rax, r13",
    "mov rsp, rbp",
    "pop r13",
    "pop r12",
    "pop rbx",
    "pop rbp",
    "ret",
    ".endm",
    ".pushsection .text.tollgate_enclave,\"ax\",@progbits",
    "tollgate_way tollgate_enclave_enter, tollgate_enclave_ocall, tollgate_no_way, tollgate_in_base, tollgate_out_base, tollgate_no_way, tollgate_selector, tollgate_select",
    "tollgate_way tollgate_enclave_enter_prctl, tollgate_enclave_ocall_prctl, tollgate_in_prctl, tollgate_no_way, tollgate_no_way, tollgate_out_prctl, tollgate_no_selector, tollgate_no_select",
    ".globl tollgate_enclave_call",
    ".p2align 6",
    ".type tollgate_enclave_call, @function",
    "tollgate_enclave_call:",
    "tollgate_save",
    "mov r12, rsi",
    "mov r14, rdx",
    "mov r15, rcx",
    "mov rbp, [rdi + {entry}]",
    "mov rbx, [rdi + {top}]",
    "mov [rbx + {host_stack}], rsp",
    "tollgate_in_base",
    "2:",
    "mov rdi, r12",
    "tollgate_words r14",
    "call rbp",
    "dec r15",
    "jnz 2b",
    "mov r13, rax",
    "tollgate_out_base",
    "mov rax, r13",
    "xor edx, edx",
    "tollgate_restore_and_return",
    ".globl tollgate_enclave_ocall_plain",
    ".p2align 6",
    ".type tollgate_enclave_ocall_plain, @function",
    "tollgate_enclave_ocall_plain:",
    "mov rax, qword ptr fs:[0]",
    "mov rax, [rax + {top_tcs}]",
    "inc qword ptr [rax + {ocalls}]",
    "push rax",
    "call qword ptr [rax + {answer}]",
    "add rsp, 8",
    "ret",
    ".globl tollgate_enclave_aborted",
    ".type tollgate_enclave_aborted, @function",
    "tollgate_enclave_aborted:",
    "ldmxcsr [rsp + 8]",
    "fldcw [rsp + 12]",
    "mov edx, 1",
    "tollgate_restore_and_return",
    ".popsection",
    host_stack = const offset_of!(ThreadBlock, host_stack),
    host_fs = const offset_of!(ThreadBlock, host_fs),
    host_gs = const offset_of!(ThreadBlock, host_gs),
    top_tcs = const offset_of!(Top, tcs),
    top = const offset_of!(Tcs, top),
    stack = const offset_of!(Tcs, stack),
    entry = const offset_of!(Tcs, entry),
    selector = const offset_of!(Tcs, selector),
    answer = const offset_of!(Tcs, answer),
    ocalls = const offset_of!(Tcs, ocalls),
);

/// Returns whether the kernel lets programs write the FS base, as the trampolines do.
pub(crate) fn fs_base_is_writable() -> bool {
    // Source: Linux, Documentation/arch/x86/x86_64/fsgs.rst: HWCAP2_FSGSBASE.
    const HWCAP2_FSGSBASE: u64 = 1 << 1;
    // SAFETY: it reads the auxiliary vector.
    unsafe { libc::getauxval(libc::AT_HWCAP2) & HWCAP2_FSGSBASE != 0 }
}
