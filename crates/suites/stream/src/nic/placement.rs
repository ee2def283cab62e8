//! Which of the packets that came together go to which queue, and where.

use super::engine::EngineContext;
use crate::wire::{List, PacketRun, RxBurst, Wire};

/// Packets taken from the wire in one turn at most. Lines that another core reads right after they were
/// written cost both more than those that have left the nearest cache: long bursts, where there is so much to
/// do, keep the two apart, and what each of many queues costs a turn is spread over more packets.
pub(super) const BURST: u32 = 4096;

/// The packets that have come, of which it is known where they go; none where none has.
#[inline(always)]
pub(super) fn next_burst<'a, W: Wire>(
    now: u64,
    nic: &mut EngineContext,
    wire: &'a mut W,
) -> Option<W::RxBurst<'a>> {
    let (epoch, _) = wire.packets();
    let next_burst = wire.next_burst(now, BURST);
    if next_burst.count() == 0 {
        return None;
    }
    nic.steering.refresh(epoch, next_burst.packets());
    nic.counters.in_packets += u64::from(next_burst.count());
    Some(next_burst)
}

/// Packets of a burst that all go to one queue and have as many flits.
#[derive(Debug, Clone, Copy)]
pub(super) struct FlowRun {
    /// The queue.
    pub(super) queue: u32,
    /// Flits of each packet.
    pub(super) flits: u32,
    /// The packets, which have no place yet.
    pub(super) run: PacketRun,
}

/// An engine's queues, as they make room for packets.
pub(super) trait RxPlacement {
    /// What else is kept of a burst's packets until they are delivered.
    type Kept;

    /// Makes room: where the first of some packets goes, and for how many there is room.
    fn room(
        &mut self,
        bound: FlowRun,
        now: u64,
        nic: &mut EngineContext,
        packets: &impl RxBurst,
        kept: &mut Self::Kept,
    ) -> (*mut u8, u32);

    /// Where each packet of a burst goes, as long as there is room.
    ///
    /// A burst of more than all packets of the wire is written queue by queue: which queue's come first
    /// nobody sees, and what lies together is written together.
    #[inline(always)]
    fn choose_places(
        &mut self,
        now: u64,
        nic: &mut EngineContext,
        next_burst: &impl RxBurst,
        runs: &mut Vec<PacketRun>,
        kept: &mut Self::Kept,
    ) {
        let packets = next_burst.packets();
        let (mut index, mut left, all) =
            (next_burst.first(), next_burst.count(), packets.len() as u32);
        if left > all && !nic.steering.groups().is_empty() {
            for place in 0..nic.steering.groups().len() {
                let group = nic.steering.groups()[place];
                let (at, count) = group.among(nic.steering.order(), index, left, all);
                let run = PacketRun { place: std::ptr::null_mut(), count, list: group.list, at };
                let bound = FlowRun { queue: group.pipe, flits: group.flits, run };
                self.choose_place(bound, now, nic, next_burst, runs, kept);
            }
            return;
        }
        let list = List { start: 0, len: all };
        while left > 0 {
            let route = nic.steering.route(index % all, packets);
            let count = route.run.min(left);
            let run = PacketRun { place: std::ptr::null_mut(), count, list, at: index };
            let bound = FlowRun { queue: route.pipe, flits: route.flits, run };
            self.choose_place(bound, now, nic, next_burst, runs, kept);
            left -= count;
            // Beyond the last it is the next round.
            index += count;
        }
    }

    /// Where packets go that go to one queue. Those for which there is no room stay without a place.
    #[inline(always)]
    fn choose_place(
        &mut self,
        bound: FlowRun,
        now: u64,
        nic: &mut EngineContext,
        next_burst: &impl RxBurst,
        runs: &mut Vec<PacketRun>,
        kept: &mut Self::Kept,
    ) {
        let (place, taken) = self.room(bound, now, nic, next_burst, kept);
        let mut run = bound.run;
        let lost = run.count - taken;
        if taken > 0 {
            runs.push(PacketRun { place, count: taken, ..run });
        }
        if lost > 0 {
            std::hint::cold_path();
            (run.count, run.at) = (lost, run.at + taken);
            runs.push(run);
        }
    }
}
