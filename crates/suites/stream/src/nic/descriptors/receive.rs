//! From the wire into buffers.

use std::sync::atomic::Ordering;

use super::super::engine::Common;
use super::super::layout::FLIT;
use super::super::placing::{Bound, Rooms};
use super::Descriptors;
use super::layout::{BUFFER, received};
use crate::wire::vector::Vector;
use crate::wire::{Coming, Stretch, Wire};

/// Packets taken from the wire in one turn: as many as for pipes.
const BURST: u32 = 4096;

/// Where one burst's packets go; kept for the room that they have.
#[derive(Default)]
pub(super) struct Places {
    stretches: Vec<Stretch>,
    each: Vec<*mut u8>,
}

/// What a program is told of a queue, on its way.
pub(super) struct Written {
    arrives: u64,
    pub(super) queue: u32,
    /// Packets have come up to there.
    until: u32,
}

impl Descriptors {
    /// Writes packets that have come to the buffers of their queues.
    #[inline(always)]
    pub(super) fn take_packets<V: Vector, W: Wire>(
        &mut self,
        now: u64,
        nic: &mut Common,
        wire: &mut W,
    ) {
        let (epoch, _) = wire.packets();
        let coming = wire.coming(now, BURST);
        if coming.count() == 0 {
            return;
        }
        nic.steering.refresh(epoch, coming.packets());
        nic.counters.in_packets += u64::from(coming.count());
        let mut places = std::mem::take(&mut self.places);
        let Places { stretches, each } = &mut places;
        self.choose_places(now, nic, &coming, stretches, each);
        // SAFETY: the buffers are registered, aligned to a flit, longer than any packet, and the NIC's until
        // their descriptors say that they have been written; the thread runs with the way of copying that
        // the processor has.
        unsafe { coming.deliver_apart::<V>(nic.steering.order(), stretches, each) };
        stretches.clear();
        each.clear();
        self.places = places;
    }

    /// Tells programs of their packets, after all of the turn.
    #[inline(always)]
    pub(super) fn tell<V: Vector>(&mut self, now: u64, nic: &mut Common) {
        for id in self.due.drain(..) {
            let queue = &mut self.queues[id as usize];
            queue.due = false;
            if nic.transfer == 0 {
                nic.counters.notifications += u64::from(queue.write_back::<V>(queue.rx.head));
            } else {
                let arrives = now + nic.transfer;
                self.under_way.push_back(Written { arrives, queue: id, until: queue.rx.head });
            }
        }
        while self.under_way.front().is_some_and(|first| first.arrives <= now) {
            if let Some(Written { queue, until, .. }) = self.under_way.pop_front() {
                let written = self.queues[queue as usize].write_back::<V>(until);
                nic.counters.notifications += u64::from(written);
            }
        }
    }
}

impl Rooms for Descriptors {
    type Kept = Vec<*mut u8>;

    #[inline(always)]
    fn room(
        &mut self,
        Bound { queue: id, flits, stretch }: Bound,
        now: u64,
        nic: &mut Common,
        coming: &impl Coming,
        places: &mut Vec<*mut u8>,
    ) -> (*mut u8, u32) {
        let Some(queue) = self.queues.get_mut(id as usize).filter(|queue| !queue.rx.is_none())
        else {
            nic.counters.no_queue += u64::from(stretch.count);
            return (std::ptr::null_mut(), 0);
        };
        let free = queue.rx.tail.known(now).wrapping_sub(queue.rx.head) & self.rx_mask;
        let first = places.len();
        let (list, packets) = (stretch.list.of(nic.steering.order()), coming.packets());
        let (mut at, mut head) = (stretch.at as usize, queue.rx.head);
        for _ in 0..stretch.count.min(free) {
            while at >= list.len() {
                at -= list.len();
            }
            // SAFETY: the ring is there, and the head within it.
            let address = unsafe { queue.rx.at(head) }.address.load(Ordering::Relaxed);
            let place = queue.window.reach(queue.pair, address, BUFFER, nic);
            let Some(place) = place.filter(|_| address.is_multiple_of(FLIT as u64)) else {
                std::hint::cold_path();
                nic.counters.refused += 1;
                break;
            };
            places.push(place);
            queue.words[head as usize] = received(packets[list[at] as usize].length);
            at += 1;
            head = (head + 1) & self.rx_mask;
        }
        queue.rx.head = head;
        let taken = (places.len() - first) as u32;
        nic.counters.ring_full += u64::from(stretch.count - taken);
        nic.counters.to_memory += u64::from(taken);
        nic.counters.flits += u64::from(taken * flits);
        if taken > 0 && !queue.due {
            queue.due = true;
            self.due.push(id);
        }
        (places.get(first).copied().unwrap_or(std::ptr::null_mut()), taken)
    }
}
