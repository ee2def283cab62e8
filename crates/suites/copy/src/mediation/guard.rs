//! Limits of a host process: accesses to memory that survive a fault, and a list of system calls.
//!
//! The instruction that accesses memory has a label. If it faults, the signal handler continues the
//! thread at the label for stopped accesses, as the kernel does for its accesses to user memory.
//!
//! The access mode of the descriptors that a host receives determines what it may map. A host could
//! bypass that by reopening a descriptor through `/proc`, or by accessing the other processes (ptrace,
//! process_vm_writev, pidfd_getfd): the list contains no such call.

use std::arch::global_asm;
use std::io;

use lab::sample::Failure;
use libc::{SIGBUS, SIGSEGV, c_int, c_long, c_ulong, c_void, siginfo_t, sock_fprog};
use machine::signal::{self, Registers, ScopedHandler};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

global_asm!(
    ".globl tollgate_mediation_load, tollgate_mediation_load_at",
    ".globl tollgate_mediation_store, tollgate_mediation_store_at, tollgate_mediation_stopped",
    ".type tollgate_mediation_load, @function",
    "tollgate_mediation_load:",
    "xor eax, eax",
    "tollgate_mediation_load_at:",
    "mov rcx, [rdi]",
    "mov [rsi], rcx",
    "ret",
    ".type tollgate_mediation_store, @function",
    "tollgate_mediation_store:",
    "xor eax, eax",
    "tollgate_mediation_store_at:",
    "mov [rdi], rsi",
    "ret",
    ".type tollgate_mediation_stopped, @function",
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

/// Exit status of a process that faults outside a guarded access.
pub(super) const FAULTED: i32 = 9;

/// Installs a handler that turns faults of guarded accesses into stopped ones, for the whole process:
/// only for a forked host.
///
/// # Errors
/// Returns the error of sigaction(2).
pub(super) fn guard() -> io::Result<()> {
    for signal in [SIGSEGV, SIGBUS] {
        // SAFETY: the handler is async-signal-safe, and guarded accesses expect its change.
        unsafe { signal::install(signal, faulted, 0) }?;
    }
    Ok(())
}

/// Turns bus errors of guarded accesses into stopped ones until it is dropped: those of memory that is mapped but does
/// not answer.
pub(crate) struct Guard {
    _handler: ScopedHandler,
}

impl Guard {
    /// Installs the handler, which ends the process on any other bus error.
    ///
    /// # Errors
    /// Returns the error of sigaction(2).
    pub(crate) fn install() -> io::Result<Self> {
        // SAFETY: as in `guard`.
        Ok(Self { _handler: unsafe { ScopedHandler::install(SIGBUS, faulted, 0) }? })
    }
}

extern "C" fn faulted(_: c_int, _: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the argument is that of this running handler.
    let instruction = unsafe { &mut Registers::of(context)[libc::REG_RIP] };
    let guarded =
        [tollgate_mediation_load_at as *const (), tollgate_mediation_store_at as *const ()];
    if guarded.iter().any(|guarded| *instruction == *guarded as i64) {
        *instruction = tollgate_mediation_stopped as *const () as i64;
    } else {
        // SAFETY: `_exit` ends the process at once.
        unsafe { libc::_exit(FAULTED) }
    }
}

/// Loads a word; `None` if the load was stopped. Requires [`guard`] or [`Guard`].
pub(crate) fn load(address: *const u64) -> Option<u64> {
    let mut value = 0;
    // SAFETY: a load has no effect, and the handler skips it if it faults.
    let stopped = unsafe { tollgate_mediation_load(address, &mut value) };
    (stopped == 0).then_some(value)
}

/// Stores a word; returns whether the store succeeded. Requires [`guard`] or [`Guard`].
///
/// # Safety
/// If the address is writable, it must be in memory meant for this store.
pub(crate) unsafe fn store(address: *mut u64, value: u64) -> bool {
    // SAFETY: the caller guarantees the address; the handler skips the store if it faults.
    unsafe { tollgate_mediation_store(address, value) == 0 }
}

/// The calls that a host needs: to use its socket, map what it receives, and exit. `mprotect` is
/// allowed, because the kernel limits it to the access mode of the mapped descriptor.
const ALLOWED: [c_long; 8] = [
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_close,
    libc::SYS_rt_sigreturn,
    libc::SYS_exit_group,
];

/// Compiles the list to a filter: any other call fails with EPERM, and a call of another architecture ends the process.
///
/// # Errors
/// Returns an error if the filter cannot be compiled.
pub(super) fn filter() -> Result<BpfProgram, Failure> {
    SeccompFilter::new(
        ALLOWED.map(|call| (call, Vec::new())).into_iter().collect(),
        SeccompAction::Errno(libc::EPERM as u32),
        SeccompAction::Allow,
        TargetArch::x86_64,
    )
    .and_then(BpfProgram::try_from)
    .map_err(|why| Failure::failed(format!("cannot compile the seccomp filter: {why}")))
}

/// Restricts this process to a filter. Allocates no memory.
///
/// # Errors
/// Returns the error of prctl(2) or seccomp(2), e.g. if the kernel lacks seccomp.
pub(super) fn confine(filter: &[seccompiler::sock_filter]) -> io::Result<()> {
    // `seccompiler` declares its own copy of the kernel's structure.
    let program =
        sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut().cast() };
    // Without this flag the kernel may slow speculation down, which would change the copies' times.
    let flags = libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    // SAFETY: both calls take integers and one program, which outlives the call.
    let code = unsafe {
        let none: c_ulong = 0;
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1 as c_ulong, none, none, none) != 0 {
            return Err(io::Error::last_os_error());
        }
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &program)
    };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
