//! How far a program has filled a ring, as far as the NIC knows.

use std::collections::VecDeque;

/// How far a program has filled a ring. Where transfers are modelled, the NIC knows only once it has read
/// what the program wrote there.
#[derive(Debug, Default)]
pub(super) struct Tail {
    known: u32,
    /// Tails on their way, and when they will be known.
    under_way: VecDeque<(u64, u32)>,
}

impl Tail {
    /// The program has filled the ring up to there; known after so many ticks.
    #[inline(always)]
    pub(super) fn set(&mut self, tail: u32, now: u64, after: u64) {
        if after == 0 {
            self.known = tail;
        } else {
            // Where nothing asks for it, it must not grow without end.
            self.known(now);
            self.under_way.push_back((now + after, tail));
        }
    }

    /// Up to where it is known to be filled.
    #[inline(always)]
    pub(super) fn known(&mut self, now: u64) -> u32 {
        while self.under_way.front().is_some_and(|(ready, _)| *ready <= now) {
            if let Some((_, tail)) = self.under_way.pop_front() {
                self.known = tail;
            }
        }
        self.known
    }

    /// Whether nothing is on its way.
    #[inline(always)]
    pub(super) fn is_settled(&self) -> bool {
        self.under_way.is_empty()
    }
}
