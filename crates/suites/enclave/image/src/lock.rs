//! Locks inside: there is no system to wait by but the host, which is asked by an OCALL.

use crate::thread::Host;
use core::cell::UnsafeCell;
use core::hint::spin_loop;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32};
use interface::Leave;

/// How a lock is taken and given back.
pub trait Way: Sync {
    /// Taken by nobody.
    const FREE: Self;

    /// Comes back with the lock.
    fn take(&self);

    /// Gives the lock back. Its taker calls it.
    fn give(&self);
}

/// A value behind a lock.
pub struct Lock<W, T> {
    way: W,
    value: UnsafeCell<T>,
}

/// A value behind a lock that spins.
pub type Spin<T> = Lock<Spins, T>;

// SAFETY: the value is reached under the lock alone.
unsafe impl<W: Way, T: Send> Sync for Lock<W, T> {}

impl<W: Way, T> Lock<W, T> {
    /// A value behind a free lock.
    pub const fn new(value: T) -> Self {
        Self { way: W::FREE, value: UnsafeCell::new(value) }
    }

    /// Works on the value, alone.
    #[inline]
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        self.way.take();
        // SAFETY: nobody else holds the lock.
        let result = work(unsafe { &mut *self.value.get() });
        self.way.give();
        result
    }
}

/// Spins, however long it takes.
pub struct Spins(AtomicBool);

impl Way for Spins {
    const FREE: Self = Self(AtomicBool::new(false));

    #[inline]
    fn take(&self) {
        while self.0.swap(true, Acquire) {
            while self.0.load(Relaxed) {
                spin_loop();
            }
        }
    }

    #[inline]
    fn give(&self) {
        self.0.store(false, Release);
    }
}

/// Spins for a while, then leaves the enclave to wait; who gives it back leaves to wake one that waits. The
/// protocol is that of Drepper's "Futexes are tricky", and of system/pthread.h.
pub struct Waits(AtomicU32);

/// Taken by nobody.
const FREE: u32 = 0;
/// Taken.
const TAKEN: u32 = 1;
/// Taken, and somebody may wait outside.
const WANTED: u32 = 2;

/// How often a taken lock is looked at before its taker waits outside.
const LOOKS: usize = 100;

impl Waits {
    #[inline]
    fn try_take(&self) -> bool {
        self.0.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_ok()
    }

    #[cold]
    fn wait(&self) {
        for _ in 0..LOOKS {
            if self.0.load(Relaxed) == FREE && self.try_take() {
                return;
            }
            spin_loop();
        }
        // Whoever waited cannot know that nobody else does, and takes it as wanted.
        while self.0.swap(WANTED, Acquire) != FREE {
            let Ok(_) = Host.wait(self.0.as_ptr() as u64, u64::from(WANTED));
        }
    }

    #[cold]
    fn wake(&self) {
        let Ok(_) = Host.wake(self.0.as_ptr() as u64, 1);
    }
}

impl Way for Waits {
    const FREE: Self = Self(AtomicU32::new(FREE));

    #[inline]
    fn take(&self) {
        if !self.try_take() {
            self.wait();
        }
    }

    #[inline]
    fn give(&self) {
        if self.0.swap(FREE, Release) == WANTED {
            self.wake();
        }
    }
}
