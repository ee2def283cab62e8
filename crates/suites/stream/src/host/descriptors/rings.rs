//! The receive and transmit rings of a queue.

use std::sync::atomic::Ordering;

use super::pool::{Buffer, BufferPool, place};
use super::{BURST, Burst};
use crate::nic::descriptor::{
    BUFFER, CONFIGURE, DONE, Descriptor, END, KIND, NOTHING, PER_LINE, RECEIVED, REPORT,
    received_bytes, send,
};
use crate::nic::layout::FLIT;
use crate::wire::vector::{prefetch, prefetch_to_write};

/// The program's side of an RX ring. Counts go on without end; their lowest bits are places.
pub(super) struct Rx {
    /// The buffer of each descriptor.
    buffers: Box<[Buffer]>,
    /// The next to be received.
    next: u32,
    /// Up to where there are buffers, a multiple of a burst. The NIC knows of all but the last: where it has used
    /// up to what it knows, it has none.
    filled: u32,
}

impl Rx {
    /// A ring of so many descriptors, a power of two, without buffers.
    pub(super) fn new(size: u32) -> Self {
        Self { buffers: vec![0; size as usize].into(), next: 0, filled: 0 }
    }

    fn mask(&self) -> u32 {
        self.buffers.len() as u32 - 1
    }

    /// Takes packets that have come, as many as the burst has room for; how many.
    #[inline(always)]
    pub(super) fn take(&mut self, ring: &[Descriptor], burst: &mut Burst) -> usize {
        let most = (self.filled.wrapping_sub(self.next) as usize).min(burst.room());
        let first = (self.next & self.mask()) as usize;
        // Up to the ring's end, and then from its beginning.
        let one = most.min(ring.len() - first);
        let mut taken = self.take_from(&ring[first..first + one], first, burst);
        if taken == one && one < most {
            taken += self.take_from(&ring[..most - one], 0, burst);
        }
        self.next = self.next.wrapping_add(taken as u32);
        taken
    }

    /// Takes packets by descriptors that lie one behind the other; how many.
    #[inline(always)]
    fn take_from(&self, ring: &[Descriptor], first: usize, burst: &mut Burst) -> usize {
        let start = burst.pool.start();
        let mut taken = 0;
        let (buffers, room) = (&self.buffers[first..first + ring.len()], burst.rest());
        for ((descriptor, buffer), (into, bytes)) in ring.iter().zip(buffers).zip(room) {
            let word = descriptor.word.load(Ordering::Acquire);
            if word & RECEIVED == 0 {
                break;
            }
            // No packet is as long as its buffer; one that is said to be longer stays within it.
            (*into, *bytes) = (*buffer, received_bytes(word) % BUFFER as u32);
            // All of a burst are under way together, where one after the other would be waited for.
            prefetch(place(start, *buffer));
            taken += 1;
        }
        burst.commit_rx(taken);
        taken
    }

    /// Gives the NIC buffers for a burst, where as many were received; the tail to write, where it did.
    #[inline(always)]
    pub(super) fn refill(&mut self, ring: &[Descriptor], pool: &BufferPool) -> Option<u32> {
        let mask = self.mask();
        if self.filled.wrapping_sub(self.next) as usize > self.buffers.len() - BURST {
            return None;
        }
        let first = (self.filled & mask) as usize;
        let buffers = &mut self.buffers[first..first + BURST];
        let taken = pool.take(buffers);
        if taken < BURST {
            std::hint::cold_path();
            pool.give(&buffers[..taken]);
            return None;
        }
        for (descriptor, buffer) in ring[first..first + BURST].iter().zip(buffers) {
            // What the descriptor said of the packet before is gone with it.
            descriptor.set(pool.bus(*buffer), 0);
        }
        self.filled = self.filled.wrapping_add(BURST as u32);
        Some(self.filled.wrapping_sub(1) & mask)
    }

    /// Gives all buffers back, which the NIC has no more.
    pub(super) fn empty(&mut self, pool: &BufferPool) {
        while self.next != self.filled {
            pool.give(&[self.buffers[(self.next & self.mask()) as usize]]);
            self.next = self.next.wrapping_add(1);
        }
    }
}

/// The program's side of a TX ring. Counts go on without end; their lowest bits are places.
///
/// The NIC reports every 32nd descriptor, the last of each 32: so many buffers come back at once.
pub(super) struct Tx {
    /// The buffer of each descriptor.
    buffers: Box<[Buffer]>,
    /// The next to be filled.
    next: u32,
    /// Up to where buffers have come back, a multiple of a burst.
    cleaned: u32,
}

impl Tx {
    /// A ring of so many descriptors, a power of two, with nothing to send.
    pub(super) fn new(size: u32) -> Self {
        Self { buffers: vec![0; size as usize].into(), next: 0, cleaned: 0 }
    }

    fn mask(&self) -> u32 {
        self.buffers.len() as u32 - 1
    }

    /// Up to where the ring is filled, as the NIC's register has it.
    #[inline(always)]
    pub(super) fn tail(&self) -> u32 {
        self.next & self.mask()
    }

    /// Gives back the buffers of what was sent.
    #[inline(always)]
    pub(super) fn clean(&mut self, ring: &[Descriptor], pool: &BufferPool) {
        while self.next.wrapping_sub(self.cleaned) as usize >= BURST {
            let first = (self.cleaned & self.mask()) as usize;
            let word = ring[first + BURST - 1].word.load(Ordering::Acquire);
            if word & KIND != DONE {
                return;
            }
            pool.give(&self.buffers[first..first + BURST]);
            self.cleaned = self.cleaned.wrapping_add(BURST as u32);
        }
    }

    /// Fills descriptors with the packets of a burst, as many as there is room for; how many.
    #[inline(always)]
    pub(super) fn put(
        &mut self,
        ring: &[Descriptor],
        pool: &BufferPool,
        burst: &mut Burst,
    ) -> usize {
        let put = burst.len().min(self.room());
        let first = self.tail() as usize;
        let one = put.min(ring.len() - first);
        self.put_into(&ring[first..first + one], first, pool, burst.each());
        if one < put {
            self.put_into(&ring[..put - one], 0, pool, burst.each().skip(one));
        }
        self.next = self.next.wrapping_add(put as u32);
        self.fetch_next(ring);
        burst.remove_sent(put);
        put
    }

    /// Has the descriptors of the next burst fetched: the NIC read them last, and far away they are waited for.
    #[inline(always)]
    fn fetch_next(&self, ring: &[Descriptor]) {
        for line in 0..BURST / PER_LINE {
            let next = self.next.wrapping_add((line * PER_LINE) as u32) & self.mask();
            prefetch_to_write(std::ptr::from_ref(&ring[next as usize]).cast());
        }
    }

    /// Fills descriptors that lie one behind the other.
    #[inline(always)]
    fn put_into(
        &mut self,
        ring: &[Descriptor],
        first: usize,
        pool: &BufferPool,
        packets: impl Iterator<Item = (Buffer, u32)>,
    ) {
        let bus = pool.bus(0);
        let own = &mut self.buffers[first..first + ring.len()];
        for ((descriptor, own), (buffer, bytes)) in ring.iter().zip(own).zip(packets) {
            *own = buffer;
            descriptor.set(bus + u64::from(buffer) * FLIT as u64, send(bytes));
        }
        // The last of each burst is to be reported; they are few, so not each is asked whether it is.
        for slot in (first | (BURST - 1)..first + ring.len()).step_by(BURST) {
            let word = &ring[slot - first].word;
            word.store(word.load(Ordering::Relaxed) | REPORT, Ordering::Relaxed);
        }
    }

    /// Fills a descriptor by which the NIC is configured, as the buffer says; its place. None where there is no
    /// room.
    pub(super) fn configure(
        &mut self,
        ring: &[Descriptor],
        pool: &BufferPool,
        buffer: Buffer,
    ) -> Option<usize> {
        let slot = self.tail() as usize;
        (self.room() > 0).then(|| {
            self.buffers[slot] = buffer;
            ring[slot].set(pool.bus(buffer), CONFIGURE | END | REPORT);
            self.next = self.next.wrapping_add(1);
            slot
        })
    }

    /// Whether a descriptor that was to be reported is done.
    pub(super) fn is_done(ring: &[Descriptor], slot: usize) -> bool {
        ring[slot].word.load(Ordering::Acquire) & KIND == DONE
    }

    /// Fills a descriptor of nothing, by which the NIC reports all before it: its place. None where there is no
    /// room. It has no buffer: after it, nothing but [`empty`](Self::empty) may follow.
    pub(super) fn ask(&mut self, ring: &[Descriptor]) -> Option<usize> {
        let slot = self.tail() as usize;
        (self.room() > 0).then(|| {
            ring[slot].set(0, NOTHING | REPORT);
            slot
        })
    }

    /// Gives all buffers back, which the NIC has no more.
    pub(super) fn empty(&mut self, pool: &BufferPool) {
        while self.cleaned != self.next {
            pool.give(&[self.buffers[(self.cleaned & self.mask()) as usize]]);
            self.cleaned = self.cleaned.wrapping_add(1);
        }
    }

    /// One descriptor stays free, so that a full ring differs from an empty one.
    #[inline(always)]
    fn room(&self) -> usize {
        self.buffers.len() - 1 - self.next.wrapping_sub(self.cleaned) as usize
    }
}
