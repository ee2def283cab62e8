//! A burst: packets that are received or sent together.

use std::rc::Rc;

use super::driver::{Dpdk, Driver};
use super::mbuf::Mbuf;
use super::pool::{Buffer, BufferPool, object};
use crate::nic::descriptor::BUFFER;

/// Number of descriptors that a driver fills, reads and cleans at a time, and number of packets in a burst unless the
/// program chooses another.
pub const BURST: usize = 32;
/// Maximum number of packets in a burst.
pub const MAX_BURST: usize = 512;

/// Packets in buffers that belong to the program until they are sent or [cleared](Self::clear).
pub struct Burst<D: Driver = Dpdk> {
    pub(super) pool: Rc<BufferPool<D::Mbuf>>,
    buffers: Box<[Buffer]>,
    bytes: Box<[u32]>,
    count: usize,
}

impl<D: Driver> Burst<D> {
    /// Creates a burst of up to `max` packets.
    pub(super) fn new(pool: &Rc<BufferPool<D::Mbuf>>, max: usize) -> Self {
        let [buffers, bytes] = [(); 2].map(|()| vec![0; max].into());
        Self { pool: Rc::clone(pool), buffers, bytes, count: 0 }
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
        let start = pool.start();
        buffers[..*count].iter().zip(&bytes[..*count]).map(move |(buffer, bytes)| {
            // SAFETY: a buffer is in one place at a time, so the buffers of a burst differ and nothing else uses them;
            // lengths are limited to that of a buffer; and the burst is borrowed as long as the slice.
            unsafe {
                let (packet, bytes) = D::Mbuf::packet(object(start, *buffer), *bytes);
                // Otherwise a loop over `next` compares each address with 0.
                std::hint::assert_unchecked(!packet.is_null());
                std::slice::from_raw_parts_mut(packet, bytes)
            }
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
        if self.space() == 0 || self.pool.alloc(&mut buffer) == 0 {
            return None;
        }
        self.push(buffer[0], bytes as u32);
        self.packets().last()
    }

    /// Removes the packets with these indices, in ascending order, and returns their buffers to the pool. The others remain in
    /// order.
    ///
    /// # Panics
    /// Panics if there is no such packet.
    #[inline(always)]
    pub fn remove(&mut self, indices: &[u32]) {
        let mut removed = indices.iter().map(|index| *index as usize).peekable();
        let Some(first) = removed.peek().copied() else { return };
        let mut kept = first;
        for index in first..self.count {
            if removed.next_if_eq(&index).is_none() {
                self.buffers.swap(kept, index);
                self.bytes.swap(kept, index);
                kept += 1;
            }
        }
        assert!(removed.next().is_none(), "a packet that the burst does not have");
        self.pool.free(&self.buffers[kept..self.count]);
        self.count = kept;
    }

    /// Returns all buffers to the pool.
    pub fn clear(&mut self) {
        self.pool.free(&self.buffers[..self.count]);
        self.count = 0;
    }

    /// Returns the number of packets that can be added.
    #[inline(always)]
    pub(super) fn space(&self) -> usize {
        self.buffers.len() - self.count
    }

    /// Iterates over the unused entries: their buffers and lengths.
    #[inline(always)]
    pub(super) fn unused(&mut self) -> impl Iterator<Item = (&mut Buffer, &mut u32)> {
        self.buffers[self.count..].iter_mut().zip(&mut self.bytes[self.count..])
    }

    /// Adds the first `packets` unused entries, which have been filled.
    #[inline(always)]
    pub(super) fn commit_rx(&mut self, packets: usize) {
        self.count = (self.count + packets).min(self.buffers.len());
    }

    /// Adds a packet; the burst must have space.
    fn push(&mut self, buffer: Buffer, bytes: u32) {
        // SAFETY: the buffer was just allocated to this burst.
        unsafe { D::Mbuf::written(self.pool.object(buffer), bytes) };
        self.buffers[self.count] = buffer;
        self.bytes[self.count] = bytes.min(BUFFER as u32);
        self.count += 1;
    }

    /// Iterates over the packets from index `first` on as buffers and lengths.
    #[inline(always)]
    pub(super) fn each_from(&self, first: usize) -> impl Iterator<Item = (Buffer, u32)> {
        let buffers = self.buffers[first..self.count].iter().copied();
        buffers.zip(self.bytes[first..self.count].iter().copied())
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

impl<D: Driver> Drop for Burst<D> {
    fn drop(&mut self) {
        self.clear();
    }
}
