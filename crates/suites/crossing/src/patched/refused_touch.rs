//! Surviving touches of memory that may not be touched.

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::zeroed;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lab::sample::Failure;

use super::touch::{after, instruction};

/// SIGSEGVs at the touching instruction since the process began.
static SIGNALS: AtomicU64 = AtomicU64::new(0);

/// The handler is the process's, so one has it at a time.
static ONE: Mutex<()> = Mutex::new(());

/// While it lives, a touch that raises SIGSEGV goes on after its instruction.
pub(super) struct Survival {
    before: libc::sigaction,
    _one: MutexGuard<'static, ()>,
}

impl Survival {
    /// From now on.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn begin() -> Result<Self, Failure> {
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: an all-zero sigaction is valid; the handler has the form that SA_SIGINFO asks for,
        // and does only what a handler may.
        unsafe {
            let mut action: libc::sigaction = zeroed();
            action.sa_sigaction = go_on as *const () as libc::sighandler_t;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            let mut before: libc::sigaction = zeroed();
            match libc::sigaction(libc::SIGSEGV, &raw const action, &raw mut before) {
                0 => Ok(Self { before, _one: one }),
                _ => Err(io::Error::last_os_error().into()),
            }
        }
    }

    /// How many were survived since the process began.
    pub(super) fn signals() -> u64 {
        SIGNALS.load(Ordering::Relaxed)
    }
}

impl Drop for Survival {
    fn drop(&mut self) {
        // SAFETY: puts back what was there before.
        unsafe { libc::sigaction(libc::SIGSEGV, &raw const self.before, std::ptr::null_mut()) };
    }
}

extern "C" fn go_on(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel hands a handler of this form the interrupted thread's context.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let at = &mut registers[libc::REG_RIP as usize];
    if *at as usize == instruction() {
        *at = after() as libc::greg_t;
        SIGNALS.fetch_add(1, Ordering::Relaxed);
    } else {
        // Another's fault: it faults again and ends the process, as it would have without us.
        // SAFETY: signal is safe in a handler.
        unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patched::touch::Pages;

    #[test]
    fn forbidden_touches_are_survived_and_counted() {
        let pages = Pages::new(1).unwrap();
        pages.forbid().unwrap();
        let before = Survival::signals();
        let survival = Survival::begin().unwrap();
        let untouched = (0..100).filter(|&tag| pages.touch(0, tag).is_untouched(tag)).count();
        drop(survival);
        assert_eq!(untouched, 100);
        assert!(Survival::signals() >= before + 100);
    }
}
