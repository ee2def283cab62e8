//! The code by which an enclave is entered and left, on a page of the enclave's own; the image stays as it is.
//!
//! The processor comes to its first byte with the enclave's FS, on the host's stack, and tells in RAX whether
//! a fault is to be dealt with, in RBX the TCS, in RCX where to leave to. The host's words are in RDI, RSI,
//! RDX, R10, R8 and R9, the fourth where system calls have it too, since RCX is taken; R11 says what the entry
//! is for. On leaving R11 says why. Nothing here knows an address: all are reckoned from the TCS's.

use std::arch::global_asm;
use std::mem::{offset_of, size_of};
use std::ptr;

use enclave_interface::{Ecall, ThreadBlock};

use super::structures::{GprSgx, INVALID_OPCODE};

/// What an entry is for, in R11.
pub(super) mod entering {
    /// A call.
    pub(in super::super) const CALL: u64 = 0;
    /// The answer to an OCALL.
    pub(in super::super) const ANSWER: u64 = 1;
}

/// Why the enclave was left, in R11.
pub(super) mod leaving {
    /// The call has ended.
    pub(in super::super) const DONE: u64 = 0;
    /// It makes an OCALL.
    pub(in super::super) const OCALL: u64 = 1;
    /// It was cut short by a fault.
    pub(in super::super) const CUT: u64 = 2;
    /// The processor did not enter.
    pub(in super::super) const REFUSED: u64 = 3;
}

/// The functions of ENCLU.
pub(super) mod enclu {
    /// Enters.
    pub(in super::super) const ENTER: u32 = 2;
    /// Goes on where an enclave was left by a fault: what is told to be next after one.
    pub(in super::super) const RESUME: u32 = 3;
    /// Leaves.
    pub(in super::super) const EXIT: u32 = 4;
}

/// What stands at FS:0 inside. The host writes the first part before the enclave is measured; places count
/// from the enclave's first byte.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Block {
    /// What the image knows of. The code here keeps the host's stack there.
    pub(super) thread: ThreadBlock,
    /// The TCS.
    pub(super) thread_control: u64,
    /// This block.
    pub(super) own: u64,
    /// The stack's high end.
    pub(super) stack: u64,
    /// Where the image is entered.
    pub(super) entry: u64,
    /// Where the first frame keeps the registers.
    pub(super) saved: u64,
    /// The image's relocations: each a place, and what is written there beside the enclave's address.
    pub(super) relocations: u64,
    /// How many there are.
    pub(super) relocation_count: u64,
    /// What the image holds of the thread's variables.
    pub(super) template: u64,
    /// Its bytes; 0 once it was copied.
    pub(super) template_length: u64,
    /// Where the thread's variables begin; they end at FS:0.
    pub(super) variables: u64,
    /// The enclave's first byte: an address, from here on.
    pub(super) base: u64,
    /// Where to leave to.
    pub(super) exit: u64,
    /// The host's RBP.
    pub(super) host_frame: u64,
    /// The stack's pointer while the thread is out by an OCALL; else 0.
    pub(super) inside: u64,
}

/// The code.
pub(super) fn code() -> &'static [u8] {
    unsafe extern "C" {
        static tollgate_sgx_code: u8;
        static tollgate_sgx_code_end: u8;
    }
    let (start, end) = (&raw const tollgate_sgx_code, &raw const tollgate_sgx_code_end);
    // SAFETY: both stand in the assembly below, which nobody writes.
    unsafe { std::slice::from_raw_parts(start, end.addr() - start.addr()) }
}

/// The bytes of a block, which is the beginning of its page.
pub(super) fn bytes(block: &Block) -> &[u8] {
    // SAFETY: it is integers alone, with no padding.
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
    // A call. RBX becomes the enclave's first byte.
    "sub rbx, qword ptr fs:[{thread_control}]",
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
    // The first call: the image learns where it is. Again does no harm.
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
    // The first call by this TCS: its variables are the image's template, relocated by now.
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
    // It has ended. Only its answer goes out.
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
    // An OCALL, as the image makes it: a function of the System V convention.
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
    // Its answer, where one is waited for.
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
    // A fault was inside, whose registers are in the first frame. Tells of it.
    "5:",
    "sub rbx, qword ptr fs:[{thread_control}]",
    "mov rdx, qword ptr fs:[{saved}]",
    "add rdx, rbx",
    "mov rdi, [rdx + {rip}]",
    "mov rsi, [rdx + {rax}]",
    "xor r9d, r9d",
    // The processor refuses system calls here. Its own word, not the host's, says that these bytes are there.
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
    thread_control = const offset_of!(Block, thread_control),
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
