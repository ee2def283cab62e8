//! From the wire into pipes.

use super::super::engine::Common;
use super::super::layout::FLIT;
use super::pair::{Notification, Pair};
use super::{Notify, Pipe, Pipes};
use crate::wire::vector::Vector;
use crate::wire::{Coming, List, Stretch, Wire};

/// Packets taken from the wire in one turn. Lines that another core reads right after they were written cost
/// both more than those that have left the nearest cache: long bursts, where there is so much to do, keep
/// the two apart.
const BURST: u32 = 1024;

/// Where one burst's packets go, and the notifications of each; kept for the room that they have.
#[derive(Default)]
pub(super) struct Places {
    stretches: Vec<Stretch>,
    notifications: Vec<Notification>,
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
        let coming = wire.coming(now, BURST);
        if coming.count() == 0 {
            return;
        }
        nic.counters.in_packets += u64::from(coming.count());
        let mut places = std::mem::take(&mut self.places);
        self.choose_places(now, nic, &coming, &mut places);
        // SAFETY: the rings are mapped twice and registered, and the flits from their tails to their heads
        // are the NIC's; the thread runs with the way of copying that the processor has.
        unsafe { coming.deliver::<V>(nic.steering.order(), &places.stretches) };
        if let Some(timestamp) = &self.timestamp {
            // SAFETY: they were just delivered there, and no program knows of them yet.
            unsafe { timestamp.arrive(&places.stretches) };
        }
        for notification in places.notifications.drain(..) {
            self.under_way.notify(notification, nic);
        }
        places.stretches.clear();
        self.places = places;
    }

    /// Where each packet goes: one behind the other into its pipe, as long as there is room.
    ///
    /// A burst of more than all packets of the wire is written pipe by pipe: which pipe's come first nobody
    /// sees, and what lies together is written together.
    #[inline(always)]
    fn choose_places(
        &mut self,
        now: u64,
        nic: &mut Common,
        coming: &impl Coming,
        places: &mut Places,
    ) {
        let packets = coming.packets();
        let (mut index, mut left, all) = (coming.first(), coming.count(), packets.len() as u32);
        if left > all && !nic.steering.groups().is_empty() {
            for place in 0..nic.steering.groups().len() {
                let group = nic.steering.groups()[place];
                let (at, count) = group.among(nic.steering.order(), index, left, all);
                let stretch = Stretch { place: std::ptr::null_mut(), count, list: group.list, at };
                self.choose_place(group.pipe, group.flits, stretch, now, nic, places);
            }
            return;
        }
        let list = List { start: 0, len: all };
        while left > 0 {
            let route = nic.steering.route(index % all, packets);
            let count = route.run.min(left);
            let stretch = Stretch { place: std::ptr::null_mut(), count, list, at: index };
            self.choose_place(route.pipe, route.flits, stretch, now, nic, places);
            left -= count;
            // Beyond the last it is the next round.
            index += count;
        }
    }

    /// Where a stretch of packets goes that all go to one pipe and have as many flits. Those for which
    /// there is no room stay without a place.
    #[inline(always)]
    fn choose_place(
        &mut self,
        id: u32,
        flits: u32,
        mut stretch: Stretch,
        now: u64,
        nic: &mut Common,
        places: &mut Places,
    ) {
        let (place, taken) = self.room(id, flits, stretch.count, now, nic, places);
        let lost = stretch.count - taken;
        if taken > 0 {
            places.stretches.push(Stretch { place, count: taken, ..stretch });
        }
        if lost > 0 {
            std::hint::cold_path();
            (stretch.count, stretch.at) = (lost, stretch.at + taken);
            places.stretches.push(stretch);
        }
    }

    /// Makes room for packets in a pipe: where, and for how many.
    #[inline(always)]
    fn room(
        &mut self,
        id: u32,
        flits: u32,
        run: u32,
        now: u64,
        nic: &mut Common,
        places: &mut Places,
    ) -> (*mut u8, u32) {
        let Some(pipe) = self.pipes.get_mut(id as usize).filter(|pipe| !pipe.ring.is_null()) else {
            nic.counters.no_queue += u64::from(run);
            return (std::ptr::null_mut(), 0);
        };
        // One flit stays free, so that a full ring differs from an empty one.
        let room = pipe.head.wrapping_sub(pipe.tail).wrapping_sub(1) & self.mask;
        let mut taken = run;
        if run * flits > room {
            std::hint::cold_path();
            taken = room / flits;
            nic.counters.ring_full += u64::from(run - taken);
        }
        if self.notify == Notify::EveryPacket {
            let pair = self.pairs.get_mut(pipe.pair as usize).and_then(Option::as_mut);
            let masks = (self.notifications_mask, self.mask);
            let told = tell_each(pair, masks, pipe, id, (taken, flits), places);
            for notification in &mut places.notifications {
                notification.arrives = now + nic.transfer;
            }
            nic.counters.notifications_full += u64::from(taken - told);
            taken = told;
        } else if taken > 0 && !pipe.notified && !pipe.due {
            pipe.due = true;
            self.due.push(id);
        }
        let place = pipe.ring.wrapping_add(pipe.tail as usize * FLIT);
        pipe.tail = (pipe.tail + taken * flits) & self.mask;
        nic.counters.to_memory += u64::from(taken);
        nic.counters.flits += u64::from(taken * flits);
        (place, taken)
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

/// A notification for each of some packets of a pipe; how many there is room for.
#[inline(always)]
fn tell_each(
    pair: Option<&mut Pair>,
    (notifications_mask, ring_mask): (u32, u32),
    pipe: &Pipe,
    id: u32,
    (packets, flits): (u32, u32),
    places: &mut Places,
) -> u32 {
    let Some(pair) = pair else { return 0 };
    for packet in 0..packets {
        let Some(slot) = pair.slot(notifications_mask) else { return packet };
        let tail = (pipe.tail + (packet + 1) * flits) & ring_mask;
        let pair = pipe.pair;
        places.notifications.push(Notification { arrives: 0, pair, slot, pipe: id, tail });
    }
    packets
}
