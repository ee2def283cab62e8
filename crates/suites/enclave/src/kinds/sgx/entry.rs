//! The host's entry into an enclave through the kernel's vDSO function.
//!
//! Source: Linux, `asm/sgx.h`. That function passes on all registers but RAX, RBX and RCX. The ENCLU function that it
//! writes shows how the enclave was left; its return value after a fault differs between kernels.

use std::arch::global_asm;
use std::mem::offset_of;

use super::code::{enclu, entering, leaving};

/// The address of the kernel's function, which is only called from assembly.
pub(super) type Vdso = usize;

/// The argument and result of the function: `sgx_enclave_run`.
#[derive(Debug)]
#[repr(C)]
struct Run {
    tcs_page: u64,
    function: u32,
    vector: u16,
    error: u16,
    address: u64,
    handler: u64,
    data: u64,
    reserved: [u64; 27],
}

const _: () = assert!(size_of::<Run>() == 256 && offset_of!(Run, address) == 16);

/// The registers that carry words in and out, and the details of a fault.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
struct Words {
    rdi: u64,
    rsi: u64,
    rdx: u64,
    r10: u64,
    r8: u64,
    r9: u64,
    /// The purpose of the entry; after the exit, its reason.
    r11: u64,
    fault: Fault,
}

/// A fault inside.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Fault {
    /// From the least significant byte: the ENCLU function (4 bytes), the vector (2), the error code (2).
    exception: u64,
    /// The accessed address; for an address inside the enclave, only its page.
    pub(super) address: u64,
    /// The address of the instruction.
    pub(super) at: u64,
    /// RAX at the fault.
    pub(super) rax: u64,
    system_call: u64,
}

impl Fault {
    /// Returns the exception's vector.
    pub(super) fn vector(&self) -> u16 {
        (self.exception >> 32) as u16
    }

    /// Returns whether the instruction is a system call, which the CPU refuses inside.
    pub(super) fn is_system_call(&self) -> bool {
        self.system_call == 1
    }

    /// Returns the signal that a program would get for the same fault.
    pub(super) fn signal(&self) -> i32 {
        // Source: Linux, arch/x86/kernel/traps.c.
        match self.vector() {
            0 | 16 | 19 => libc::SIGFPE,
            1 | 3 => libc::SIGTRAP,
            6 => libc::SIGILL,
            17 => libc::SIGBUS,
            _ => libc::SIGSEGV,
        }
    }
}

/// The reason for an exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExitReason {
    /// The call has ended with this result.
    Done(u64),
    /// The enclave makes this OCALL, with words.
    Ocall(u64, [u64; 5]),
    /// The call was cut short. This TCS cannot enter the enclave any more.
    Cut(Fault),
    /// The CPU refused to enter by this TCS.
    Refused(Fault),
}

/// One call of a thread by a TCS.
#[derive(Debug)]
pub(super) struct Entry {
    vdso: Vdso,
    run: Run,
}

impl Entry {
    /// Creates a call by the TCS at this page.
    pub(super) fn new(vdso: Vdso, tcs_page: usize) -> Self {
        let (function, vector, error, address) = (0, 0, 0, 0);
        let tcs_page = tcs_page as u64;
        let [handler, data] = [0; 2];
        let reserved = [0; 27];
        Self {
            vdso,
            run: Run { tcs_page, function, vector, error, address, handler, data, reserved },
        }
    }

    /// Makes a call.
    ///
    /// # Safety
    /// The TCS must belong to an initialised enclave with the code of [`super::code`], and no thread may be inside by
    /// it.
    pub(super) unsafe fn call(&mut self, number: u64, words: [u64; 5]) -> ExitReason {
        let [rsi, rdx, r10, r8, r9] = words;
        let r11 = entering::CALL;
        // SAFETY: the caller guarantees that the TCS is valid.
        unsafe { self.enter(Words { rdi: number, rsi, rdx, r10, r8, r9, r11, ..Words::default() }) }
    }

    /// Returns the result of an OCALL to the enclave.
    ///
    /// # Safety
    /// As [`Self::call`]; the last exit must be an OCALL.
    pub(super) unsafe fn answer(&mut self, answer: u64) -> ExitReason {
        let words = Words { rdi: answer, r11: entering::ANSWER, ..Words::default() };
        // SAFETY: the caller guarantees that the TCS is valid.
        unsafe { self.enter(words) }
    }

    unsafe fn enter(&mut self, mut words: Words) -> ExitReason {
        // SAFETY: the caller guarantees that the TCS is valid; both structures have the layout that the assembly
        // expects.
        unsafe { tollgate_sgx_enter(&raw mut words, &raw mut self.run, self.vdso) };
        match words.r11 {
            leaving::DONE => ExitReason::Done(words.rdi),
            leaving::OCALL => {
                ExitReason::Ocall(words.rdi, [words.rsi, words.rdx, words.r10, words.r8, words.r9])
            }
            leaving::CUT => ExitReason::Cut(words.fault),
            _ => ExitReason::Refused(words.fault),
        }
    }
}

unsafe extern "sysv64" {
    fn tollgate_sgx_enter(words: *mut Words, run: *mut Run, vdso: Vdso);
}

// A fault leaves the TCS with one frame of saved state in use. The TCS is entered again with the second frame, and
// code inside reports from the first frame what happened. If this entry fails too, the report is incomplete.
global_asm!(
    ".macro tollgate_sgx_enclu function",
    "mov rbx, [rsp]",
    "mov dword ptr [rbx + {function}], 0",
    "mov ecx, \\function",
    "call qword ptr [rsp + 16]",
    "cld",
    "mov rbx, [rsp]",
    "mov rcx, [rsp + 8]",
    ".endm",
    ".pushsection .text.tollgate_enclave,\"ax\",@progbits",
    ".globl tollgate_sgx_enter",
    ".p2align 6",
    ".type tollgate_sgx_enter, @function",
    "tollgate_sgx_enter:",
    "push rbp",
    "push rbx",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    // The function, the words, and the function's seventh argument; the stack stays aligned.
    "push rdx",
    "push rdi",
    "push rsi",
    "mov rax, rdi",
    "mov rdi, [rax + {rdi}]",
    "mov rsi, [rax + {rsi}]",
    "mov rdx, [rax + {rdx}]",
    "mov r10, [rax + {r10}]",
    "mov r8, [rax + {r8}]",
    "mov r9, [rax + {r9}]",
    "mov r11, [rax + {r11}]",
    "tollgate_sgx_enclu {enter}",
    "mov [rcx + {rdi}], rdi",
    "mov [rcx + {rsi}], rsi",
    "mov [rcx + {rdx}], rdx",
    "mov [rcx + {r10}], r10",
    "mov [rcx + {r8}], r8",
    "mov [rcx + {r9}], r9",
    "cmp dword ptr [rbx + {function}], {exit}",
    "je 4f",
    "mov rax, [rbx + {function}]",
    "mov [rcx + {exception}], rax",
    "mov rax, [rbx + {run_address}]",
    "mov [rcx + {address}], rax",
    // If the code inside the enclave faulted, the next function would be ERESUME; otherwise ENCLU itself faulted.
    "cmp dword ptr [rbx + {function}], {resume}",
    "jne 2f",
    "tollgate_sgx_enclu {enter}",
    "cmp dword ptr [rbx + {function}], {exit}",
    "jne 3f",
    "mov [rcx + {at}], rdi",
    "mov [rcx + {rax}], rsi",
    "mov [rcx + {system_call}], r9",
    "3:",
    "mov r11d, {cut}",
    "jmp 4f",
    "2: mov r11d, {refused}",
    "4:",
    "mov [rcx + {r11}], r11",
    "add rsp, 24",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbx",
    "pop rbp",
    "ret",
    ".popsection",
    enter = const enclu::ENTER,
    resume = const enclu::RESUME,
    exit = const enclu::EXIT,
    refused = const leaving::REFUSED,
    cut = const leaving::CUT,
    function = const offset_of!(Run, function),
    run_address = const offset_of!(Run, address),
    rdi = const offset_of!(Words, rdi),
    rsi = const offset_of!(Words, rsi),
    rdx = const offset_of!(Words, rdx),
    r10 = const offset_of!(Words, r10),
    r8 = const offset_of!(Words, r8),
    r9 = const offset_of!(Words, r9),
    r11 = const offset_of!(Words, r11),
    exception = const offset_of!(Words, fault) + offset_of!(Fault, exception),
    address = const offset_of!(Words, fault) + offset_of!(Fault, address),
    at = const offset_of!(Words, fault) + offset_of!(Fault, at),
    rax = const offset_of!(Words, fault) + offset_of!(Fault, rax),
    system_call = const offset_of!(Words, fault) + offset_of!(Fault, system_call),
);
