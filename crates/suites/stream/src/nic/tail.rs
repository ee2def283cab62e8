//! The tail of a ring as known to the NIC.

use std::collections::VecDeque;

/// The tail of a ring that the host fills. With modelled transfers the NIC knows it only after reading it.
#[derive(Debug, Default)]
pub(super) struct DelayedTail {
    known: u32,
    /// Later tails, and when each becomes known.
    pending: VecDeque<(u64, u32)>,
}

impl DelayedTail {
    /// Sets the tail, which becomes known after `after` ticks.
    #[inline(always)]
    pub(super) fn set(&mut self, tail: u32, now: u64, after: u64) {
        if after == 0 {
            self.known = tail;
        } else {
            // Bounds the queue if the tail is never read.
            self.known(now);
            self.pending.push_back((now + after, tail));
        }
    }

    /// Returns the known tail.
    #[inline(always)]
    pub(super) fn known(&mut self, now: u64) -> u32 {
        while self.pending.front().is_some_and(|(ready, _)| *ready <= now) {
            if let Some((_, tail)) = self.pending.pop_front() {
                self.known = tail;
            }
        }
        self.known
    }

    /// Returns whether the known tail is the latest.
    #[inline(always)]
    pub(super) fn is_settled(&self) -> bool {
        self.pending.is_empty()
    }
}
