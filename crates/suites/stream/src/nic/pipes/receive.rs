//! Receiving: from the wire into pipes.

use super::super::engine::{EngineContext, Owned};
use super::super::layout::FLIT;
use super::super::placement::{FlowRun, RxPlacement, next_burst};
use super::pair::Notifications;
use super::{Notify, Pipes};
use crate::wire::vector::Vector;
use crate::wire::{PacketRun, RxBurst, Wire};

/// Placement of one burst with its notifications, kept for its allocations.
#[derive(Default)]
pub(super) struct Placement {
    runs: Vec<PacketRun>,
    notifications: Vec<Notifications>,
}

impl Pipes {
    /// Writes arrived packets to their pipes.
    #[inline(always)]
    pub(super) fn take_packets<V: Vector, W: Wire>(
        &mut self,
        now: u64,
        nic: &mut EngineContext,
        wire: &mut W,
    ) {
        let Some(burst) = next_burst(now, nic, wire) else { return };
        let mut placement = std::mem::take(&mut self.placement);
        let Placement { runs, notifications } = &mut placement;
        self.place_burst(now, nic, &burst, runs, notifications);
        if let Some(Owned { client, value: timestamp }) = &mut self.timestamp {
            timestamp.expect(runs, nic.steering.order(), burst.packets(), |place| {
                nic.regions.find(*client, place as u64, FLIT).is_some()
            });
        }
        // SAFETY: the rings are mapped twice and registered, and the flits from their tails to their heads belong to the
        // NIC; the caller has checked that the CPU supports `V`.
        unsafe { burst.deliver::<V>(nic.steering.order(), &placement.runs) };
        if let Some(Owned { value: timestamp, .. }) = &self.timestamp {
            // SAFETY: the packets were just written there, and no host was notified yet.
            unsafe { timestamp.replace() };
        }
        for notifications in placement.notifications.drain(..) {
            self.pending.write(notifications, nic);
        }
        placement.runs.clear();
        self.placement = placement;
    }

    /// Writes the due notifications after all packets of the iteration. Those without space stay due.
    #[inline(always)]
    pub(super) fn notify_due(&mut self, nic: &mut EngineContext) {
        if self.due.is_empty() {
            return;
        }
        let mut waiting = 0;
        for index in 0..self.due.len() {
            let id = self.due[index];
            if !self.notify_pipe(id, nic) {
                self.due[waiting] = id;
                waiting += 1;
            }
        }
        self.due.truncate(waiting);
    }

    #[inline(always)]
    fn notify_pipe(&mut self, id: u32, nic: &mut EngineContext) -> bool {
        let pipe = &mut self.pipes[id as usize];
        if pipe.head == pipe.tail {
            // The host has read everything since, and will not answer.
            (pipe.due, pipe.notified) = (false, false);
            return true;
        }
        let tail = pipe.tail;
        let Some(notification) = self.notifications(id, 1, (tail, 0)) else {
            return false;
        };
        let pipe = &mut self.pipes[id as usize];
        (pipe.due, pipe.notified) = (false, true);
        self.pending.write(notification, nic);
        true
    }

    /// Allocates up to `max` notifications of a pipe. `tail` is the tail in the first one and `step` the growth from one
    /// to the next, in flits. Returns `None` if there is no space.
    #[inline(always)]
    fn notifications(
        &mut self,
        pipe: u32,
        max: u32,
        (tail, step): (u32, u32),
    ) -> Option<Notifications> {
        let (mask, ring_mask) = (self.notifications_mask, self.mask);
        let number = self.pipes[pipe as usize].pair;
        let pair = self.pairs.get_mut(number as usize)?.as_mut()?;
        let (first, count) = pair.slots(max, mask);
        let (buffer, pair) = (pair.rx.cast_const(), number);
        let tail = tail & ring_mask;
        (count > 0).then_some(Notifications {
            arrives: 0,
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
        _: u64,
        nic: &mut EngineContext,
        _: &impl RxBurst,
        record: &mut Vec<Notifications>,
    ) -> (*mut u8, u32) {
        let run = run.count;
        let Some(pipe) = self.pipes.get_mut(id as usize).filter(|pipe| !pipe.ring.is_null()) else {
            nic.counters.no_queue += u64::from(run);
            return (std::ptr::null_mut(), 0);
        };
        // One flit stays free to distinguish a full ring from an empty one.
        let (tail, space) =
            (pipe.tail, pipe.head.wrapping_sub(pipe.tail).wrapping_sub(1) & self.mask);
        let mut taken = run;
        if run * flits > space {
            std::hint::cold_path();
            taken = space / flits;
            nic.counters.ring_full += u64::from(run - taken);
        }
        if self.notify == Notify::EveryPacket {
            let each = self.notifications(id, taken, (tail + flits, flits));
            let notified = each.as_ref().map_or(0, |each| each.count);
            nic.counters.notifications_full += u64::from(taken - notified);
            taken = notified;
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
        nic.write(taken.into(), u64::from(flits) * FLIT as u64);
        (place, taken)
    }
}
