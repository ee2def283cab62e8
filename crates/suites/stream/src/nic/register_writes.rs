//! Processing of register writes: in order per core, a limited number at a time; and the tails of rings that they set.

use std::collections::VecDeque;

use super::doorbells::DoorbellReceiver;
use super::engine::EngineContext;
use super::layout::{Queue, Register};
use super::region::ClientId;
use super::sync::CREDIT;

/// Maximum number of writes per core and iteration, so that no core can starve the others.
const WRITES: usize = 256;

/// The registers of an engine.
pub(super) trait Registers {
    /// Returns the number of possible pairs of notification buffers.
    fn pairs(&self) -> usize;

    /// Returns the doorbells of a pair, or `None` if the pair does not exist.
    fn doorbells_of(&mut self, pair: usize) -> Option<&mut DoorbellReceiver>;

    /// Applies a register write. The implementation checks that the register belongs to the pair.
    fn apply_write(&mut self, pair: u32, write: Write, now: u64, nic: &mut EngineContext);

    /// Processes arrived writes of all pairs, a limited number of each.
    #[inline(always)]
    fn process_writes(&mut self, now: u64, nic: &mut EngineContext) {
        for pair in 0..self.pairs() {
            self.process_pair(pair, now, nic);
        }
    }

    /// Processes all writes that a client has made, including delayed ones.
    fn drain_client(&mut self, client: ClientId, now: u64, nic: &mut EngineContext) {
        for pair in 0..self.pairs() {
            if nic.client(pair as u32) == client {
                self.drain_pair(pair, now, nic);
            }
        }
    }

    /// Processes arrived writes of a pair, a limited number.
    #[inline(always)]
    fn process_pair(&mut self, pair: usize, now: u64, nic: &mut EngineContext) {
        let before = now.saturating_sub(nic.doorbell);
        for _ in 0..WRITES {
            if !self.process_write(pair, before, now, nic) {
                return;
            }
        }
    }

    /// Processes all writes of a pair, including delayed ones, at most as many as there is credit for.
    #[cold]
    fn drain_pair(&mut self, pair: usize, now: u64, nic: &mut EngineContext) {
        for _ in 0..CREDIT {
            if !self.process_write(pair, u64::MAX, now, nic) {
                return;
            }
        }
    }

    /// Processes the next write made before a time. Returns whether there was one.
    #[inline(always)]
    fn process_write(
        &mut self,
        pair: usize,
        before: u64,
        now: u64,
        nic: &mut EngineContext,
    ) -> bool {
        let Some(doorbells) = self.doorbells_of(pair) else { return false };
        let Some((address, value)) = doorbells.take(before) else { return false };
        nic.count_register_write();
        match Register::at(address) {
            Some((queue, register)) => {
                self.apply_write(pair as u32, Write { queue, register, value }, now, nic);
            }
            None => nic.counters.refused += 1,
        }
        true
    }
}

/// A write to a register.
#[derive(Debug, Clone, Copy)]
pub(super) struct Write {
    pub(super) queue: Queue,
    pub(super) register: Register,
    pub(super) value: u32,
}

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

    /// Returns the tail that was set last.
    #[inline(always)]
    pub(super) fn latest(&self) -> u32 {
        self.pending.back().map_or(self.known, |(_, tail)| *tail)
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
