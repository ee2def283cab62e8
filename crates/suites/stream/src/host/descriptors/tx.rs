//! The ring by which a program sends.

use std::sync::atomic::Ordering;

use super::pool::{Buffer, Pool};
use super::{BURST, Burst};
use crate::nic::descriptors::layout::{
    A_LINE, CONFIGURE, DONE, Descriptor, END, KIND, NOTHING, REPORT, send,
};
use crate::nic::layout::FLIT;
use crate::wire::vector::prefetch_to_write;

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
    pub(super) fn clean(&mut self, ring: &[Descriptor], pool: &Pool) {
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
    pub(super) fn put(&mut self, ring: &[Descriptor], pool: &Pool, burst: &mut Burst) -> usize {
        let put = burst.len().min(self.room());
        let first = self.tail() as usize;
        let one = put.min(ring.len() - first);
        self.put_into(&ring[first..first + one], first, pool, burst.each());
        if one < put {
            self.put_into(&ring[..put - one], 0, pool, burst.each().skip(one));
        }
        self.next = self.next.wrapping_add(put as u32);
        self.fetch_next(ring);
        burst.gone(put);
        put
    }

    /// Has the descriptors of the next burst fetched: the NIC read them last, and far away they are waited for.
    #[inline(always)]
    fn fetch_next(&self, ring: &[Descriptor]) {
        for line in 0..BURST / A_LINE {
            let next = self.next.wrapping_add((line * A_LINE) as u32) & self.mask();
            prefetch_to_write(std::ptr::from_ref(&ring[next as usize]).cast());
        }
    }

    /// Fills descriptors that lie one behind the other.
    #[inline(always)]
    fn put_into(
        &mut self,
        ring: &[Descriptor],
        first: usize,
        pool: &Pool,
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
        pool: &Pool,
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
    pub(super) fn empty(&mut self, pool: &Pool) {
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
