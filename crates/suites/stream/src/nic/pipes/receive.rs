//! From the wire into pipes.

use super::super::engine::Common;
use super::super::layout::FLIT;
use super::pair::Notification;
use super::{Notify, Pipes};
use crate::wire::vector::Vector;
use crate::wire::{Coming, Next, Wire};

/// Packets taken from the wire in one turn. Two cores that work on neighbouring lines take them from each
/// other, prefetchers and all: long bursts keep them apart.
const BURST: u32 = 256;

/// What one burst adds to the counters.
#[derive(Default)]
struct Tally {
    came: u64,
    no_queue: u64,
    ring_full: u64,
    notifications_full: u64,
    written: u64,
    flits: u64,
    spared: u64,
}

impl Pipes {
    /// Writes packets that have come to their pipes.
    #[inline(always)]
    pub(super) fn take_packets<V: Vector, W: Wire>(
        &mut self,
        now: u64,
        nic: &mut Common,
        wire: &mut W,
    ) {
        nic.steering.refresh(wire);
        let mut coming = wire.coming(now, BURST);
        if coming.left() == 0 {
            return coming.finish();
        }
        let mut tally = Tally { came: u64::from(coming.left()), ..Tally::default() };
        while coming.left() > 0 {
            let next = coming.next();
            let id = nic.steering.pipe(next.index, &coming);
            self.take_packet::<V>(id, next, now, nic, &mut tally, &mut coming);
        }
        coming.finish();
        tally.add(nic);
    }

    #[inline(always)]
    fn take_packet<V: Vector>(
        &mut self,
        id: u32,
        next: Next,
        now: u64,
        nic: &mut Common,
        tally: &mut Tally,
        coming: &mut impl Coming,
    ) {
        let mask = self.mask;
        let Some(pipe) = self.pipes.get_mut(id as usize).filter(|pipe| !pipe.ring.is_null()) else {
            tally.no_queue += 1;
            return coming.drop_next();
        };
        // One flit stays free, so that a full ring differs from an empty one.
        let room = pipe.head.wrapping_sub(pipe.tail).wrapping_sub(1) & mask;
        if next.flits > room {
            tally.ring_full += 1;
            return coming.drop_next();
        }
        let into = pipe.ring.wrapping_add(pipe.tail as usize * FLIT);
        let tail = (pipe.tail + next.flits) & mask;
        let slot = match self.notify {
            Notify::EveryPacket => {
                let pair = self.pairs.get_mut(pipe.pair as usize).and_then(Option::as_mut);
                match pair.and_then(|pair| pair.slot(self.notifications_mask)) {
                    None => {
                        tally.notifications_full += 1;
                        return coming.drop_next();
                    }
                    slot => slot,
                }
            }
            Notify::Reactively => None,
        };
        pipe.tail = tail;
        // SAFETY: the ring is mapped twice and registered, and the flits from its tail to its head are the
        // NIC's; the thread runs with the way of copying that the processor has.
        unsafe { coming.put::<V>(into) };
        if let Some(offset) = self.timestamp {
            // SAFETY: four bytes within the first flit, which was just written.
            unsafe { into.add(usize::from(offset)).cast::<u32>().write_unaligned(now as u32) };
        }
        if let Some(slot) = slot {
            let arrives = now + nic.transfer;
            let notification = Notification { arrives, pair: pipe.pair, slot, pipe: id, tail };
            self.under_way.notify(notification, nic);
        } else if pipe.notified {
            tally.spared += 1;
        } else if !pipe.due {
            pipe.due = true;
            self.due.push(id);
        }
        tally.written += 1;
        tally.flits += u64::from(next.flits);
    }

    /// Writes the notifications that are due, after all packets of the turn. Those for which there is no
    /// room stay due.
    #[inline(always)]
    pub(super) fn notify_due(&mut self, now: u64, nic: &mut Common) {
        if self.due.is_empty() {
            return;
        }
        let mut waiting = 0;
        for place in 0..self.due.len() {
            let id = self.due[place];
            if !self.notify_pipe(id, now, nic) {
                self.due[waiting] = id;
                waiting += 1;
            }
        }
        self.due.truncate(waiting);
    }

    #[inline(always)]
    fn notify_pipe(&mut self, id: u32, now: u64, nic: &mut Common) -> bool {
        let pipe = &mut self.pipes[id as usize];
        if pipe.head == pipe.tail {
            // The program has read everything since: it will not answer.
            (pipe.due, pipe.notified) = (false, false);
            nic.counters.notifications_spared += 1;
            return true;
        }
        let pair = self.pairs.get_mut(pipe.pair as usize).and_then(Option::as_mut);
        let Some(slot) = pair.and_then(|pair| pair.slot(self.notifications_mask)) else {
            return false;
        };
        (pipe.due, pipe.notified) = (false, true);
        let arrives = now + nic.transfer;
        let notification =
            Notification { arrives, pair: pipe.pair, slot, pipe: id, tail: pipe.tail };
        self.under_way.notify(notification, nic);
        true
    }
}

impl Tally {
    fn add(self, nic: &mut Common) {
        let counters = &mut nic.counters;
        counters.in_packets += self.came;
        counters.no_queue += self.no_queue;
        counters.ring_full += self.ring_full;
        counters.notifications_full += self.notifications_full;
        counters.to_memory += self.written;
        counters.flits += self.flits;
        counters.notifications_spared += self.spared;
    }
}
