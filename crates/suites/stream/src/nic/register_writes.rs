//! Processing of register writes: in order per core, a limited number at a time.

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
