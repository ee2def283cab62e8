//! Placement of a burst's packets in the memory of their queues.

use super::engine::EngineContext;
use crate::wire::{List, PacketRun, RxBurst, Wire};

/// Maximum number of packets received per iteration. Reading lines right after another core wrote them is expensive for
/// both, unless they have left the L1 cache. Long bursts under load keep the two apart and amortise the cost per queue.
pub(super) const BURST: u32 = 4096;

/// Takes the packets that have arrived and updates their routes. Returns `None` if there are none.
#[inline(always)]
pub(super) fn next_burst<'a, W: Wire>(
    now: u64,
    nic: &mut EngineContext,
    wire: &'a mut W,
) -> Option<W::RxBurst<'a>> {
    let (epoch, _) = wire.packets();
    let burst = wire.next_burst(now, BURST);
    if burst.count() == 0 {
        return None;
    }
    nic.steering.refresh(epoch, burst.packets());
    nic.counters.in_packets += u64::from(burst.count());
    Some(burst)
}

/// Packets of a burst that go to one queue and have the same number of flits.
#[derive(Debug, Clone, Copy)]
pub(super) struct FlowRun {
    /// The queue.
    pub(super) queue: u32,
    /// Flits of each packet.
    pub(super) flits: u32,
    /// The packets, not yet placed.
    pub(super) run: PacketRun,
}

/// Allocation of ring space or buffers, implemented by each engine.
pub(super) trait RxPlacement {
    /// State that the engine keeps for a burst until its delivery.
    type Record;

    /// Allocates space for a run. Returns the address of the first packet and the number of packets that fit.
    fn allocate(
        &mut self,
        run: FlowRun,
        now: u64,
        nic: &mut EngineContext,
        packets: &impl RxBurst,
        record: &mut Self::Record,
    ) -> (*mut u8, u32);

    /// Places all packets of a burst as far as there is space.
    ///
    /// A burst that is longer than the replayed traffic is written queue by queue: the order between queues is not
    /// observable, and contiguous packets are written together.
    #[inline(always)]
    fn place_burst(
        &mut self,
        now: u64,
        nic: &mut EngineContext,
        burst: &impl RxBurst,
        runs: &mut Vec<PacketRun>,
        record: &mut Self::Record,
    ) {
        let packets = burst.packets();
        let (mut index, mut left, all) = (burst.first(), burst.count(), packets.len() as u32);
        if left > all && !nic.steering.groups().is_empty() {
            for number in 0..nic.steering.groups().len() {
                let group = nic.steering.groups()[number];
                let (at, count) = group.among(nic.steering.order(), index, left, all);
                let run = PacketRun { place: std::ptr::null_mut(), count, list: group.list, at };
                let run = FlowRun { queue: group.pipe, flits: group.flits, run };
                self.place_run(run, now, nic, burst, runs, record);
            }
            return;
        }
        let list = List { start: 0, len: all };
        while left > 0 {
            let route = nic.steering.route(index % all, packets);
            let count = route.run.min(left);
            let run = PacketRun { place: std::ptr::null_mut(), count, list, at: index };
            let run = FlowRun { queue: route.pipe, flits: route.flits, run };
            self.place_run(run, now, nic, burst, runs, record);
            left -= count;
            // An index beyond the last packet denotes the next round.
            index += count;
        }
    }

    /// Places one run. Packets without space keep a null address.
    #[inline(always)]
    fn place_run(
        &mut self,
        flow_run: FlowRun,
        now: u64,
        nic: &mut EngineContext,
        burst: &impl RxBurst,
        runs: &mut Vec<PacketRun>,
        record: &mut Self::Record,
    ) {
        let (place, taken) = self.allocate(flow_run, now, nic, burst, record);
        let mut run = flow_run.run;
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
