//! The code of the guest: entry and exit in ring 3, and exception handlers in ring 0.
//!
//! Ring 3 exits by `out` to a port that the TSS permits, so an ECALL is one guest entry and one exit, without ring 0.
//! It finds the call's words in its mailbox.

use std::arch::global_asm;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering};

use enclave_interface::ThreadBlock;

use crate::conf::PAGE;

/// A call has ended: its result is in the mailbox.
pub(super) const ENDED: u16 = 0;
/// The enclave makes an OCALL: number and words are in the mailbox, to which the host writes the result.
pub(super) const OCALL: u16 = 1;
/// An exception (see [`super::kernel::Frame`]), raised only by ring 0.
pub(super) const FAULT: u16 = 2;

/// Offset of the mailboxes from the code, in bytes.
pub(super) const MAILBOXES: usize = 3 * PAGE;

/// The mailbox of one TCS: the words and results of its calls. Both sides use the same address.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct Mailbox {
    words: [AtomicU64; 6],
    /// The high end of the stack.
    pub(super) stack: AtomicU64,
    /// The entry point.
    pub(super) entry: AtomicU64,
}

impl Mailbox {
    pub(super) fn word(&self, number: usize) -> u64 {
        self.words[number].load(Ordering::Relaxed)
    }

    pub(super) fn put(&self, words: [u64; 6]) {
        for (to, word) in self.words.iter().zip(words) {
            to.store(word, Ordering::Relaxed);
        }
    }

    /// Stores the result of an OCALL.
    pub(super) fn answer(&self, word: u64) {
        self.words[0].store(word, Ordering::Relaxed);
    }
}

/// Length of an exception's stub.
pub(super) const STUB: usize = 16;

global_asm!(
    ".pushsection .rodata.tollgate_enclave_kvm, \"a\", @progbits",
    ".balign 4096",
    "tollgate_kvm_code:",
    // RBX is the mailbox. The calling convention preserves it; an image that violates it faults.
    "tollgate_kvm_enter:",
    "mov rsp, [rbx + {stack}]",
    "mov rdi, [rbx]",
    "mov rsi, [rbx + 8]",
    "mov rdx, [rbx + 16]",
    "mov rcx, [rbx + 24]",
    "mov r8, [rbx + 32]",
    "mov r9, [rbx + 40]",
    "call qword ptr [rbx + {entry}]",
    "mov [rbx], rax",
    "out {ENDED}, al",
    "jmp tollgate_kvm_enter",
    ".balign 64",
    "tollgate_kvm_ocall:",
    "mov rax, qword ptr fs:[{number}]",
    "shl rax, {mailbox_shift}",
    "lea r10, [rip + tollgate_kvm_code + {MAILBOXES}]",
    "add r10, rax",
    "mov [r10], rdi",
    "mov [r10 + 8], rsi",
    "mov [r10 + 16], rdx",
    "mov [r10 + 24], rcx",
    "mov [r10 + 32], r8",
    "mov [r10 + 40], r9",
    "out {OCALL}, al",
    "mov rax, [r10]",
    "ret",
    // Returns the minimum time of two consecutive rdtsc in R8, and CS in R9, for ring 3 and ring 0.
    ".balign 64",
    "tollgate_kvm_floor:",
    "mov r8, -1",
    "mov r10d, 200",
    "2:",
    "lfence",
    "rdtsc",
    "lfence",
    "mov esi, eax",
    "lfence",
    "rdtsc",
    "lfence",
    "sub eax, esi",
    "cmp rax, r8",
    "cmovb r8, rax",
    "dec r10d",
    "jnz 2b",
    "mov r9d, cs",
    "out {ENDED}, al",
    "ud2",
    ".balign 4096",
    // Ring 0.
    "tollgate_kvm_stubs:",
    ".set vector, 0",
    ".rept 32",
    ".balign 16",
    ".if vector == 8 || (vector >= 10 && vector <= 14) || vector == 17 || vector == 21 || vector == 29 || vector == 30",
    ".else",
    "push 0",
    ".endif",
    "push vector",
    "jmp tollgate_kvm_fault",
    ".set vector, vector + 1",
    ".endr",
    ".balign 16",
    "tollgate_kvm_fault:",
    "push rax",
    "mov rax, cr2",
    "push rax",
    "out {FAULT}, al",
    "hlt",
    ".balign 4096",
    "tollgate_kvm_end:",
    ".globl tollgate_kvm_code",
    ".hidden tollgate_kvm_code",
    ".globl tollgate_kvm_parts",
    ".hidden tollgate_kvm_parts",
    ".balign 4",
    "tollgate_kvm_parts:",
    ".long tollgate_kvm_enter - tollgate_kvm_code",
    ".long tollgate_kvm_ocall - tollgate_kvm_code",
    ".long tollgate_kvm_floor - tollgate_kvm_code",
    ".long tollgate_kvm_stubs - tollgate_kvm_code",
    ".long tollgate_kvm_end - tollgate_kvm_code",
    ".popsection",
    stack = const offset_of!(Mailbox, stack),
    entry = const offset_of!(Mailbox, entry),
    number = const offset_of!(ThreadBlock, number),
    mailbox_shift = const size_of::<Mailbox>().ilog2(),
    MAILBOXES = const MAILBOXES,
    ENDED = const ENDED,
    OCALL = const OCALL,
    FAULT = const FAULT,
);

unsafe extern "C" {
    static tollgate_kvm_code: u8;
    static tollgate_kvm_parts: [u32; 5];
}

/// The code and the offsets of its parts, bytes. Its first page is for ring 3, its second for ring 0.
pub(super) struct Code {
    /// The whole code: two pages.
    pub(super) bytes: &'static [u8],
    /// The start of calls.
    pub(super) enter: usize,
    /// The target of the image's OCALLs.
    pub(super) ocall: usize,
    /// The routine that shows which ring it runs in.
    pub(super) floor: usize,
    /// The stubs of exceptions 0 to 31.
    pub(super) stubs: usize,
}

/// Returns the assembled code.
pub(super) fn code() -> Code {
    // SAFETY: the assembler emits the table, and as many bytes of code as its last number states; both are read-only
    // data of this program.
    unsafe {
        let [enter, ocall, floor, stubs, end] = tollgate_kvm_parts.map(|part| part as usize);
        let bytes = std::slice::from_raw_parts(&raw const tollgate_kvm_code, end);
        Code { bytes, enter, ocall, floor, stubs }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_0_has_a_separate_page() {
        let code = code();
        assert_eq!((code.bytes.len(), code.stubs), (2 * PAGE, PAGE));
        assert!(code.enter < PAGE && code.ocall < PAGE && code.floor < PAGE);
    }

    /// Each stub pushes its own vector, from which the cause of a fault is derived.
    #[test]
    fn each_stub_pushes_its_vector() {
        let code = code();
        for vector in 0..32u8 {
            let stub = &code.bytes[code.stubs + usize::from(vector) * STUB..][..STUB];
            let has_code = [8, 10, 11, 12, 13, 14, 17, 21, 29, 30].contains(&vector);
            let expected: &[u8] = if has_code { &[0x6a, vector] } else { &[0x6a, 0, 0x6a, vector] };
            assert!(stub.starts_with(expected), "{vector}: {stub:x?}");
        }
    }
}
