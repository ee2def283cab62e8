//! The pool of unused packet buffers.

use std::cell::RefCell;
use std::marker::PhantomData;

use machine::SysError;

use super::mbuf::Mbuf;
use crate::nic::layout::FLIT;
use crate::nic::{Memory, Port};

/// A buffer, identified by the offset of the first cache line of its object: what a driver keeps for it, and the buffer.
pub(super) type Buffer = u32;

/// A LIFO pool of buffers.
pub(super) struct BufferPool<M> {
    /// Start of the memory, cached: looking it up takes as long as processing a packet.
    start: *mut u8,
    bus: u64,
    _memory: Memory,
    free: RefCell<Stack>,
    kind: PhantomData<M>,
}

impl<M: Mbuf> BufferPool<M> {
    /// Allocates `buffers` buffers, all free.
    pub(super) fn new(port: &Port, buffers: u32) -> Result<Self, SysError> {
        let lines = buffers as usize * M::STRIDE as usize;
        let memory = port.plain(lines * FLIT)?;
        let all = || (0..buffers).map(|buffer| buffer * M::STRIDE);
        let free = RefCell::new(Stack::new(all()));
        let kind = PhantomData;
        let pool = Self { start: memory.pointer(), bus: memory.bus(), _memory: memory, free, kind };
        for buffer in all() {
            // SAFETY: an object of the pool's, which nothing uses yet.
            unsafe { M::init(pool.object(buffer), pool.bus(buffer)) };
        }
        Ok(pool)
    }

    /// Returns the number of free buffers and of all buffers.
    pub(super) fn count(&self) -> (u32, u32) {
        let free = self.free.borrow();
        (free.count as u32, free.buffers.len() as u32)
    }

    /// Allocates up to `into.len()` buffers, the most recently freed first. Returns their number.
    #[inline(always)]
    pub(super) fn alloc(&self, into: &mut [Buffer]) -> usize {
        self.free.borrow_mut().pop(into)
    }

    /// Frees buffers.
    #[inline(always)]
    pub(super) fn free(&self, buffers: &[Buffer]) {
        for buffer in buffers {
            // SAFETY: an object of the pool's, which the caller gives back.
            unsafe { M::freed(self.object(*buffer)) };
        }
        self.free.borrow_mut().push(buffers);
    }

    /// Returns the bus address of a buffer's packet.
    #[inline(always)]
    pub(super) fn bus(&self, buffer: Buffer) -> u64 {
        self.bus + u64::from(buffer + M::DATA) * FLIT as u64
    }

    /// Returns the address of a buffer's object.
    #[inline(always)]
    pub(super) fn object(&self, buffer: Buffer) -> *mut u8 {
        object(self.start, buffer)
    }

    /// Returns the address of a buffer's packet.
    #[inline(always)]
    pub(super) fn address(&self, buffer: Buffer) -> *mut u8 {
        object(self.start, buffer + M::DATA)
    }

    /// Returns the start of the memory, for [`object`] in loops.
    #[inline(always)]
    pub(super) fn start(&self) -> *mut u8 {
        self.start
    }
}

/// Returns the address of a buffer's object in a pool that starts at `start`.
#[inline(always)]
pub(super) fn object(start: *mut u8, buffer: Buffer) -> *mut u8 {
    start.wrapping_add(buffer as usize * FLIT)
}

/// A stack of free buffers.
struct Stack {
    buffers: Box<[Buffer]>,
    count: usize,
}

impl Stack {
    fn new(buffers: impl Iterator<Item = Buffer>) -> Self {
        let buffers: Box<[_]> = buffers.collect();
        Self { count: buffers.len(), buffers }
    }

    #[inline(always)]
    fn pop(&mut self, into: &mut [Buffer]) -> usize {
        let taken = into.len().min(self.count);
        self.count -= taken;
        into[..taken].copy_from_slice(&self.buffers[self.count..self.count + taken]);
        taken
    }

    #[inline(always)]
    fn push(&mut self, buffers: &[Buffer]) {
        self.buffers[self.count..self.count + buffers.len()].copy_from_slice(buffers);
        self.count += buffers.len();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::mbuf::{Header, NoHeader};
    use super::*;
    use crate::generator::{Generator, LiveCounters};
    use crate::nic::descriptor::{BUFFER, Descriptor};
    use crate::nic::descriptors::Descriptors;
    use crate::nic::{Nic, NicParams};
    use crate::wire::sample::{SampleTraffic, Sizes};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_buffer_is_in_one_place(
            all in 1u32..200, steps in proptest::collection::vec((any::<bool>(), 0usize..70), 0..100),
        ) {
            let mut stack = Stack::new(0..all);
            let mut used = Vec::new();
            let mut last_given = None;
            for (takes, count) in steps {
                if takes {
                    let free = all as usize - used.len();
                    let mut into = vec![u32::MAX; count];
                    let taken = stack.pop(&mut into);
                    prop_assert_eq!(taken, count.min(free));
                    if let Some(last) = last_given.take().filter(|_| taken > 0) {
                        prop_assert!(into[..taken].contains(&last), "last in, first out");
                    }
                    used.extend(&into[..taken]);
                } else {
                    let given: Vec<_> = used.drain(..count.min(used.len())).collect();
                    stack.push(&given);
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
    fn buffers_are_disjoint_and_aligned_to_flits() {
        disjoint_and_aligned::<NoHeader>();
        disjoint_and_aligned::<Header>();
    }

    fn disjoint_and_aligned<M: Mbuf>() {
        let sample =
            SampleTraffic { packets: 1, size: Sizes::One(64), sources: 1, destinations: 1 };
        let traffic = Arc::new(sample.traffic().unwrap());
        let generator = Generator::new(traffic, Arc::new(LiveCounters::default())).unwrap();
        let params = NicParams { cpu: machine::pin::current_cpu(), ..NicParams::default() };
        let nic = Nic::start(params, Descriptors::<Descriptor>::new(64, 64), generator).unwrap();
        let pool = BufferPool::<M>::new(&nic.port(), 100).unwrap();
        let mut buffers = [0; 100];
        assert_eq!(pool.alloc(&mut buffers), 100);
        assert_eq!(pool.count(), (0, 100));
        buffers.sort_unstable();
        for two in buffers.windows(2) {
            assert!(pool.bus(two[1]) - pool.bus(two[0]) >= BUFFER as u64);
            assert!(pool.bus(two[0]).is_multiple_of(FLIT as u64));
            let packet = pool.address(two[0]) as usize + BUFFER;
            assert!(packet <= pool.object(two[1]) as usize, "before what is kept for the next");
        }
        let end = pool.object(100 * M::STRIDE);
        assert!(pool.address(buffers[99]) as usize + BUFFER <= end as usize);
    }
}
