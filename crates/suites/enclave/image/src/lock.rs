//! A lock that spins: inside an enclave there is no system to wait by.

use core::cell::UnsafeCell;
use core::hint::spin_loop;
use core::sync::atomic::{AtomicBool, Ordering};

/// A value behind a lock that spins.
pub struct Spin<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached under the lock alone.
unsafe impl<T: Send> Sync for Spin<T> {}

impl<T> Spin<T> {
    /// A value behind a free lock.
    pub const fn new(value: T) -> Self {
        Self { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Works on the value, alone.
    #[inline]
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        while self.taken.swap(true, Ordering::Acquire) {
            while self.taken.load(Ordering::Relaxed) {
                spin_loop();
            }
        }
        // SAFETY: nobody else holds the lock.
        let result = work(unsafe { &mut *self.value.get() });
        self.taken.store(false, Ordering::Release);
        result
    }
}
