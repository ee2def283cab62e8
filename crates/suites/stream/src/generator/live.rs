//! How far the generator is, for those who watch.

use std::sync::atomic::{AtomicU64, Ordering};

/// How far the generator is, as of a millisecond ago.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Live {
    sent: AtomicU64,
    received: AtomicU64,
    corrupted: AtomicU64,
}

/// What was seen of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// Packets sent in the trial under way.
    pub sent: u64,
    /// Packets that came back in it.
    pub received: u64,
    /// Of them, those that were other than they should be.
    pub corrupted: u64,
}

impl Live {
    pub(super) fn show(&self, seen: Seen) {
        self.sent.store(seen.sent, Ordering::Relaxed);
        self.received.store(seen.received, Ordering::Relaxed);
        self.corrupted.store(seen.corrupted, Ordering::Relaxed);
    }

    /// How far it is.
    pub fn seen(&self) -> Seen {
        Seen {
            sent: self.sent.load(Ordering::Relaxed),
            received: self.received.load(Ordering::Relaxed),
            corrupted: self.corrupted.load(Ordering::Relaxed),
        }
    }
}
