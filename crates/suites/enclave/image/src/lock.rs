//! Locks inside: there is no system to wait by but the host, which is asked by an OCALL.

use crate::runtime::Host;
use core::cell::UnsafeCell;
use core::hint::spin_loop;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32};
use interface::Leave;

/// How a lock is taken and given back.
pub trait RawMutex: Sync {
    /// Taken by nobody.
    const FREE: Self;

    /// Comes back with the lock.
    fn lock(&self);

    /// Gives the lock back. Its taker calls it.
    fn unlock(&self);
}

/// A value behind a lock.
pub struct Lock<W, T> {
    raw: W,
    value: UnsafeCell<T>,
}

/// A value behind a lock that spins.
pub type Spin<T> = Lock<Spins, T>;

// SAFETY: the value is reached under the lock alone.
unsafe impl<W: RawMutex, T: Send> Sync for Lock<W, T> {}

impl<W: RawMutex, T> Lock<W, T> {
    /// A value behind a free lock.
    pub const fn new(value: T) -> Self {
        Self { raw: W::FREE, value: UnsafeCell::new(value) }
    }

    /// Works on the value, alone.
    #[inline]
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        self.raw.lock();
        // SAFETY: nobody else holds the lock.
        let result = work(unsafe { &mut *self.value.get() });
        self.raw.unlock();
        result
    }
}

/// Spins, however long it takes.
pub struct Spins(AtomicBool);

impl RawMutex for Spins {
    const FREE: Self = Self(AtomicBool::new(false));

    #[inline]
    fn lock(&self) {
        while self.0.swap(true, Acquire) {
            while self.0.load(Relaxed) {
                spin_loop();
            }
        }
    }

    #[inline]
    fn unlock(&self) {
        self.0.store(false, Release);
    }
}

/// Spins for a while, then leaves the enclave to wait; who gives it back leaves to wake one that waits. The
/// protocol is that of Drepper's "Futexes are tricky", and of system/pthread.h.
pub struct Waits(AtomicU32);

/// Taken by nobody.
const FREE: u32 = 0;
/// Taken.
const LOCKED: u32 = 1;
/// Taken, and somebody may wait outside.
const CONTENDED: u32 = 2;

/// How often a taken lock is looked at before its taker waits outside.
const MAX_SPINS: usize = 100;

impl Waits {
    #[inline]
    fn try_lock(&self) -> bool {
        self.0.compare_exchange(FREE, LOCKED, Acquire, Relaxed).is_ok()
    }

    #[cold]
    fn wait(&self) {
        for _ in 0..MAX_SPINS {
            if self.0.load(Relaxed) == FREE && self.try_lock() {
                return;
            }
            spin_loop();
        }
        // Whoever waited cannot know that nobody else does, and takes it as wanted.
        while self.0.swap(CONTENDED, Acquire) != FREE {
            let Ok(_) = Host.wait(self.0.as_ptr() as u64, u64::from(CONTENDED));
        }
    }

    #[cold]
    fn wake(&self) {
        let Ok(_) = Host.wake(self.0.as_ptr() as u64, 1);
    }
}

impl RawMutex for Waits {
    const FREE: Self = Self(AtomicU32::new(FREE));

    #[inline]
    fn lock(&self) {
        if !self.try_lock() {
            self.wait();
        }
    }

    #[inline]
    fn unlock(&self) {
        if self.0.swap(FREE, Release) == CONTENDED {
            self.wake();
        }
    }
}
