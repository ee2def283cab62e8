//! A stall of an application's loop, planted by a test.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::nic::ticks;

/// Duration of a planted stall.
pub(super) const STALL: Duration = Duration::from_millis(3);

/// A stall in the first iteration without packets after one with packets. Over reactive pipes the NIC then reports packets only
/// after the loop has taken completions, so that the next iterations have none either.
#[derive(Debug, Default)]
pub(super) struct PlantedStall {
    is_requested: AtomicBool,
    /// Whether the last iteration had packets.
    worked: AtomicBool,
    /// Start and end of the last stall, in ticks.
    start: AtomicU64,
    end: AtomicU64,
}

impl PlantedStall {
    /// Requests a stall.
    pub(super) fn request(&self) {
        self.is_requested.store(true, Ordering::Relaxed);
    }

    /// Returns whether the last stall was within these ticks.
    pub(super) fn is_within(&self, start: u64, end: u64) -> bool {
        start <= self.start.load(Ordering::Acquire) && self.end.load(Ordering::Acquire) <= end
    }

    /// Stalls if that was requested and the iteration is the one.
    #[inline(always)]
    pub(super) fn after_poll(&self, packets: u64) {
        let worked = self.worked.load(Ordering::Relaxed);
        self.worked.store(packets > 0, Ordering::Relaxed);
        if worked && packets == 0 && self.is_requested.load(Ordering::Relaxed) {
            self.stall();
        }
    }

    #[cold]
    fn stall(&self) {
        self.is_requested.store(false, Ordering::Relaxed);
        self.start.store(ticks(), Ordering::Release);
        std::thread::sleep(STALL);
        self.end.store(ticks(), Ordering::Release);
    }
}
