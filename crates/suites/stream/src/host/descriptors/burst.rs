//! Packets that are received or sent together.

use std::rc::Rc;

use super::pool::{Buffer, BufferPool};
use crate::nic::descriptor::BUFFER;

/// Packets of a burst at most.
pub const BURST: usize = 32;

/// Up to 32 packets, each in a buffer that is the program's until it is sent or [cleared](Self::clear).
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

    /// How many packets it has.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Its packets.
    #[inline(always)]
    pub fn packets(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let Self { pool, buffers, bytes, count } = self;
        buffers[..*count].iter().zip(&bytes[..*count]).map(|(buffer, bytes)| {
            // SAFETY: a buffer that is in a burst is in no other place, and those of a burst differ; it is
            // as long as a packet may say; and the burst is borrowed for as long as it is.
            unsafe { std::slice::from_raw_parts_mut(pool.place(*buffer), *bytes as usize) }
        })
    }

    /// Adds a packet of so many bytes, to be written; whatever the buffer held before is in it. None where the
    /// burst is full or the pool empty.
    ///
    /// # Panics
    /// Where a buffer has fewer bytes.
    pub fn add(&mut self, bytes: usize) -> Option<&mut [u8]> {
        assert!(bytes <= BUFFER, "more bytes than a buffer has");
        let mut buffer = [0];
        if self.count == BURST || self.pool.take(&mut buffer) == 0 {
            return None;
        }
        self.push(buffer[0], bytes as u32);
        self.packets().last()
    }

    /// Gives all buffers back to the pool.
    pub fn clear(&mut self) {
        self.pool.give(&self.buffers[..self.count]);
        self.count = 0;
    }

    /// How many more packets it has room for.
    #[inline(always)]
    pub(super) fn room(&self) -> usize {
        BURST - self.count
    }

    /// Where further packets go: their buffers and bytes.
    #[inline(always)]
    pub(super) fn rest(&mut self) -> impl Iterator<Item = (&mut Buffer, &mut u32)> {
        self.buffers[self.count..].iter_mut().zip(&mut self.bytes[self.count..])
    }

    /// So many further packets are there, where there is room.
    #[inline(always)]
    pub(super) fn commit_rx(&mut self, packets: usize) {
        self.count = (self.count + packets).min(BURST);
    }

    /// Puts a packet in, where there is room: as many bytes of this buffer.
    #[inline(always)]
    pub(super) fn push(&mut self, buffer: Buffer, bytes: u32) {
        self.buffers[self.count] = buffer;
        self.bytes[self.count] = bytes.min(BUFFER as u32);
        self.count += 1;
    }

    /// Its packets, as buffers and bytes.
    #[inline(always)]
    pub(super) fn each(&self) -> impl Iterator<Item = (Buffer, u32)> {
        let buffers = self.buffers[..self.count].iter().copied();
        buffers.zip(self.bytes[..self.count].iter().copied())
    }

    /// The first so many packets are no longer its.
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
