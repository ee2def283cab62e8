//! Emulation of ENCLU, of faults inside, and of the vDSO function.

use std::arch::{asm, global_asm};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::sync::Once;
use std::sync::atomic::Ordering::SeqCst;

use machine::signal::{self, Registers};

use super::super::code::enclu;
use super::super::structures::{GprSgx, INVALID_OPCODE, SgxTcs};
use super::{SLOTS, Slot};
use crate::conf::PAGE;
use crate::system_calls::raw;

/// Vectors of exceptions.
const INVALID: u64 = 6;
const PROTECTION: u64 = 13;
const PAGE_FAULT: u64 = 14;

/// Returns the emulated entry function. Source of its contract: Linux, `asm/sgx.h`.
pub(in super::super) fn vdso() -> usize {
    tollgate_sgx_emulated as *const () as usize
}

unsafe extern "sysv64" {
    fn tollgate_sgx_emulated();
    fn tollgate_sgx_emulated_enclu();
    fn tollgate_sgx_emulated_fault();
}

global_asm!(
    ".pushsection .text.tollgate_sgx_emulated,\"ax\",@progbits",
    ".globl tollgate_sgx_emulated",
    ".globl tollgate_sgx_emulated_enclu",
    ".globl tollgate_sgx_emulated_fault",
    "tollgate_sgx_emulated:",
    "push rbp",
    "mov rbp, rsp",
    "push rbx",
    "mov eax, ecx",
    "mov rbx, [rbp + 16]",
    "mov rbx, [rbx]",
    "lea rcx, [rip + tollgate_sgx_emulated_enclu]",
    "tollgate_sgx_emulated_enclu:",
    "enclu",
    "mov rbx, [rbp + 16]",
    "mov dword ptr [rbx + 8], 4",
    "2:",
    "xor eax, eax",
    "pop rbx",
    "leave",
    "ret",
    "tollgate_sgx_emulated_fault:",
    "mov rbx, [rbp + 16]",
    "mov [rbx + 8], eax",
    "mov [rbx + 12], di",
    "mov [rbx + 14], si",
    "mov [rbx + 16], rdx",
    "jmp 2b",
    ".popsection",
);

thread_local! {
    /// The byte that blocks the thread's system calls while it is 1.
    static SELECTOR: Cell<u64> = const { Cell::new(0) };
}

/// Makes system calls from inside fail on this thread, as the CPU does. For threads that live as long as their
/// process.
pub(in super::super) fn refuse_system_calls() {
    install();
    let selector = Box::leak(Box::new(0u8)) as *mut u8 as u64;
    // The return from a handler is a system call that must be allowed.
    let restorer = signal::action(libc::SIGSYS).unwrap().sa_restorer.unwrap();
    let words = [59, 1, restorer as *const () as u64, 16, selector, 0];
    // SAFETY: the byte lives forever, and is 0 outside.
    assert_eq!(unsafe { raw(libc::SYS_prctl, words) }, 0);
    SELECTOR.set(selector);
}

/// Installs the handler for all faults of the process.
pub(super) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for signal in [libc::SIGSEGV, libc::SIGILL, libc::SIGFPE, libc::SIGBUS, libc::SIGSYS] {
            // SAFETY: `handle` is async-signal-safe, and changes only what the processor would.
            unsafe { signal::install(signal, handle, libc::SA_ONSTACK) }.unwrap();
        }
    });
}

/// The signal handler. While FS is the enclave's, it must not touch thread-local variables.
unsafe extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes valid pointers. If FS is that of a slot, the thread is inside by that slot.
    unsafe {
        let registers = Registers::of(context);
        let at = registers[libc::REG_RIP] as u64;
        let address = (*info).si_addr() as u64;
        let fs: u64;
        asm!("rdfsbase {}", out(reg) fs, options(nomem, nostack, preserves_flags));
        let slot = SLOTS.iter().find(|slot| fs != 0 && slot.fs.load(SeqCst) == fs);
        // Does not read an instruction that could not be fetched.
        let fetched = signal == libc::SIGILL || address != at;
        let enclu =
            fetched && signal != libc::SIGSYS && (at as *const [u8; 3]).read() == [0x0f, 1, 0xd7];
        let function = registers[libc::REG_RAX] as u32;
        match slot {
            Some(slot) if enclu && function == enclu::EXIT => leave(slot, registers),
            Some(slot) => fault(slot, signal, address, registers),
            None if at == tollgate_sgx_emulated_enclu as *const () as u64 => {
                enter(function, fs, registers);
            }
            None => signal::end_process(signal),
        }
    }
}

/// The registers in the order of [`GprSgx`].
const ORDER: [c_int; 18] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
    libc::REG_EFL,
    libc::REG_RIP,
];

impl Slot {
    /// Returns the TCS's current frame index and its number of frames.
    unsafe fn frames(&self) -> (*mut u32, u32) {
        let page = self.tcs_page.load(SeqCst);
        // SAFETY: the page is mapped as long as it has a slot.
        unsafe { ((page + 24) as *mut u32, ((page + 28) as *const u32).read()) }
    }

    /// Returns the saved registers of a frame.
    unsafe fn saved(&self, frame: u32) -> *mut GprSgx {
        let page = self.tcs_page.load(SeqCst) as *const SgxTcs;
        // SAFETY: the page is mapped as long as it has a slot.
        let first = self.base.load(SeqCst) + unsafe { (*page).frames };
        let end = first + u64::from(frame + 1) * self.frame.load(SeqCst);
        (end - size_of::<GprSgx>() as u64) as *mut GprSgx
    }

    /// Marks the thread as inside or outside, with the matching FS.
    unsafe fn set(&self, inside: bool, fs: u64) {
        let selector = self.selector.load(SeqCst) as *mut u8;
        // SAFETY: the selector belongs to this thread, and FS is one of its two valid values.
        unsafe {
            if !selector.is_null() {
                selector.write_volatile(u8::from(inside));
            }
            asm!("wrfsbase {}", in(reg) fs, options(nostack, preserves_flags));
        }
    }
}

/// Emulates EENTER and ERESUME.
unsafe fn enter(function: u32, fs: u64, registers: &mut Registers) {
    let page = registers[libc::REG_RBX] as u64;
    let slot = SLOTS.iter().find(|slot| slot.tcs_page.load(SeqCst) == page);
    // SAFETY: the thread is at the ENCLU of the function above, with a TCS in RBX.
    unsafe {
        let Some(slot) = slot else { return refuse(registers) };
        let (current, count) = slot.frames();
        let frame = match function {
            enclu::ENTER => current.read(),
            _ => current.read().wrapping_sub(1),
        };
        if frame >= count {
            return refuse(registers);
        }
        let saved = slot.saved(frame);
        (*saved).outer_rsp = registers[libc::REG_RSP] as u64;
        (*saved).outer_rbp = registers[libc::REG_RBP] as u64;
        slot.host_fs.store(fs, SeqCst);
        slot.selector.store(SELECTOR.get(), SeqCst);
        if function == enclu::ENTER {
            let entry = (*(page as *const SgxTcs)).entry;
            registers[libc::REG_RAX] = i64::from(frame);
            registers[libc::REG_RCX] = registers[libc::REG_RIP] + 3;
            registers[libc::REG_RIP] = (slot.base.load(SeqCst) + entry) as i64;
        } else {
            let from = saved.cast::<i64>();
            for (number, register) in ORDER.into_iter().enumerate() {
                registers[register] = from.add(number).read();
            }
            current.write(frame);
        }
        slot.set(true, slot.fs.load(SeqCst));
    }
}

/// Emulates a fault of ENCLU itself.
fn refuse(registers: &mut Registers) {
    report_fault(registers, PROTECTION, 0, 0);
}

/// Emulates the kernel's fixup of a fault at the vDSO's ENCLU.
fn report_fault(registers: &mut Registers, vector: u64, error: i64, address: u64) {
    registers[libc::REG_RIP] = tollgate_sgx_emulated_fault as *const () as i64;
    registers[libc::REG_RDI] = vector as i64;
    registers[libc::REG_RSI] = error;
    registers[libc::REG_RDX] = address as i64;
}

/// Emulates EEXIT.
unsafe fn leave(slot: &Slot, registers: &mut Registers) {
    registers[libc::REG_RIP] = registers[libc::REG_RBX];
    // SAFETY: it restores the host's FS.
    unsafe { slot.set(false, slot.host_fs.load(SeqCst)) };
}

/// Emulates an asynchronous exit: the CPU saves the registers, hides them, and exits.
unsafe fn fault(slot: &Slot, signal: c_int, address: u64, registers: &mut Registers) {
    // SAFETY: the thread is inside by this slot.
    unsafe {
        let system_call = signal == libc::SIGSYS;
        if system_call {
            registers[libc::REG_RIP] -= 2;
        }
        let vector = if system_call { INVALID } else { registers[libc::REG_TRAPNO] as u64 };
        let error = if system_call { 0 } else { registers[libc::REG_ERR] };
        let (current, _) = slot.frames();
        let saved = slot.saved(current.read());
        let to = saved.cast::<i64>();
        for (number, register) in ORDER.into_iter().enumerate() {
            to.add(number).write(registers[register]);
            registers[register] = 0;
        }
        // SGX reports page faults and general protection faults there only if the enclave requests it.
        let reported = ![PROTECTION, PAGE_FAULT].contains(&vector);
        (*saved).exit = if reported { INVALID_OPCODE & !0xff | vector as u32 } else { 0 };
        current.write(current.read() + 1);
        let inside = (slot.base.load(SeqCst)..).contains(&address)
            && address < slot.base.load(SeqCst) + slot.length.load(SeqCst);
        let address = match vector {
            PAGE_FAULT if inside => address & !(PAGE as u64 - 1),
            PAGE_FAULT => address,
            _ => 0,
        };
        registers[libc::REG_RSP] = (*saved).outer_rsp as i64;
        registers[libc::REG_RBP] = (*saved).outer_rbp as i64;
        registers[libc::REG_RAX] = i64::from(enclu::RESUME);
        registers[libc::REG_RBX] = slot.tcs_page.load(SeqCst) as i64;
        registers[libc::REG_RCX] = tollgate_sgx_emulated_enclu as *const () as i64;
        registers[libc::REG_EFL] = 0x202;
        report_fault(registers, vector, error, address);
        slot.set(false, slot.host_fs.load(SeqCst));
    }
}

const _: () = assert!(offset_of!(GprSgx, rip) == 17 * 8 && offset_of!(GprSgx, flags) == 16 * 8);
