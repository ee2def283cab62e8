//! Timer that interrupts a `KVM_RUN` that does not return.

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

/// Interval of repeated signals after the first, because one that arrives just before `KVM_RUN` starts is lost.
const REPEAT_INTERVAL: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// A timer that interrupts this thread's system calls after a time limit. Dropping it disarms it.
#[derive(Debug)]
pub(super) struct Watchdog {
    timer: libc::timer_t,
    end: Instant,
}

extern "C" fn do_nothing(_: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {}

impl Watchdog {
    /// Starts the timer, which signals only the calling thread.
    ///
    /// # Errors
    /// Returns the `errno` of `sigaction(2)`, `timer_create(2)` or `timer_settime(2)`.
    pub(super) fn start(limit: Duration) -> io::Result<Self> {
        let signal = libc::SIGRTMIN();
        // SAFETY: the handler does nothing. Without SA_RESTART, the signal interrupts a call.
        unsafe { machine::signal::install(signal, do_nothing, 0) }?;
        let mut timer = MaybeUninit::uninit();
        // SAFETY: an all-zero sigevent is a valid value, whose fields are set next.
        let mut event: libc::sigevent = unsafe { MaybeUninit::zeroed().assume_init() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal;
        // SAFETY: gettid only returns a number.
        event.sigev_notify_thread_id = unsafe { libc::gettid() };
        // SAFETY: both pointers are to locals that outlive the call.
        let made = unsafe {
            libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, timer.as_mut_ptr())
        };
        if made != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: timer_create succeeded, so it has written the timer.
        let timer = unsafe { timer.assume_init() };
        let watchdog = Self { timer, end: Instant::now() + limit };
        let first = libc::timespec {
            tv_sec: limit.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(limit.subsec_nanos()),
        };
        let times = libc::itimerspec { it_interval: REPEAT_INTERVAL, it_value: first };
        // SAFETY: the timer is live, and the pointer is to a local.
        if unsafe { libc::timer_settime(timer, 0, &raw const times, std::ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(watchdog)
    }

    /// Returns whether the limit has passed.
    pub(super) fn has_expired(&self) -> bool {
        Instant::now() >= self.end
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // SAFETY: the timer is live and deleted only here.
        unsafe { libc::timer_delete(self.timer) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blocking_call_is_interrupted_after_the_limit() {
        let start = Instant::now();
        let watchdog = Watchdog::start(Duration::from_millis(50)).unwrap();
        // SAFETY: pause has no arguments; the watchdog's signal ends it.
        unsafe { libc::pause() };
        assert!(watchdog.has_expired());
        let waited = start.elapsed();
        assert!(
            waited >= Duration::from_millis(50) && waited < Duration::from_secs(5),
            "{waited:?}"
        );
    }
}
