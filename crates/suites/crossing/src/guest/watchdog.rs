//! Ends a `KVM_RUN` that does not come back by itself.

use std::io;
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

/// Ticks again and again once the time is over, since a signal that comes just before `KVM_RUN` begins
/// is lost on it.
const AGAIN: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// A timer that interrupts this thread's system calls once a time is over; dropping it disarms it.
#[derive(Debug)]
pub(super) struct Watchdog {
    timer: libc::timer_t,
    end: Instant,
}

extern "C" fn interrupted(_: libc::c_int) {}

impl Watchdog {
    /// Begins to wait. The signal goes to this thread alone: stay on it.
    ///
    /// # Errors
    /// The kernel's, where it gives no timer.
    pub(super) fn start(limit: Duration) -> io::Result<Self> {
        let signal = libc::SIGRTMIN();
        handle(signal)?;
        let mut timer = MaybeUninit::uninit();
        // SAFETY: an all-zero sigevent is a valid value, whose fields are set next.
        let mut event: libc::sigevent = unsafe { MaybeUninit::zeroed().assume_init() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal;
        // SAFETY: gettid only gives a number.
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
        let times = libc::itimerspec { it_interval: AGAIN, it_value: first };
        // SAFETY: the timer is live, and the pointer is to a local.
        if unsafe { libc::timer_settime(timer, 0, &raw const times, std::ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(watchdog)
    }

    /// Whether the time is over.
    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // SAFETY: the timer is live and deleted only here.
        unsafe { libc::timer_delete(self.timer) };
    }
}

/// Has the signal interrupt and do nothing else.
fn handle(signal: libc::c_int) -> io::Result<()> {
    // SAFETY: an all-zero sigaction is a valid value: no flags, so that calls are not restarted.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = interrupted as *const () as usize;
    // SAFETY: the handler does nothing, which is safe in a signal.
    if unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_would_not_end_is_interrupted() {
        let begin = Instant::now();
        let watchdog = Watchdog::start(Duration::from_millis(50)).unwrap();
        // SAFETY: waits for signals, of which only the watchdog's is due.
        unsafe { libc::pause() };
        assert!(watchdog.is_over());
        let waited = begin.elapsed();
        assert!(
            waited >= Duration::from_millis(50) && waited < Duration::from_secs(5),
            "{waited:?}"
        );
    }
}
