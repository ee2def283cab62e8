//! Waiting and waking of threads in an SGX enclave.
//!
//! The kernel cannot read the enclave's memory, so it cannot compare a word there before a thread sleeps. Instead,
//! each wake increments a counter of the host, and a thread sleeps only if the counter has not changed since the
//! thread entered. After a wake that the code inside may have missed, the thread checks its word again.

use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::system_calls;

/// The wake counter of an enclave.
#[derive(Debug, Default)]
pub(super) struct Waits(AtomicU32);

impl Waits {
    /// Returns the counter, which a thread records each time it enters.
    pub(super) fn seen(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    /// Sleeps until a wake later than `seen`. Returns 0, or the `errno` if it did not sleep.
    pub(super) fn wait(&self, seen: u32) -> u64 {
        self.futex(libc::FUTEX_WAIT, seen)
    }

    /// Wakes all threads; those that wait for another word check it and sleep again.
    pub(super) fn wake(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst);
        self.futex(libc::FUTEX_WAKE, i32::MAX as u32)
    }

    fn futex(&self, operation: i32, value: u32) -> u64 {
        let operation = operation | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the word lives as long as this, and there is no timeout.
        unsafe { system_calls::futex(self.0.as_ptr(), operation, value, ptr::null()) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_wake_is_never_missed() {
        let waits = Waits::default();
        let seen = waits.seen();
        // The wake precedes the sleep, so the thread does not sleep.
        assert_eq!(waits.wake(), 0);
        assert_eq!(waits.wait(seen), libc::EAGAIN as u64);
        let seen = waits.seen();
        std::thread::scope(|scope| {
            let sleepers: Vec<_> = (0..3).map(|_| scope.spawn(|| waits.wait(seen))).collect();
            std::thread::sleep(Duration::from_millis(20));
            waits.wake();
            for sleeper in sleepers {
                // A thread that did not sleep yet returns at once.
                assert!([0, libc::EAGAIN as u64].contains(&sleeper.join().unwrap()));
            }
        });
    }
}
