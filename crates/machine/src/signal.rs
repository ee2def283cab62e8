//! Signals: handlers, registers of the interrupted thread, and names.

use std::borrow::Cow;
use std::ffi::{c_int, c_void};
use std::io;
use std::mem::zeroed;
use std::ops::{Index, IndexMut};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A handler with the signature of `SA_SIGINFO`.
pub type Handler = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// Installs a handler with `SA_SIGINFO` and additional flags; returns the previous action.
///
/// # Errors
/// Returns the `errno` of `sigaction(2)`.
///
/// # Safety
/// The handler must be async-signal-safe, and the interrupted code must tolerate its changes of registers and memory.
pub unsafe fn install(
    signal: c_int,
    handler: Handler,
    flags: c_int,
) -> io::Result<libc::sigaction> {
    // SAFETY: an all-zero sigaction is valid and has an empty mask.
    let mut action: libc::sigaction = unsafe { zeroed() };
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_SIGINFO | flags;
    // SAFETY: the caller guarantees that the handler may run.
    unsafe { exchange(signal, &action) }
}

/// Returns the current action of a signal.
///
/// # Errors
/// Returns the `errno` of `sigaction(2)`.
pub fn action(signal: c_int) -> io::Result<libc::sigaction> {
    // SAFETY: no action is set.
    unsafe { exchange(signal, ptr::null()) }
}

/// Sets an action unless it is null; returns the previous one.
unsafe fn exchange(signal: c_int, action: *const libc::sigaction) -> io::Result<libc::sigaction> {
    // SAFETY: an all-zero sigaction is valid. The caller guarantees that the new one may be set.
    unsafe {
        let mut previous = zeroed();
        match libc::sigaction(signal, action, &raw mut previous) {
            0 => Ok(previous),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// A handler that is removed when this is dropped. A process has at most one.
pub struct ScopedHandler {
    signal: c_int,
    previous: libc::sigaction,
    _lock: MutexGuard<'static, ()>,
}

impl ScopedHandler {
    /// Installs a handler as [`install`] does. Waits until another one is dropped.
    ///
    /// # Errors
    /// Returns the `errno` of `sigaction(2)`.
    ///
    /// # Safety
    /// As [`install`].
    pub unsafe fn install(signal: c_int, handler: Handler, flags: c_int) -> io::Result<Self> {
        static LOCK: Mutex<()> = Mutex::new(());
        let lock = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the caller guarantees the conditions.
        let previous = unsafe { install(signal, handler, flags) }?;
        Ok(Self { signal, previous, _lock: lock })
    }
}

impl Drop for ScopedHandler {
    fn drop(&mut self) {
        // SAFETY: the action was set before. The kernel accepted it then, so the call cannot fail.
        let _ = unsafe { exchange(self.signal, &self.previous) };
    }
}

/// Ends the process by the default action of a signal that a handler does not expect. Async-signal-safe.
#[cold]
pub fn end_process(signal: c_int) {
    let _ = signal_hook::low_level::emulate_default_handler(signal);
}

/// General registers of an interrupted thread, indexed by `libc::REG_RIP` etc. The thread continues with them.
#[derive(Debug)]
#[repr(transparent)]
pub struct Registers([libc::greg_t; 23]);

impl Registers {
    /// Returns the registers in a handler's third argument.
    ///
    /// # Safety
    /// The handler must be running, and have no other reference to the registers.
    #[inline]
    pub unsafe fn of<'a>(context: *mut c_void) -> &'a mut Self {
        // SAFETY: the kernel passes a valid ucontext, and the caller guarantees that the reference is unique.
        unsafe { &mut *(&raw mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs).cast() }
    }
}

impl Index<c_int> for Registers {
    type Output = libc::greg_t;

    #[inline]
    fn index(&self, register: c_int) -> &Self::Output {
        &self.0[register as usize]
    }
}

impl IndexMut<c_int> for Registers {
    #[inline]
    fn index_mut(&mut self, register: c_int) -> &mut Self::Output {
        &mut self.0[register as usize]
    }
}

/// Returns the name of a signal, e.g. `SIGSEGV`, or its number as `signal 40`.
pub fn name(signal: c_int) -> Cow<'static, str> {
    let name = signal_hook::low_level::signal_name(signal);
    name.map_or_else(|| format!("signal {signal}").into(), Into::into)
}

#[cfg(test)]
mod tests {
    use std::arch::asm;
    use std::os::unix::process::ExitStatusExt;
    use std::time::Duration;

    use super::*;

    /// Skips `ud2`, whose address is in r14, to the address in r15.
    extern "C" fn skip(signal: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
        // SAFETY: the argument is that of this running handler.
        let registers = unsafe { Registers::of(context) };
        if registers[libc::REG_RIP] == registers[libc::REG_R14] {
            registers[libc::REG_RIP] = registers[libc::REG_R15];
            registers[libc::REG_RAX] = signal.into();
        } else {
            end_process(signal);
        }
    }

    #[test]
    fn a_handler_changes_registers_and_is_removed() {
        let current = || action(libc::SIGILL).unwrap().sa_sigaction;
        let before = current();
        // SAFETY: the handler changes only the registers that the assembly below declares.
        let handler = unsafe { ScopedHandler::install(libc::SIGILL, skip, 0) }.unwrap();
        assert_eq!(current(), skip as Handler as usize);
        let seen: u64;
        // SAFETY: the handler continues after `ud2`.
        unsafe {
            asm!(
                "lea r14, [rip + 2f]",
                "lea r15, [rip + 3f]",
                "2: ud2",
                "3:",
                out("rax") seen, out("r14") _, out("r15") _
            );
        }
        assert_eq!(seen, libc::SIGILL as u64);
        drop(handler);
        assert_eq!(current(), before);
    }

    #[test]
    fn an_unexpected_signal_ends_the_process() {
        let mut child = crate::forked::fork(|| {
            // SAFETY: the handler ends the process, because r14 is not an address of code.
            unsafe {
                install(libc::SIGTRAP, skip, 0).unwrap();
                asm!("xor r14d, r14d", "int3", out("r14") _);
            }
        });
        let status = child.wait(Duration::from_secs(30)).unwrap();
        assert_eq!(status.and_then(|status| status.signal()), Some(libc::SIGTRAP));
    }

    #[test]
    fn signals_have_names() {
        assert_eq!([name(libc::SIGKILL), name(libc::SIGBUS)], ["SIGKILL", "SIGBUS"]);
        assert_eq!(name(40), "signal 40");
    }
}
