//! A load or store that may be stopped, and lives on.
//!
//! The instruction that touches memory has a label; where it faults, the signal's handler sends the
//! thread on to the place that says "stopped" (as the kernel does for its own accesses to user memory).

use std::arch::global_asm;
use std::io;

use libc::{REG_RIP, SA_SIGINFO, SIGBUS, SIGSEGV, c_int, c_void, siginfo_t, ucontext_t};

global_asm!(
    ".globl tollgate_mediation_load, tollgate_mediation_load_at",
    ".globl tollgate_mediation_store, tollgate_mediation_store_at, tollgate_mediation_stopped",
    "tollgate_mediation_load:",
    "xor eax, eax",
    "tollgate_mediation_load_at:",
    "mov rcx, [rdi]",
    "mov [rsi], rcx",
    "ret",
    "tollgate_mediation_store:",
    "xor eax, eax",
    "tollgate_mediation_store_at:",
    "mov [rdi], rsi",
    "ret",
    "tollgate_mediation_stopped:",
    "mov eax, 1",
    "ret",
);

unsafe extern "C" {
    fn tollgate_mediation_load(address: *const u64, value: *mut u64) -> u32;
    fn tollgate_mediation_load_at();
    fn tollgate_mediation_store(address: *mut u64, value: u64) -> u32;
    fn tollgate_mediation_store_at();
    fn tollgate_mediation_stopped();
}

/// What a process exits with that faults elsewhere than in a guarded access.
pub(super) const FAULTED: i32 = 9;

/// Has faults of guarded accesses mean "stopped", in this whole process: for a forked host alone.
///
/// # Errors
/// The kernel's.
pub(super) fn guard() -> io::Result<()> {
    for signal in [SIGSEGV, SIGBUS] {
        // SAFETY: an all-zero sigaction is valid; the handler only does what is async-signal-safe.
        let code = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction =
                faulted as extern "C" fn(c_int, *mut siginfo_t, *mut c_void) as usize;
            action.sa_flags = SA_SIGINFO;
            libc::sigaction(signal, &action, std::ptr::null_mut())
        };
        if code != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

extern "C" fn faulted(_: c_int, _: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a ucontext to a handler with SA_SIGINFO.
    let context = unsafe { &mut *context.cast::<ucontext_t>() };
    let instruction = &mut context.uc_mcontext.gregs[REG_RIP as usize];
    let guarded =
        [tollgate_mediation_load_at as *const (), tollgate_mediation_store_at as *const ()];
    if guarded.iter().any(|guarded| *instruction == *guarded as i64) {
        *instruction = tollgate_mediation_stopped as *const () as i64;
    } else {
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(FAULTED) }
    }
}

/// Loads a word; none where the load was stopped. Call only after [`guard`].
pub(super) fn load(address: *const u64) -> Option<u64> {
    let mut value = 0;
    // SAFETY: a load from anywhere has no effect, and where it faults the handler goes on.
    let stopped = unsafe { tollgate_mediation_load(address, &mut value) };
    (stopped == 0).then_some(value)
}

/// Stores a word; whether it came through. Call only after [`guard`].
///
/// # Safety
/// Where the address can be written, it must be in memory meant for this.
pub(super) unsafe fn store(address: *mut u64, value: u64) -> bool {
    // SAFETY: the caller's word; where it faults the handler goes on.
    unsafe { tollgate_mediation_store(address, value) == 0 }
}
