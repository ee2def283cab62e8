//! The ring from which a program receives.

use std::sync::atomic::Ordering;

use super::pool::{Buffer, Pool, place};
use super::{BURST, Burst};
use crate::nic::descriptors::layout::{BUFFER, Descriptor, RECEIVED, received_bytes};
use crate::wire::vector::prefetch;

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
        burst.came(taken);
        taken
    }

    /// Gives the NIC buffers for a burst, where as many were received; the tail to write, where it did.
    #[inline(always)]
    pub(super) fn refill(&mut self, ring: &[Descriptor], pool: &Pool) -> Option<u32> {
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
    pub(super) fn empty(&mut self, pool: &Pool) {
        while self.next != self.filled {
            pool.give(&[self.buffers[(self.next & self.mask()) as usize]]);
            self.next = self.next.wrapping_add(1);
        }
    }
}
