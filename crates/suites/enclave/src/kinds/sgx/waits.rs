//! How threads of an enclave in hardware wait for one another.
//!
//! The kernel cannot read an enclave's memory, so that it cannot compare a word there before it lets a thread
//! sleep. Instead each wake raises a count of the host's, and a thread sleeps only while the count is what it
//! was when the thread went in: a wake that the inside may have missed lets its thread look again.

use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::system_calls;

/// The count of an enclave.
#[derive(Debug, Default)]
pub(super) struct Waits(AtomicU32);

impl Waits {
    /// What a thread takes note of each time that it goes in.
    pub(super) fn seen(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    /// Sleeps until a wake that came after what was seen. Gives 0, or why it did not sleep.
    pub(super) fn wait(&self, seen: u32) -> u64 {
        self.futex(libc::FUTEX_WAIT, seen)
    }

    /// Wakes all, of whom those that wait for something else look and sleep again.
    pub(super) fn wake(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst);
        self.futex(libc::FUTEX_WAKE, i32::MAX as u32)
    }

    fn futex(&self, operation: i32, value: u32) -> u64 {
        let operation = operation | libc::FUTEX_PRIVATE_FLAG;
        let words = [ptr::from_ref(&self.0) as u64, operation as u64, u64::from(value), 0, 0, 0];
        // SAFETY: the kernel reads the word and puts the thread to sleep, or wakes some.
        let result = unsafe { system_calls::raw(libc::SYS_futex, words) };
        if result < 0 { result.unsigned_abs() } else { 0 }
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
        // It came before the sleep, so that there is none.
        assert_eq!(waits.wake(), 0);
        assert_eq!(waits.wait(seen), libc::EAGAIN as u64);
        let seen = waits.seen();
        std::thread::scope(|scope| {
            let sleepers: Vec<_> = (0..3).map(|_| scope.spawn(|| waits.wait(seen))).collect();
            std::thread::sleep(Duration::from_millis(20));
            waits.wake();
            for sleeper in sleepers {
                // Whoever had not yet slept did not begin to.
                assert!([0, libc::EAGAIN as u64].contains(&sleeper.join().unwrap()));
            }
        });
    }
}
