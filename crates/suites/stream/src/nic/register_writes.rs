//! How an engine takes what programs write to registers: each core's writes in their order, some at a time.

use super::doorbells::DoorbellReceiver;
use super::engine::EngineContext;
use super::layout::{Queue, Register};
use super::region::ClientId;
use super::sync::CREDIT;

/// Writes of one core taken in one turn: a core that writes without end must not keep the others waiting.
const WRITES: usize = 256;

/// An engine's registers.
pub(super) trait Registers {
    /// Cores there may be.
    fn pairs(&self) -> usize;

    /// What a core writes; none where there is no such core.
    fn arrivals(&mut self, pair: usize) -> Option<&mut DoorbellReceiver>;

    /// A core has written a register. Whether it is the core's is not known yet.
    fn written(&mut self, pair: u32, write: Write, now: u64, nic: &mut EngineContext);

    /// Takes some of the writes of each core that have arrived by now.
    #[inline(always)]
    fn take_writes_of_all(&mut self, now: u64, nic: &mut EngineContext) {
        for pair in 0..self.pairs() {
            self.take_writes(pair, now, nic);
        }
    }

    /// Takes all writes that a program has made, also those on their way.
    fn drain_all_of(&mut self, client: ClientId, now: u64, nic: &mut EngineContext) {
        for pair in 0..self.pairs() {
            if nic.client(pair as u32) == client {
                self.take_all_writes(pair, now, nic);
            }
        }
    }

    /// Takes some of the writes of a core that have arrived by now.
    #[inline(always)]
    fn take_writes(&mut self, pair: usize, now: u64, nic: &mut EngineContext) {
        let before = now.saturating_sub(nic.doorbell);
        for _ in 0..WRITES {
            if !self.take_write(pair, before, now, nic) {
                return;
            }
        }
    }

    /// Takes all writes that a core has made, also those on their way: there is no credit for more.
    #[cold]
    fn take_all_writes(&mut self, pair: usize, now: u64, nic: &mut EngineContext) {
        for _ in 0..CREDIT {
            if !self.take_write(pair, u64::MAX, now, nic) {
                return;
            }
        }
    }

    /// Takes the next write that a core made before a time; whether there was one.
    #[inline(always)]
    fn take_write(&mut self, pair: usize, before: u64, now: u64, nic: &mut EngineContext) -> bool {
        let Some(arrivals) = self.arrivals(pair) else { return false };
        let Some((address, value)) = arrivals.take(before) else { return false };
        match Register::at(address) {
            Some((queue, register)) => {
                self.written(pair as u32, Write { queue, register, value }, now, nic);
            }
            None => nic.counters.refused += 1,
        }
        true
    }
}

/// One write to a register.
#[derive(Debug, Clone, Copy)]
pub(super) struct Write {
    pub(super) queue: Queue,
    pub(super) register: Register,
    pub(super) value: u32,
}
