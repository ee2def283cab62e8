//! From the wire into buffers.

use std::sync::atomic::Ordering;

use super::super::descriptor::{BUFFER, Descriptor};
use super::super::engine::EngineContext;
use super::super::layout::FLIT;
use super::super::placement::{BURST, FlowRun, RxPlacement, next_burst};
use super::Descriptors;
use super::queue::{Queue, Window};
use crate::wire::traffic::Packet;
use crate::wire::vector::Vector;
use crate::wire::{PacketRun, RxBurst, Wire};

/// Where one burst's packets go; record for the room that they have.
pub(super) struct Places {
    runs: Vec<PacketRun>,
    each: Each,
}

/// The place of each packet, in an array that is never longer or shorter: what grows is looked at whenever
/// something is added.
pub(in crate::nic) struct Each {
    places: Box<[*mut u8]>,
    count: usize,
}

impl Default for Places {
    fn default() -> Self {
        let places = vec![std::ptr::null_mut(); BURST as usize].into();
        Self { runs: Vec::new(), each: Each { places, count: 0 } }
    }
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
        nic: &mut EngineContext,
        wire: &mut W,
    ) {
        let Some(next_burst) = next_burst(now, nic, wire) else { return };
        let Some(mut places) = self.places.take() else { return };
        let Places { runs, each } = &mut places;
        self.place_burst(now, nic, &next_burst, runs, each);
        // SAFETY: the buffers are registered, aligned to a flit, longer than any packet, and the NIC's until
        // their descriptors say that they have been written; the thread runs with the way of copying that
        // the processor has.
        unsafe {
            next_burst.deliver_scattered::<V>(
                nic.steering.order(),
                runs,
                &each.places[..each.count],
            );
        }
        runs.clear();
        each.count = 0;
        self.places = Some(places);
    }

    /// Tells programs of their packets, after all of the turn.
    #[inline(always)]
    pub(super) fn tell<V: Vector>(&mut self, now: u64, nic: &mut EngineContext) {
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

impl RxPlacement for Descriptors {
    type Record = Each;

    #[inline(always)]
    fn allocate(
        &mut self,
        FlowRun { queue: id, flits, run }: FlowRun,
        now: u64,
        nic: &mut EngineContext,
        next_burst: &impl RxBurst,
        each: &mut Each,
    ) -> (*mut u8, u32) {
        let Some(queue) = self.queues.get_mut(id as usize).filter(|queue| !queue.rx.is_none())
        else {
            nic.counters.no_queue += u64::from(run.count);
            return (std::ptr::null_mut(), 0);
        };
        let free = queue.rx.tail.known(now).wrapping_sub(queue.rx.head) & self.rx_mask;
        let (first, slot) = (each.count, queue.rx.head);
        let most = run.count.min(free);
        let taken = queue.take_buffers(most, each, nic);
        let (list, packets) = (run.list.of(nic.steering.order()), next_burst.packets());
        queue.set_lengths(slot, taken, list, run.at, packets);
        nic.counters.refused += u64::from(taken < most);
        nic.counters.ring_full += u64::from(run.count - taken);
        nic.counters.to_memory += u64::from(taken);
        nic.counters.flits += u64::from(taken * flits);
        if taken > 0 && !queue.due {
            queue.due = true;
            self.due.push(id);
        }
        (each.places.get(first).copied().unwrap_or(std::ptr::null_mut()), taken)
    }
}

impl Queue {
    /// Takes the next buffers, as many as asked for unless one is refused; how many.
    #[inline(always)]
    fn take_buffers(&mut self, most: u32, each: &mut Each, nic: &EngineContext) -> u32 {
        let mask = self.lengths.len() as u32 - 1;
        let (mut taken, mut all_good) = (0, true);
        while taken < most && all_good {
            // SAFETY: the ring is there and has as many descriptors as there are lengths.
            let run = unsafe { self.rx.run(most - taken, mask) };
            let mut good = each.take(run, self.window);
            if let Some(other) = run.get(good) {
                let found = self.other_buffer(other, nic);
                all_good = found.is_some();
                good += each.take_one(found);
            }
            self.rx.head = (self.rx.head + good as u32) & mask;
            taken += good as u32;
        }
        taken
    }

    /// A buffer that lies elsewhere than the last did; none where it is refused.
    #[cold]
    fn other_buffer(&mut self, descriptor: &Descriptor, nic: &EngineContext) -> Option<*mut u8> {
        let address = descriptor.address.load(Ordering::Relaxed);
        let place = self.window.find(self.pair, address, BUFFER, nic)?;
        is_at_flit(address).then_some(place)
    }

    /// Keeps the lengths of packets of a list, from a place in it on, for the descriptors from this one on.
    #[inline(always)]
    fn set_lengths(&mut self, slot: u32, count: u32, list: &[u32], at: u32, packets: &[Packet]) {
        let (slot, count) = (slot as usize, count as usize);
        let one = count.min(self.lengths.len() - slot);
        if let [index] = list {
            let length = packets[*index as usize].length;
            self.lengths[slot..slot + one].fill(length);
            self.lengths[..count - one].fill(length);
            return;
        }
        let mut at = at as usize % list.len();
        for into in [slot..slot + one, 0..count - one] {
            for length in &mut self.lengths[into] {
                *length = packets[list[at] as usize].length;
                at = if at + 1 == list.len() { 0 } else { at + 1 };
            }
        }
    }
}

impl Each {
    /// Takes buffers up to the first that lies elsewhere than the last did, or not at a flit; how many.
    #[inline(always)]
    fn take(&mut self, run: &[Descriptor], window: Window) -> usize {
        let mut taken = 0;
        for (descriptor, place) in run.iter().zip(&mut self.places[self.count..]) {
            let address = descriptor.address.load(Ordering::Relaxed);
            let Some(buffer) = window.buffer(address).filter(|_| is_at_flit(address)) else {
                break;
            };
            *place = buffer;
            taken += 1;
        }
        self.count += taken;
        taken
    }

    /// Takes one that may have been refused; how many.
    fn take_one(&mut self, buffer: Option<*mut u8>) -> usize {
        let Some(buffer) = buffer else { return 0 };
        self.places[self.count] = buffer;
        self.count += 1;
        1
    }
}

#[inline(always)]
fn is_at_flit(address: u64) -> bool {
    address.is_multiple_of(FLIT as u64)
}
