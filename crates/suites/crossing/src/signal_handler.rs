//! Scoped signal handlers.

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::zeroed;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A handler with the signature of `SA_SIGINFO`. It must be async-signal-safe.
pub(crate) type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// Lock of the process's signal actions: at most one handler is installed at a time.
static LOCK: Mutex<()> = Mutex::new(());

/// An installed signal handler. Dropping it restores the previous action.
pub(crate) struct SignalHandler {
    signal: c_int,
    previous: libc::sigaction,
    _lock: MutexGuard<'static, ()>,
}

impl SignalHandler {
    /// Installs a handler with `SA_SIGINFO` and additional flags. Waits until another one is dropped.
    ///
    /// # Errors
    /// Returns the `errno` of `sigaction(2)`.
    pub(crate) fn install(signal: c_int, handler: Handler, flags: c_int) -> io::Result<Self> {
        let lock = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: all-zero sigactions are valid, with an empty mask. Both outlive the call, and the handler has
        // the signature that SA_SIGINFO requires.
        unsafe {
            let mut action: libc::sigaction = zeroed();
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_SIGINFO | flags;
            let mut previous: libc::sigaction = zeroed();
            match libc::sigaction(signal, &raw const action, &raw mut previous) {
                0 => Ok(Self { signal, previous, _lock: lock }),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }
}

impl Drop for SignalHandler {
    fn drop(&mut self) {
        // SAFETY: the previous action is valid. The kernel accepted it before, so the call cannot fail.
        unsafe { libc::sigaction(self.signal, &raw const self.previous, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" fn ignore(_: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {}

    #[test]
    fn dropping_a_handler_restores_the_previous_one() {
        let current = || {
            // SAFETY: without a new action the call only fills the current one.
            unsafe {
                let mut current: libc::sigaction = zeroed();
                libc::sigaction(libc::SIGUSR2, std::ptr::null(), &raw mut current);
                current.sa_sigaction
            }
        };
        let before = current();
        let handler = SignalHandler::install(libc::SIGUSR2, ignore, 0).unwrap();
        assert_eq!(current(), ignore as Handler as usize);
        drop(handler);
        assert_eq!(current(), before);
    }
}
