//! From the wire into pipes.

use super::super::engine::Common;
use super::super::layout::FLIT;
use super::super::placing::{Bound, Rooms};
use super::pair::{Notification, Pair};
use super::{Notify, Pipe, Pipes};
use crate::wire::vector::Vector;
use crate::wire::{Coming, Stretch, Wire};

/// Packets taken from the wire in one turn at most. Lines that another core reads right after they were
/// written cost both more than those that have left the nearest cache: long bursts, where there is so much to
/// do, keep the two apart, and what each of many pipes costs a turn is spread over more packets.
const BURST: u32 = 4096;

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
        let (epoch, _) = wire.packets();
        let coming = wire.coming(now, BURST);
        if coming.count() == 0 {
            return;
        }
        nic.steering.refresh(epoch, coming.packets());
        nic.counters.in_packets += u64::from(coming.count());
        let mut places = std::mem::take(&mut self.places);
        let Places { stretches, notifications } = &mut places;
        self.choose_places(now, nic, &coming, stretches, notifications);
        if let Some(timestamp) = &mut self.timestamp {
            timestamp.expect(stretches, nic.steering.order(), coming.packets());
        }
        // SAFETY: the rings are mapped twice and registered, and the flits from their tails to their heads
        // are the NIC's; the thread runs with the way of copying that the processor has.
        unsafe { coming.deliver::<V>(nic.steering.order(), &places.stretches) };
        if let Some(timestamp) = &self.timestamp {
            // SAFETY: they were just delivered there, and no program knows of them yet.
            unsafe { timestamp.arrive() };
        }
        for notification in places.notifications.drain(..) {
            self.under_way.notify(notification, nic);
        }
        places.stretches.clear();
        self.places = places;
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

impl Rooms for Pipes {
    type Kept = Vec<Notification>;

    #[inline(always)]
    fn room(
        &mut self,
        Bound { queue: id, flits, stretch }: Bound,
        now: u64,
        nic: &mut Common,
        _: &impl Coming,
        notifications: &mut Vec<Notification>,
    ) -> (*mut u8, u32) {
        let run = stretch.count;
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
            let arrives = now + nic.transfer;
            let told = tell_each(pair, masks, pipe, id, (taken, flits), arrives, notifications);
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
}

/// A notification for each of some packets of a pipe; how many there is room for.
#[inline(always)]
fn tell_each(
    pair: Option<&mut Pair>,
    (notifications_mask, ring_mask): (u32, u32),
    pipe: &Pipe,
    id: u32,
    (packets, flits): (u32, u32),
    arrives: u64,
    notifications: &mut Vec<Notification>,
) -> u32 {
    let Some(pair) = pair else { return 0 };
    for packet in 0..packets {
        let Some(slot) = pair.slot(notifications_mask) else { return packet };
        let tail = (pipe.tail + (packet + 1) * flits) & ring_mask;
        let pair = pipe.pair;
        notifications.push(Notification { arrives, pair, slot, pipe: id, tail });
    }
    packets
}
