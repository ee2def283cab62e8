//! Receiving: from the wire into pipes.

use super::super::engine::{EngineContext, Owned};
use super::super::layout::FLIT;
use super::super::placement::{FlowRun, Placement, Places, RxPlacement, Sequence};
use super::pair::Notifications;
use super::{Notify, Pipes};
use crate::wire::traffic::Packet;
use crate::wire::{PacketRun, RingCursor, RxBurst};

impl Pipes {
    /// Writes the notifications of the placed packets, if each has one, run by run.
    #[inline(always)]
    fn notify_run_by_run(&mut self, nic: &mut EngineContext) {
        for notifications in self.per_packet.drain(..).filter(|placed| placed.count > 0) {
            self.pending.write(notifications, nic);
        }
    }

    /// Writes the notifications of the placed packets, if each has one, in the order in which the packets arrived.
    ///
    /// The slots of a pair of buffers that were allocated for the burst are contiguous, so they can be used in any order.
    #[inline(always)]
    fn notify_in_order(&mut self, sequence: Sequence, nic: &mut EngineContext) {
        if self.per_packet.is_empty() {
            return;
        }
        let Self { per_packet, next_slots, pairs, pending, .. } = self;
        next_slots.resize(pairs.len(), 0);
        for group in per_packet.iter().rev().filter(|group| group.count > 0) {
            next_slots[group.pair as usize] = group.first;
        }
        let (mut index, all) = (sequence.first as usize, nic.steering.group_of().len());
        for _ in 0..sequence.count {
            let group = &mut per_packet[nic.steering.group_of()[index] as usize];
            index = if index + 1 == all { 0 } else { index + 1 };
            if group.count > 0 {
                let slot = &mut next_slots[group.pair as usize];
                let one = group.take_one(*slot);
                *slot = one.after();
                pending.write(one, nic);
            }
        }
        per_packet.clear();
    }

    /// Writes the due notifications after all packets of the iteration. Notifications without space stay due.
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
    type Cursor = RingCursor;

    fn placement(&mut self) -> &mut Option<Placement<RingCursor>> {
        &mut self.placement
    }

    #[inline(always)]
    fn placed(&mut self, runs: &[PacketRun], packets: &[Packet], nic: &EngineContext) {
        if let Some(Owned { client, value: timestamp }) = &mut self.timestamp {
            timestamp.expect(runs, nic.steering.order(), packets, |place| {
                nic.regions.find(*client, place as u64, FLIT).is_some()
            });
        }
    }

    #[inline(always)]
    fn written(&mut self, sequence: Option<Sequence>, nic: &mut EngineContext) {
        if let Some(Owned { value: timestamp, .. }) = &self.timestamp {
            // SAFETY: the packets were just written there, and no host was notified yet.
            unsafe { timestamp.replace() };
        }
        match sequence {
            Some(sequence) => self.notify_in_order(sequence, nic),
            None => self.notify_run_by_run(nic),
        }
    }

    #[inline(always)]
    fn allocate(
        &mut self,
        FlowRun { queue: id, flits, run }: FlowRun,
        _: u64,
        nic: &mut EngineContext,
        _: &impl RxBurst,
        _: &mut Places,
    ) -> (*mut u8, u32) {
        let run = run.count;
        let Some(pipe) = self.pipes.get_mut(id as usize).filter(|pipe| !pipe.ring.is_null()) else {
            nic.counters.no_queue += u64::from(run);
            if self.notify == Notify::EveryPacket {
                self.per_packet.push(Notifications::NONE);
            }
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
            // One entry per run, so that entries have the indices of groups.
            self.per_packet.push(each.unwrap_or(Notifications::NONE));
        } else if taken > 0 && !pipe.notified && !pipe.due {
            pipe.due = true;
            self.due.push(id);
        }
        let pipe = &mut self.pipes[id as usize];
        let place = pipe.ring.wrapping_add(tail as usize * FLIT);
        pipe.tail = (tail + taken * flits) & self.mask;
        self.unread += u64::from(taken * flits);
        nic.counters.to_memory += u64::from(taken);
        nic.counters.flits += u64::from(taken * flits);
        nic.write(taken.into(), u64::from(flits) * FLIT as u64);
        (place, taken)
    }
}
