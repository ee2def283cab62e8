//! The receive and transmit rings of a queue.

use std::sync::atomic::Ordering;

use super::driver::Driver;
use super::mbuf::{Mbuf, reported_length};
use super::pool::{Buffer, BufferPool, object};
use super::{BURST, Burst};
use crate::nic::descriptor::{
    CONFIGURE, DONE, Descriptor, END, KIND, NOTHING, PER_LINE, RECEIVED, REPORT, RxDescriptor, send,
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

    /// Takes received packets as far as the burst has space, at most 32. Returns their number.
    #[inline(always)]
    pub(super) fn take<D: Driver>(&mut self, ring: &[D::Rx], burst: &mut Burst<D>) -> usize {
        let space = burst.space().min(BURST);
        let max = (self.filled.wrapping_sub(self.next) as usize).min(space);
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
    fn take_from<D: Driver>(&self, ring: &[D::Rx], first: usize, burst: &mut Burst<D>) -> usize {
        let start = burst.pool.start();
        let mut taken = 0;
        let (buffers, unused) = (&self.buffers[first..first + ring.len()], burst.unused());
        for ((descriptor, buffer), (into, bytes)) in ring.iter().zip(buffers).zip(unused) {
            let descriptor = descriptor.half();
            let word = descriptor.word.load(Ordering::Acquire);
            if word & RECEIVED == 0 {
                break;
            }
            (*into, *bytes) = (*buffer, reported_length(word));
            // SAFETY: the NIC has returned the buffer.
            unsafe { D::Mbuf::received(object(start, *buffer), descriptor, word, *bytes) };
            // Overlaps the fetches of all packets of a burst. To read, as DPDK does: to write gained nothing.
            prefetch(object(start, *buffer + D::Mbuf::DATA));
            taken += 1;
        }
        burst.commit_rx(taken);
        taken
    }

    /// Gives the NIC one burst of buffers if as many were received. Returns the tail to write if it did.
    #[inline(always)]
    pub(super) fn refill<M: Mbuf>(
        &mut self,
        ring: &[impl RxDescriptor],
        pool: &BufferPool<M>,
    ) -> Option<u32> {
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
            // SAFETY: the buffer was just allocated to this ring.
            let bus = unsafe { M::bus(pool.object(*buffer), pool.bus(*buffer)) };
            // Also clears the status of the previous packet.
            descriptor.half().set(bus, 0);
        }
        self.filled = self.filled.wrapping_add(BURST as u32);
        Some(self.filled.wrapping_sub(1) & mask)
    }

    /// Frees all buffers, after the NIC has stopped using them.
    pub(super) fn free_all(&mut self, pool: &BufferPool<impl Mbuf>) {
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

    /// Frees the buffers of sent packets, as the driver does.
    #[inline(always)]
    pub(super) fn clean<D: Driver>(&mut self, ring: &[Descriptor], pool: &BufferPool<D::Mbuf>) {
        if D::CLEANS_EVERY_BURST {
            while self.next.wrapping_sub(self.cleaned) as usize >= BURST
                && self.clean_batch(ring, pool)
            {}
        } else if self.space() < BURST {
            self.clean_batch(ring, pool);
        }
    }

    /// Frees the buffers of the oldest 32 packets if the NIC has reported them. Returns whether it has.
    #[inline(always)]
    fn clean_batch(&mut self, ring: &[Descriptor], pool: &BufferPool<impl Mbuf>) -> bool {
        let first = (self.cleaned & self.mask()) as usize;
        let word = ring[first + BURST - 1].word.load(Ordering::Acquire);
        if word & KIND != DONE {
            return false;
        }
        pool.free(&self.buffers[first..first + BURST]);
        self.cleaned = self.cleaned.wrapping_add(BURST as u32);
        true
    }

    /// Fills descriptors with packets of a burst, from index `from` on, as far as the ring has space, at most 32. Returns
    /// their number.
    #[inline(always)]
    pub(super) fn put<D: Driver>(
        &mut self,
        ring: &[Descriptor],
        pool: &BufferPool<D::Mbuf>,
        burst: &Burst<D>,
        from: usize,
    ) -> usize {
        let put = (burst.len() - from).min(BURST).min(self.space());
        let first = self.tail() as usize;
        let before_wrap = put.min(ring.len() - first);
        self.put_into(&ring[first..first + before_wrap], first, pool, burst.each_from(from));
        if before_wrap < put {
            let rest = burst.each_from(from + before_wrap);
            self.put_into(&ring[..put - before_wrap], 0, pool, rest);
        }
        self.next = self.next.wrapping_add(put as u32);
        self.fetch_next(ring);
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
    fn put_into<M: Mbuf>(
        &mut self,
        ring: &[Descriptor],
        first: usize,
        pool: &BufferPool<M>,
        packets: impl Iterator<Item = (Buffer, u32)>,
    ) {
        let (start, bus) = (pool.start(), pool.bus(0));
        let slots = &mut self.buffers[first..first + ring.len()];
        for ((descriptor, slot), (buffer, bytes)) in ring.iter().zip(slots).zip(packets) {
            *slot = buffer;
            let bus = bus + u64::from(buffer) * FLIT as u64;
            // SAFETY: the buffer belongs to the burst.
            let (bus, bytes) = unsafe { M::to_send(object(start, buffer), bus, bytes) };
            descriptor.set(bus, send(bytes));
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
        pool: &BufferPool<impl Mbuf>,
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
    pub(super) fn free_all(&mut self, pool: &BufferPool<impl Mbuf>) {
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
