//! Locks inside. A thread can only sleep outside, by an OCALL to the host.

use crate::arch::Host;
use core::cell::UnsafeCell;
use core::hint::spin_loop;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32};
use interface::Leave;

/// The locking algorithm.
pub trait RawMutex: Sync {
    /// The unlocked state.
    const FREE: Self;

    /// Returns when this thread has the lock.
    fn lock(&self);

    /// Releases the lock. Only its holder may call it.
    fn unlock(&self);
}

/// A value protected by a lock.
pub struct Lock<W, T> {
    raw: W,
    value: UnsafeCell<T>,
}

/// A value protected by a spinning lock.
pub type Spin<T> = Lock<Spins, T>;

// SAFETY: the value is only accessed with the lock.
unsafe impl<W: RawMutex, T: Send> Sync for Lock<W, T> {}

impl<W: RawMutex, T> Lock<W, T> {
    /// Creates an unlocked lock.
    pub const fn new(value: T) -> Self {
        Self { raw: W::FREE, value: UnsafeCell::new(value) }
    }

    /// Runs `work` with exclusive access to the value.
    #[inline]
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        self.raw.lock();
        // SAFETY: no other thread has the lock.
        let result = work(unsafe { &mut *self.value.get() });
        self.raw.unlock();
        result
    }
}

/// A lock that always spins.
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

/// A lock that spins for a while, then leaves the enclave to sleep; a thread that releases a contended lock leaves to
/// wake a sleeper. The algorithm is that of Drepper's "Futexes are tricky", as in system/pthread.h.
pub struct Waits(AtomicU32);

/// The unlocked state.
const FREE: u32 = 0;
/// Locked.
const LOCKED: u32 = 1;
/// Locked, and threads may sleep outside.
const CONTENDED: u32 = 2;

/// How often a thread checks a locked lock before it sleeps outside.
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
        // A thread that has slept cannot know whether others sleep, so it marks the lock as contended.
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
