//! Receiving: from the wire into buffers.

use std::sync::atomic::Ordering;

use super::super::descriptor::{BUFFER, RxDescriptor};
use super::super::engine::EngineContext;
use super::super::layout::FLIT;
use super::super::placement::{FlowRun, Placement, Places, RxPlacement};
use super::Descriptors;
use super::queue::{Queue, Window};
use crate::wire::traffic::Packet;
use crate::wire::vector::Vector;
use crate::wire::{BufferCursor, RxBurst};

/// A delayed report of a queue's packets.
pub(super) struct Report {
    arrives: u64,
    pub(super) queue: u32,
    /// Position up to which packets are received.
    until: u32,
}

impl<D: RxDescriptor> Descriptors<D> {
    /// Reports the packets of the iteration, and delayed reports that are due.
    #[inline(always)]
    pub(super) fn report<V: Vector>(&mut self, now: u64, nic: &mut EngineContext) {
        for id in self.due.drain(..) {
            let queue = &mut self.queues[id as usize];
            queue.due = false;
            queue.count_reports(nic);
            if !nic.is_delayed() {
                nic.counters.notifications += u64::from(queue.write_back::<V>(queue.rx.head));
            } else {
                let arrives = nic.arrival();
                self.pending.push_back(Report { arrives, queue: id, until: queue.rx.head });
            }
        }
        while self.pending.front().is_some_and(|first| first.arrives <= now) {
            if let Some(Report { queue, until, .. }) = self.pending.pop_front() {
                let written = self.queues[queue as usize].write_back::<V>(until);
                nic.counters.notifications += u64::from(written);
            }
        }
    }
}

impl<D: RxDescriptor> RxPlacement for Descriptors<D> {
    type Cursor = BufferCursor;

    fn placement(&mut self) -> &mut Option<Placement<BufferCursor>> {
        &mut self.placement
    }

    #[inline(always)]
    fn allocate(
        &mut self,
        FlowRun { queue: id, flits, run }: FlowRun,
        now: u64,
        nic: &mut EngineContext,
        burst: &impl RxBurst,
        places: &mut Places,
    ) -> (*mut u8, u32) {
        let Some(queue) = self.queues.get_mut(id as usize).filter(|queue| !queue.rx.is_none())
        else {
            nic.counters.no_queue += u64::from(run.count);
            return (std::ptr::null_mut(), 0);
        };
        let free = queue.rx.tail.known(now).wrapping_sub(queue.rx.head) & self.rx_mask;
        let (first, slot) = (places.count, queue.rx.head);
        let max = run.count.min(free);
        let taken = queue.take_buffers(max, places, nic);
        let (list, packets) = (run.list.of(nic.steering.order()), burst.packets());
        queue.set_lengths(slot, taken, list, run.at, packets);
        nic.counters.refused += u64::from(taken < max);
        nic.counters.ring_full += u64::from(run.count - taken);
        nic.counters.to_memory += u64::from(taken);
        nic.counters.flits += u64::from(taken * flits);
        nic.write(taken.into(), u64::from(flits) * FLIT as u64);
        if taken > 0 && !queue.due {
            queue.due = true;
            self.due.push(id);
        }
        (places.addresses.get(first).copied().unwrap_or(std::ptr::null_mut()), taken)
    }
}

impl<D: RxDescriptor> Queue<D> {
    /// Takes up to `max` buffers; fewer if one is refused. Returns their number.
    #[inline(always)]
    fn take_buffers(&mut self, max: u32, places: &mut Places, nic: &EngineContext) -> u32 {
        let mask = self.lengths.len() as u32 - 1;
        let (mut taken, mut all_good) = (0, true);
        while taken < max && all_good {
            // SAFETY: the ring exists and has as many descriptors as there are lengths.
            let run = unsafe { self.rx.run(max - taken, mask) };
            let mut good = places.take(run, self.window);
            if let Some(other) = run.get(good) {
                let found = self.other_buffer(other, nic);
                all_good = found.is_some();
                good += places.take_one(found);
            }
            self.rx.head = (self.rx.head + good as u32) & mask;
            taken += good as u32;
        }
        taken
    }

    /// Returns the address of a buffer outside the window, or `None` if it is refused.
    #[cold]
    fn other_buffer(&mut self, descriptor: &D, nic: &EngineContext) -> Option<*mut u8> {
        let address = descriptor.half().address.load(Ordering::Relaxed);
        let start = self.window.find(self.pair, address, BUFFER, nic)?;
        is_at_flit(address).then_some(start)
    }

    /// Records the lengths of packets of a list, from index `at` on, for descriptors from `slot` on.
    #[inline(always)]
    fn set_lengths(&mut self, slot: u32, count: u32, list: &[u32], at: u32, packets: &[Packet]) {
        let (slot, count) = (slot as usize, count as usize);
        let before_wrap = count.min(self.lengths.len() - slot);
        if let [index] = list {
            let length = packets[*index as usize].length;
            self.lengths[slot..slot + before_wrap].fill(length);
            self.lengths[..count - before_wrap].fill(length);
            return;
        }
        let mut at = at as usize % list.len();
        for into in [slot..slot + before_wrap, 0..count - before_wrap] {
            for length in &mut self.lengths[into] {
                *length = packets[list[at] as usize].length;
                at = if at + 1 == list.len() { 0 } else { at + 1 };
            }
        }
    }
}

impl Places {
    /// Takes buffers up to the first that is outside the window or not aligned to a flit. Returns their number.
    #[inline(always)]
    fn take(&mut self, run: &[impl RxDescriptor], window: Window) -> usize {
        let mut taken = 0;
        for (descriptor, entry) in run.iter().zip(&mut self.addresses[self.count..]) {
            let address = descriptor.half().address.load(Ordering::Relaxed);
            let Some(buffer) = window.buffer(address).filter(|_| is_at_flit(address)) else {
                break;
            };
            *entry = buffer;
            taken += 1;
        }
        self.count += taken;
        taken
    }

    /// Takes a single buffer unless it was refused. Returns the number of buffers.
    fn take_one(&mut self, buffer: Option<*mut u8>) -> usize {
        let Some(buffer) = buffer else { return 0 };
        self.addresses[self.count] = buffer;
        self.count += 1;
        1
    }
}

#[inline(always)]
fn is_at_flit(address: u64) -> bool {
    address.is_multiple_of(FLIT as u64)
}
