//! The entry and exit code of an enclave, on a separate page of the enclave; the image is unchanged.
//!
//! The CPU enters at its first byte, with the enclave's FS and the host's stack. RAX is nonzero if a fault must
//! be handled, RBX is the TCS and RCX the exit address. The host passes words in RDI, RSI, RDX, R10, R8 and R9 (the
//! registers of system calls, because RCX is taken), and the purpose of the entry in R11. On exit R11 is the reason.
//! The code contains no addresses: it computes all of them from the TCS's address.

use std::arch::global_asm;
use std::mem::{offset_of, size_of};
use std::ptr;

use enclave_interface::{Ecall, ThreadBlock};

use super::structures::{GprSgx, INVALID_OPCODE};

/// The purpose of an entry, in R11.
pub(super) mod entering {
    /// An ECALL.
    pub(in super::super) const CALL: u64 = 0;
    /// The result of an OCALL.
    pub(in super::super) const ANSWER: u64 = 1;
}

/// The reason for an exit, in R11.
pub(super) mod leaving {
    /// The ECALL has ended.
    pub(in super::super) const DONE: u64 = 0;
    /// The enclave makes an OCALL.
    pub(in super::super) const OCALL: u64 = 1;
    /// A fault cut the ECALL short.
    pub(in super::super) const CUT: u64 = 2;
    /// The CPU did not enter.
    pub(in super::super) const REFUSED: u64 = 3;
}

/// The leaf functions of ENCLU.
pub(super) mod enclu {
    /// EENTER.
    pub(in super::super) const ENTER: u32 = 2;
    /// ERESUME, which continues after a fault; the vDSO reports it as the next function.
    pub(in super::super) const RESUME: u32 = 3;
    /// EEXIT.
    pub(in super::super) const EXIT: u32 = 4;
}

/// The block at FS:0 inside. The host writes the first part before the enclave is measured; there, addresses are
/// relative to the enclave's first byte.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Block {
    /// The part that the image uses. The code here saves the host's stack pointer in it.
    pub(super) thread: ThreadBlock,
    /// The TCS.
    pub(super) tcs_page: u64,
    /// This block.
    pub(super) own: u64,
    /// The high end of the stack.
    pub(super) stack: u64,
    /// The image's entry point.
    pub(super) entry: u64,
    /// The registers saved in the first frame.
    pub(super) saved: u64,
    /// The image's relocations: pairs of a location and a value to which the enclave's address is added.
    pub(super) relocations: u64,
    /// Number of relocations.
    pub(super) relocation_count: u64,
    /// The template of the thread-local variables.
    pub(super) template: u64,
    /// Length of the template, bytes; 0 after it was copied.
    pub(super) template_length: u64,
    /// The start of the thread-local variables, which end at FS:0.
    pub(super) variables: u64,
    /// The enclave's first byte. From here on, fields are absolute addresses.
    pub(super) base: u64,
    /// The exit address.
    pub(super) exit: u64,
    /// The host's RBP.
    pub(super) host_frame: u64,
    /// The stack pointer while the thread makes an OCALL; otherwise 0.
    pub(super) inside: u64,
}

/// Returns the code.
pub(super) fn code() -> &'static [u8] {
    unsafe extern "C" {
        static tollgate_sgx_code: u8;
        static tollgate_sgx_code_end: u8;
    }
    let (start, end) = (&raw const tollgate_sgx_code, &raw const tollgate_sgx_code_end);
    // SAFETY: the assembly below defines both symbols, and the section is read-only.
    unsafe { std::slice::from_raw_parts(start, end.addr() - start.addr()) }
}

/// Returns the bytes of a block, which starts its page.
pub(super) fn bytes(block: &Block) -> &[u8] {
    // SAFETY: the block consists of integers without padding.
    unsafe { std::slice::from_raw_parts(ptr::from_ref(block).cast(), size_of::<Block>()) }
}

global_asm!(
    ".pushsection .rodata.tollgate_sgx,\"a\",@progbits",
    ".globl tollgate_sgx_code",
    ".globl tollgate_sgx_code_end",
    ".p2align 6",
    "tollgate_sgx_code:",
    "cld",
    "test eax, eax",
    "jnz 5f",
    "mov qword ptr fs:[{exit}], rcx",
    "mov qword ptr fs:[{host_stack}], rsp",
    "mov qword ptr fs:[{host_frame}], rbp",
    "test r11, r11",
    "jnz 4f",
    // An ECALL. RBX becomes the enclave's first byte.
    "sub rbx, qword ptr fs:[{tcs_page}]",
    "mov qword ptr fs:[{base}], rbx",
    "mov rax, qword ptr fs:[{own}]",
    "add rax, rbx",
    "mov qword ptr fs:[{own_address}], rax",
    "lea rax, [rip + 3f]",
    "mov qword ptr fs:[{ocall}], rax",
    "mov qword ptr fs:[{inside}], 0",
    "mov rsp, qword ptr fs:[{stack}]",
    "add rsp, rbx",
    "cmp rdi, {initialise}",
    "jne 2f",
    // The first ECALL applies the image's relocations. Repeating this is harmless.
    "mov rcx, qword ptr fs:[{relocation_count}]",
    "mov rax, qword ptr fs:[{relocations}]",
    "add rax, rbx",
    "jrcxz 2f",
    "6:",
    "mov r12, [rax]",
    "mov r13, [rax + 8]",
    "add r13, rbx",
    "mov [rbx + r12], r13",
    "add rax, 16",
    "loop 6b",
    "2:",
    // The first ECALL by this TCS copies the template, which is relocated by now, to its variables.
    "mov rcx, qword ptr fs:[{template_length}]",
    "jrcxz 9f",
    "mov r12, rsi",
    "mov r13, rdi",
    "mov rsi, qword ptr fs:[{template}]",
    "add rsi, rbx",
    "mov rdi, qword ptr fs:[{variables}]",
    "add rdi, rbx",
    "rep movsb",
    "mov qword ptr fs:[{template_length}], rcx",
    "mov rsi, r12",
    "mov rdi, r13",
    "9:",
    "mov rcx, r10",
    "mov rax, qword ptr fs:[{entry}]",
    "add rax, rbx",
    "call rax",
    // The ECALL has ended. Only its result leaves the enclave.
    "mov rdi, rax",
    "xor esi, esi",
    "xor edx, edx",
    "xor r8d, r8d",
    "xor r9d, r9d",
    "xor r10d, r10d",
    "xor r11d, r11d",
    "7:",
    "mov rbx, qword ptr fs:[{exit}]",
    "mov rsp, qword ptr fs:[{host_stack}]",
    "mov rbp, qword ptr fs:[{host_frame}]",
    "mov eax, {leave}",
    "enclu",
    // An OCALL of the image: a function of the System V convention.
    "3:",
    "push rbp",
    "push rbx",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "mov qword ptr fs:[{inside}], rsp",
    "mov r10, rcx",
    "mov r11d, {leave_ocall}",
    "jmp 7b",
    // The result of an OCALL, if one is in progress.
    "4:",
    "mov rsp, qword ptr fs:[{inside}]",
    "test rsp, rsp",
    "jz 8f",
    "mov qword ptr fs:[{inside}], 0",
    "mov rax, rdi",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbx",
    "pop rbp",
    "ret",
    "8: ud2",
    // Reports a fault inside, whose registers are in the first frame.
    "5:",
    "sub rbx, qword ptr fs:[{tcs_page}]",
    "mov rdx, qword ptr fs:[{saved}]",
    "add rdx, rbx",
    "mov rdi, [rdx + {rip}]",
    "mov rsi, [rdx + {rax}]",
    "xor r9d, r9d",
    // The CPU refuses system calls inside. The frame, which the host cannot forge, shows that the bytes at RIP
    // exist.
    "cmp dword ptr [rdx + {exception}], {invalid_opcode}",
    "jne 10f",
    "cmp byte ptr [rdi], 0x0f",
    "jne 10f",
    "cmp byte ptr [rdi + 1], 0x05",
    "sete r9b",
    "10:",
    "xor edx, edx",
    "mov rbx, rcx",
    "mov eax, {leave}",
    "enclu",
    "tollgate_sgx_code_end:",
    ".popsection",
    initialise = const Ecall::initialise as u64,
    leave = const enclu::EXIT,
    leave_ocall = const leaving::OCALL,
    invalid_opcode = const INVALID_OPCODE as i32,
    own_address = const offset_of!(Block, thread) + offset_of!(ThreadBlock, own),
    ocall = const offset_of!(Block, thread) + offset_of!(ThreadBlock, ocall),
    host_stack = const offset_of!(Block, thread) + offset_of!(ThreadBlock, host_stack),
    tcs_page = const offset_of!(Block, tcs_page),
    own = const offset_of!(Block, own),
    stack = const offset_of!(Block, stack),
    entry = const offset_of!(Block, entry),
    saved = const offset_of!(Block, saved),
    relocations = const offset_of!(Block, relocations),
    relocation_count = const offset_of!(Block, relocation_count),
    template = const offset_of!(Block, template),
    variables = const offset_of!(Block, variables),
    template_length = const offset_of!(Block, template_length),
    base = const offset_of!(Block, base),
    exit = const offset_of!(Block, exit),
    host_frame = const offset_of!(Block, host_frame),
    inside = const offset_of!(Block, inside),
    rip = const offset_of!(GprSgx, rip),
    rax = const offset_of!(GprSgx, rax),
    exception = const offset_of!(GprSgx, exit),
);
