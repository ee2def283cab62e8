//! The receive and transmit rings of a queue.

use std::sync::atomic::Ordering;

use super::pool::{Buffer, BufferPool, address};
use super::{BURST, Burst};
use crate::nic::descriptor::{
    BUFFER, CONFIGURE, DONE, Descriptor, END, KIND, NOTHING, PER_LINE, RECEIVED, REPORT,
    received_bytes, send,
};
use crate::nic::layout::FLIT;
use crate::wire::vector::{prefetch, prefetch_to_write};

/// The host's side of a receive ring. Counts increase without limit; their low bits are slots.
pub(super) struct Rx {
    /// Buffer of each descriptor.
    buffers: Box<[Buffer]>,
    /// Count of the next packet to receive.
    next: u32,
    /// Count up to which there are buffers, a multiple of a burst. The NIC is given all but the last, because it
    /// considers a ring empty when it reaches the tail.
    filled: u32,
}

impl Rx {
    /// Creates the state of a ring of `size` descriptors, a power of two, without buffers.
    pub(super) fn new(size: u32) -> Self {
        Self { buffers: vec![0; size as usize].into(), next: 0, filled: 0 }
    }

    fn mask(&self) -> u32 {
        self.buffers.len() as u32 - 1
    }

    /// Takes received packets as far as the burst has space. Returns their number.
    #[inline(always)]
    pub(super) fn take(&mut self, ring: &[Descriptor], burst: &mut Burst) -> usize {
        let max = (self.filled.wrapping_sub(self.next) as usize).min(burst.space());
        let first = (self.next & self.mask()) as usize;
        // Up to the end of the ring, then from its start.
        let before_wrap = max.min(ring.len() - first);
        let mut taken = self.take_from(&ring[first..first + before_wrap], first, burst);
        if taken == before_wrap && before_wrap < max {
            taken += self.take_from(&ring[..max - before_wrap], 0, burst);
        }
        self.next = self.next.wrapping_add(taken as u32);
        taken
    }

    /// Takes packets of contiguous descriptors. Returns their number.
    #[inline(always)]
    fn take_from(&self, ring: &[Descriptor], first: usize, burst: &mut Burst) -> usize {
        let start = burst.pool.start();
        let mut taken = 0;
        let (buffers, unused) = (&self.buffers[first..first + ring.len()], burst.unused());
        for ((descriptor, buffer), (into, bytes)) in ring.iter().zip(buffers).zip(unused) {
            let word = descriptor.word.load(Ordering::Acquire);
            if word & RECEIVED == 0 {
                break;
            }
            // Packets are shorter than buffers; a length from another process is limited to the buffer.
            (*into, *bytes) = (*buffer, received_bytes(word) % BUFFER as u32);
            // Overlaps the fetches of all packets of a burst.
            prefetch(address(start, *buffer));
            taken += 1;
        }
        burst.commit_rx(taken);
        taken
    }

    /// Gives the NIC one burst of buffers if as many were received. Returns the tail to write if it did.
    #[inline(always)]
    pub(super) fn refill(&mut self, ring: &[Descriptor], pool: &BufferPool) -> Option<u32> {
        let mask = self.mask();
        if self.filled.wrapping_sub(self.next) as usize > self.buffers.len() - BURST {
            return None;
        }
        let first = (self.filled & mask) as usize;
        let buffers = &mut self.buffers[first..first + BURST];
        let taken = pool.alloc(buffers);
        if taken < BURST {
            std::hint::cold_path();
            pool.free(&buffers[..taken]);
            return None;
        }
        for (descriptor, buffer) in ring[first..first + BURST].iter().zip(buffers) {
            // Also clears the status of the previous packet.
            descriptor.set(pool.bus(*buffer), 0);
        }
        self.filled = self.filled.wrapping_add(BURST as u32);
        Some(self.filled.wrapping_sub(1) & mask)
    }

    /// Frees all buffers, after the NIC has stopped using them.
    pub(super) fn free_all(&mut self, pool: &BufferPool) {
        while self.next != self.filled {
            pool.free(&[self.buffers[(self.next & self.mask()) as usize]]);
            self.next = self.next.wrapping_add(1);
        }
    }
}

/// The host's side of a transmit ring. Counts increase without limit; their low bits are slots.
///
/// The NIC reports the last of each 32 descriptors, which frees 32 buffers at once.
pub(super) struct Tx {
    /// Buffer of each descriptor.
    buffers: Box<[Buffer]>,
    /// Count of the next descriptor to fill.
    next: u32,
    /// Count up to which buffers have been freed, a multiple of a burst.
    cleaned: u32,
}

impl Tx {
    /// Creates the state of a ring of `size` descriptors, a power of two, with nothing to send.
    pub(super) fn new(size: u32) -> Self {
        Self { buffers: vec![0; size as usize].into(), next: 0, cleaned: 0 }
    }

    fn mask(&self) -> u32 {
        self.buffers.len() as u32 - 1
    }

    /// Returns the tail for the NIC's register.
    #[inline(always)]
    pub(super) fn tail(&self) -> u32 {
        self.next & self.mask()
    }

    /// Frees the buffers of sent packets.
    #[inline(always)]
    pub(super) fn clean(&mut self, ring: &[Descriptor], pool: &BufferPool) {
        while self.next.wrapping_sub(self.cleaned) as usize >= BURST {
            let first = (self.cleaned & self.mask()) as usize;
            let word = ring[first + BURST - 1].word.load(Ordering::Acquire);
            if word & KIND != DONE {
                return;
            }
            pool.free(&self.buffers[first..first + BURST]);
            self.cleaned = self.cleaned.wrapping_add(BURST as u32);
        }
    }

    /// Fills descriptors with packets of a burst as far as the ring has space. Returns their number.
    #[inline(always)]
    pub(super) fn put(
        &mut self,
        ring: &[Descriptor],
        pool: &BufferPool,
        burst: &mut Burst,
    ) -> usize {
        let put = burst.len().min(self.space());
        let first = self.tail() as usize;
        let before_wrap = put.min(ring.len() - first);
        self.put_into(&ring[first..first + before_wrap], first, pool, burst.each());
        if before_wrap < put {
            self.put_into(&ring[..put - before_wrap], 0, pool, burst.each().skip(before_wrap));
        }
        self.next = self.next.wrapping_add(put as u32);
        self.fetch_next(ring);
        burst.remove_sent(put);
        put
    }

    /// Prefetches the descriptors of the next burst, which are in the cache of the NIC's core.
    #[inline(always)]
    fn fetch_next(&self, ring: &[Descriptor]) {
        for line in 0..BURST / PER_LINE {
            let next = self.next.wrapping_add((line * PER_LINE) as u32) & self.mask();
            prefetch_to_write(std::ptr::from_ref(&ring[next as usize]).cast());
        }
    }

    /// Fills contiguous descriptors.
    #[inline(always)]
    fn put_into(
        &mut self,
        ring: &[Descriptor],
        first: usize,
        pool: &BufferPool,
        packets: impl Iterator<Item = (Buffer, u32)>,
    ) {
        let bus = pool.bus(0);
        let slots = &mut self.buffers[first..first + ring.len()];
        for ((descriptor, slot), (buffer, bytes)) in ring.iter().zip(slots).zip(packets) {
            *slot = buffer;
            descriptor.set(bus + u64::from(buffer) * FLIT as u64, send(bytes));
        }
        // Requests a report for the last descriptor of each burst, in a separate loop because they are few.
        for slot in (first | (BURST - 1)..first + ring.len()).step_by(BURST) {
            let word = &ring[slot - first].word;
            word.store(word.load(Ordering::Relaxed) | REPORT, Ordering::Relaxed);
        }
    }

    /// Fills a descriptor that configures the NIC from `buffer`. Returns its slot, or `None` if the ring is full.
    pub(super) fn configure(
        &mut self,
        ring: &[Descriptor],
        pool: &BufferPool,
        buffer: Buffer,
    ) -> Option<usize> {
        let slot = self.tail() as usize;
        (self.space() > 0).then(|| {
            self.buffers[slot] = buffer;
            ring[slot].set(pool.bus(buffer), CONFIGURE | END | REPORT);
            self.next = self.next.wrapping_add(1);
            slot
        })
    }

    /// Returns whether the NIC has reported a descriptor.
    pub(super) fn is_done(ring: &[Descriptor], slot: usize) -> bool {
        ring[slot].word.load(Ordering::Acquire) & KIND == DONE
    }

    /// Fills an empty descriptor that makes the NIC report all descriptors before it. Returns its slot, or `None` if
    /// the ring is full. It has no buffer, so only [`free_all`](Self::free_all) may follow.
    pub(super) fn request_report(&mut self, ring: &[Descriptor]) -> Option<usize> {
        let slot = self.tail() as usize;
        (self.space() > 0).then(|| {
            ring[slot].set(0, NOTHING | REPORT);
            slot
        })
    }

    /// Frees all buffers, after the NIC has stopped using them.
    pub(super) fn free_all(&mut self, pool: &BufferPool) {
        while self.cleaned != self.next {
            pool.free(&[self.buffers[(self.cleaned & self.mask()) as usize]]);
            self.cleaned = self.cleaned.wrapping_add(1);
        }
    }

    /// Returns the number of free descriptors, less the one that distinguishes a full ring from an empty one.
    #[inline(always)]
    fn space(&self) -> usize {
        self.buffers.len() - 1 - self.next.wrapping_sub(self.cleaned) as usize
    }
}
