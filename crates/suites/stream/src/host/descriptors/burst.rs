//! A burst: packets that are received or sent together.

use std::rc::Rc;

use super::pool::{Buffer, BufferPool};
use crate::nic::descriptor::BUFFER;

/// Maximum number of packets in a burst.
pub const BURST: usize = 32;

/// Up to 32 packets in buffers that belong to the program until they are sent or [cleared](Self::clear).
pub struct Burst {
    pub(super) pool: Rc<BufferPool>,
    buffers: [Buffer; BURST],
    bytes: [u32; BURST],
    count: usize,
}

impl Burst {
    pub(super) fn new(pool: &Rc<BufferPool>) -> Self {
        Self { pool: Rc::clone(pool), buffers: [0; BURST], bytes: [0; BURST], count: 0 }
    }

    /// Returns the number of packets.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether there are no packets.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Iterates over the packets.
    #[inline(always)]
    pub fn packets(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let Self { pool, buffers, bytes, count } = self;
        buffers[..*count].iter().zip(&bytes[..*count]).map(|(buffer, bytes)| {
            // SAFETY: a buffer is in one place at a time, so the buffers of a burst differ and nothing else uses them;
            // `push` limits the length to that of a buffer; and the burst is borrowed as long as the slice.
            unsafe { std::slice::from_raw_parts_mut(pool.address(*buffer), *bytes as usize) }
        })
    }

    /// Adds a packet of `bytes` bytes to be written; it contains what its buffer contained before. Returns `None` if
    /// the burst is full or the pool is empty.
    ///
    /// # Panics
    /// Panics if `bytes` exceeds the size of a buffer.
    pub fn add(&mut self, bytes: usize) -> Option<&mut [u8]> {
        assert!(bytes <= BUFFER, "more bytes than a buffer has");
        let mut buffer = [0];
        if self.count == BURST || self.pool.alloc(&mut buffer) == 0 {
            return None;
        }
        self.push(buffer[0], bytes as u32);
        self.packets().last()
    }

    /// Returns all buffers to the pool.
    pub fn clear(&mut self) {
        self.pool.free(&self.buffers[..self.count]);
        self.count = 0;
    }

    /// Returns the number of packets that can be added.
    #[inline(always)]
    pub(super) fn space(&self) -> usize {
        BURST - self.count
    }

    /// Iterates over the unused entries: their buffers and lengths.
    #[inline(always)]
    pub(super) fn unused(&mut self) -> impl Iterator<Item = (&mut Buffer, &mut u32)> {
        self.buffers[self.count..].iter_mut().zip(&mut self.bytes[self.count..])
    }

    /// Adds the first `packets` unused entries, which have been filled.
    #[inline(always)]
    pub(super) fn commit_rx(&mut self, packets: usize) {
        self.count = (self.count + packets).min(BURST);
    }

    /// Adds a packet; the burst must have space.
    #[inline(always)]
    pub(super) fn push(&mut self, buffer: Buffer, bytes: u32) {
        self.buffers[self.count] = buffer;
        self.bytes[self.count] = bytes.min(BUFFER as u32);
        self.count += 1;
    }

    /// Iterates over the packets as buffers and lengths.
    #[inline(always)]
    pub(super) fn each(&self) -> impl Iterator<Item = (Buffer, u32)> {
        let buffers = self.buffers[..self.count].iter().copied();
        buffers.zip(self.bytes[..self.count].iter().copied())
    }

    /// Removes the first `packets` packets, whose buffers now belong to the NIC.
    #[inline(always)]
    pub(super) fn remove_sent(&mut self, packets: usize) {
        if packets < self.count {
            std::hint::cold_path();
            self.buffers.copy_within(packets..self.count, 0);
            self.bytes.copy_within(packets..self.count, 0);
        }
        self.count -= packets;
    }
}

impl Drop for Burst {
    fn drop(&mut self) {
        self.clear();
    }
}
