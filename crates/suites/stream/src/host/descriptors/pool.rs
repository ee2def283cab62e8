//! Buffers that nobody uses.

use std::cell::RefCell;

use machine::SysError;

use crate::nic::Port;
use crate::nic::descriptor::BUFFER;
use crate::nic::layout::FLIT;
use crate::nic::memory::Memory;

/// Lines from one buffer to the next: one more than it has, so that buffers do not all fall into the same few
/// sets of a cache.
const APART: u32 = (BUFFER / FLIT) as u32 + 1;

/// A buffer, as the count of lines before it.
pub(super) type Buffer = u32;

/// Buffers: their memory, and which of them nobody uses.
pub(super) struct BufferPool {
    /// Where it begins, kept at hand: asking the memory takes as long as a packet's work.
    start: *mut u8,
    bus: u64,
    _memory: Memory,
    free: RefCell<Stack>,
}

impl BufferPool {
    /// So many buffers, all free.
    pub(super) fn new(port: &Port, buffers: u32) -> Result<Self, SysError> {
        let lines = buffers as usize * APART as usize;
        let memory = port.plain(lines * FLIT)?;
        let free = RefCell::new(Stack::of((0..buffers).map(|buffer| buffer * APART)));
        Ok(Self { start: memory.pointer(), bus: memory.bus(), _memory: memory, free })
    }

    /// How many buffers are free, and how many there are.
    pub(super) fn count(&self) -> (u32, u32) {
        let free = self.free.borrow();
        (free.count as u32, free.buffers.len() as u32)
    }

    /// Takes buffers, those last given first, as many as there are; how many.
    #[inline(always)]
    pub(super) fn take(&self, into: &mut [Buffer]) -> usize {
        self.free.borrow_mut().take(into)
    }

    /// Gives buffers back.
    #[inline(always)]
    pub(super) fn give(&self, buffers: &[Buffer]) {
        self.free.borrow_mut().give(buffers);
    }

    /// Where a buffer lies for the NIC.
    #[inline(always)]
    pub(super) fn bus(&self, buffer: Buffer) -> u64 {
        self.bus + u64::from(buffer) * FLIT as u64
    }

    /// Where it lies here.
    #[inline(always)]
    pub(super) fn place(&self, buffer: Buffer) -> *mut u8 {
        place(self.start, buffer)
    }

    /// Where its memory begins, for loops that ask for many.
    #[inline(always)]
    pub(super) fn start(&self) -> *mut u8 {
        self.start
    }
}

/// Where a buffer lies in memory that begins there.
#[inline(always)]
pub(super) fn place(start: *mut u8, buffer: Buffer) -> *mut u8 {
    start.wrapping_add(buffer as usize * FLIT)
}

/// Free buffers, the last in the first out.
struct Stack {
    buffers: Box<[Buffer]>,
    count: usize,
}

impl Stack {
    fn of(buffers: impl Iterator<Item = Buffer>) -> Self {
        let buffers: Box<[_]> = buffers.collect();
        Self { count: buffers.len(), buffers }
    }

    #[inline(always)]
    fn take(&mut self, into: &mut [Buffer]) -> usize {
        let taken = into.len().min(self.count);
        self.count -= taken;
        into[..taken].copy_from_slice(&self.buffers[self.count..self.count + taken]);
        taken
    }

    #[inline(always)]
    fn give(&mut self, buffers: &[Buffer]) {
        self.buffers[self.count..self.count + buffers.len()].copy_from_slice(buffers);
        self.count += buffers.len();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::generator::{Generator, LiveCounters};
    use crate::nic::descriptors::Descriptors;
    use crate::nic::{Nic, NicParams};
    use crate::wire::sample::{SampleTraffic, Sizes};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_buffer_is_in_one_place(
            all in 1u32..200, steps in proptest::collection::vec((any::<bool>(), 0usize..70), 0..100),
        ) {
            let mut stack = Stack::of(0..all);
            let mut used = Vec::new();
            let mut last_given = None;
            for (takes, count) in steps {
                if takes {
                    let free = all as usize - used.len();
                    let mut into = vec![u32::MAX; count];
                    let taken = stack.take(&mut into);
                    prop_assert_eq!(taken, count.min(free));
                    if let Some(last) = last_given.take().filter(|_| taken > 0) {
                        prop_assert!(into[..taken].contains(&last), "the last in are the first out");
                    }
                    used.extend(&into[..taken]);
                } else {
                    let given: Vec<_> = used.drain(..count.min(used.len())).collect();
                    stack.give(&given);
                    last_given = given.last().copied().or(last_given);
                }
                let mut everywhere = used.clone();
                everywhere.extend(&stack.buffers[..stack.count]);
                everywhere.sort_unstable();
                prop_assert!(everywhere.into_iter().eq(0..all));
            }
        }
    }

    #[test]
    fn buffers_lie_apart_and_at_flits() {
        let sample =
            SampleTraffic { packets: 1, size: Sizes::One(64), sources: 1, destinations: 1 };
        let traffic = Arc::new(sample.traffic().unwrap());
        let generator = Generator::new(traffic, Arc::new(LiveCounters::default())).unwrap();
        let params = NicParams { cpu: machine::pin::current_cpu(), ..NicParams::default() };
        let nic = Nic::start(params, Descriptors::new(64, 64), generator).unwrap();
        let pool = BufferPool::new(&nic.port(), 100).unwrap();
        let mut buffers = [0; 100];
        assert_eq!(pool.take(&mut buffers), 100);
        assert_eq!(pool.count(), (0, 100));
        buffers.sort_unstable();
        for two in buffers.windows(2) {
            assert!(pool.bus(two[1]) - pool.bus(two[0]) >= BUFFER as u64);
            assert!(pool.bus(two[0]).is_multiple_of(FLIT as u64));
        }
        let end = pool.bus(100 * APART);
        assert!(pool.bus(buffers[99]) + BUFFER as u64 <= end);
    }
}
