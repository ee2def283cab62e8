//! From the wire into pipes.

use super::super::engine::{EngineContext, Owned};
use super::super::layout::FLIT;
use super::super::placement::{FlowRun, RxPlacement, next_burst};
use super::pair::Notifications;
use super::{Notify, Pipes};
use crate::wire::vector::Vector;
use crate::wire::{PacketRun, RxBurst, Wire};

/// Where one burst's packets go, and the notifications of each; record for the room that they have.
#[derive(Default)]
pub(super) struct Places {
    runs: Vec<PacketRun>,
    notifications: Vec<Notifications>,
}

impl Pipes {
    /// Writes packets that have come to their pipes.
    #[inline(always)]
    pub(super) fn take_packets<V: Vector, W: Wire>(
        &mut self,
        now: u64,
        nic: &mut EngineContext,
        wire: &mut W,
    ) {
        let Some(next_burst) = next_burst(now, nic, wire) else { return };
        let mut places = std::mem::take(&mut self.places);
        let Places { runs, notifications } = &mut places;
        self.place_burst(now, nic, &next_burst, runs, notifications);
        if let Some(Owned { client, value: timestamp }) = &mut self.timestamp {
            timestamp.expect(runs, nic.steering.order(), next_burst.packets(), |place| {
                nic.regions.find(*client, place as u64, FLIT).is_some()
            });
        }
        // SAFETY: the rings are mapped twice and registered, and the flits from their tails to their heads
        // are the NIC's; the thread runs with the way of copying that the processor has.
        unsafe { next_burst.deliver::<V>(nic.steering.order(), &places.runs) };
        if let Some(Owned { value: timestamp, .. }) = &self.timestamp {
            // SAFETY: they were just delivered there, and no program knows of them yet.
            unsafe { timestamp.arrive() };
        }
        for notifications in places.notifications.drain(..) {
            self.under_way.notify(notifications, nic);
        }
        places.runs.clear();
        self.places = places;
    }

    /// Writes the notifications that are due, after all packets of the turn. Those for which there is no
    /// room stay due.
    #[inline(always)]
    pub(super) fn notify_due(&mut self, now: u64, nic: &mut EngineContext) {
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
    fn notify_pipe(&mut self, id: u32, now: u64, nic: &mut EngineContext) -> bool {
        let pipe = &mut self.pipes[id as usize];
        if pipe.head == pipe.tail {
            // The program has read everything since: it will not answer.
            (pipe.due, pipe.notified) = (false, false);
            return true;
        }
        let (tail, arrives) = (pipe.tail, now + nic.transfer);
        let Some(notification) = self.notifications(id, 1, (tail, 0), arrives) else {
            return false;
        };
        let pipe = &mut self.pipes[id as usize];
        (pipe.due, pipe.notified) = (false, true);
        self.under_way.notify(notification, nic);
        true
    }

    /// Notifications of a pipe, as many as asked for unless there is no room for all: what the first says, and
    /// each more than that before it, in flits. None where there is room for none.
    #[inline(always)]
    fn notifications(
        &mut self,
        pipe: u32,
        most: u32,
        (tail, step): (u32, u32),
        arrives: u64,
    ) -> Option<Notifications> {
        let (mask, ring_mask) = (self.notifications_mask, self.mask);
        let number = self.pipes[pipe as usize].pair;
        let pair = self.pairs.get_mut(number as usize)?.as_mut()?;
        let (first, count) = pair.slots(most, mask);
        let (buffer, pair) = (pair.rx.cast_const(), number);
        let tail = tail & ring_mask;
        (count > 0).then_some(Notifications {
            arrives,
            pair,
            buffer,
            mask,
            first,
            count,
            pipe,
            tail,
            step,
            ring_mask,
        })
    }
}

impl RxPlacement for Pipes {
    type Record = Vec<Notifications>;

    #[inline(always)]
    fn allocate(
        &mut self,
        FlowRun { queue: id, flits, run }: FlowRun,
        now: u64,
        nic: &mut EngineContext,
        _: &impl RxBurst,
        record: &mut Vec<Notifications>,
    ) -> (*mut u8, u32) {
        let run = run.count;
        let Some(pipe) = self.pipes.get_mut(id as usize).filter(|pipe| !pipe.ring.is_null()) else {
            nic.counters.no_queue += u64::from(run);
            return (std::ptr::null_mut(), 0);
        };
        // One flit stays free, so that a full ring differs from an empty one.
        let (tail, room) =
            (pipe.tail, pipe.head.wrapping_sub(pipe.tail).wrapping_sub(1) & self.mask);
        let mut taken = run;
        if run * flits > room {
            std::hint::cold_path();
            taken = room / flits;
            nic.counters.ring_full += u64::from(run - taken);
        }
        if self.notify == Notify::EveryPacket {
            let each = self.notifications(id, taken, (tail + flits, flits), now + nic.transfer);
            let told = each.as_ref().map_or(0, |each| each.count);
            nic.counters.notifications_full += u64::from(taken - told);
            taken = told;
            record.extend(each);
        } else if taken > 0 && !pipe.notified && !pipe.due {
            pipe.due = true;
            self.due.push(id);
        }
        let pipe = &mut self.pipes[id as usize];
        let place = pipe.ring.wrapping_add(tail as usize * FLIT);
        pipe.tail = (tail + taken * flits) & self.mask;
        nic.counters.to_memory += u64::from(taken);
        nic.counters.flits += u64::from(taken * flits);
        (place, taken)
    }
}
