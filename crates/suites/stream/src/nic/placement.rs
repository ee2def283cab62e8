//! Placement of a burst's packets in the memory of their queues.

use lab::factor::LevelType;

use super::engine::EngineContext;
use crate::wire::traffic::Packet;
use crate::wire::vector::Vector;
use crate::wire::{Cursor, List, PacketRun, RxBurst, Wire};

#[cfg(test)]
mod tests;

/// Maximum number of packets received per iteration. Reading lines right after another core wrote them is expensive for
/// both, unless they have left the L1 cache. Long bursts under load keep the two apart and amortise the cost per queue.
pub(super) const BURST: u32 = 4096;

/// The order in which the NIC writes the packets of a burst to memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, LevelType)]
pub enum PlacementOrder {
    /// As they arrive on the wire, like a card.
    #[default]
    WireOrder,
    /// Pipe by pipe, if there are more packets than pipes. Contiguous packets are then written together, which spares the
    /// caches what they would bear with many pipes.
    ByPipe,
}

/// Takes the packets that have arrived and updates their routes. Returns `None` if there are none.
#[inline(always)]
fn next_burst<'a, W: Wire>(
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

/// Consecutive packets of the traffic, which are written in the order in which they arrive.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sequence {
    /// Index of the first packet in the traffic. The others follow, and the first of the traffic follows the last.
    pub(super) first: u32,
    pub(super) count: u32,
}

/// Placement of one burst, kept for its allocations.
pub(super) struct Placement<C> {
    pub(super) runs: Vec<PacketRun>,
    /// The addresses of each group's packets, if they are written in the order in which they arrive.
    cursors: Vec<C>,
    places: Places,
}

/// The address of each packet of a burst, in an array of fixed size: a vector would check its capacity at each push.
pub(super) struct Places {
    pub(super) addresses: Box<[*mut u8]>,
    pub(super) count: usize,
}

impl<C: Cursor> Placement<C> {
    /// Creates a placement for queues whose packets are contiguous.
    pub(super) fn contiguous() -> Self {
        Self::with_places(0)
    }

    /// Creates a placement for packets with separate addresses.
    pub(super) fn scattered() -> Self {
        Self::with_places(BURST as usize)
    }

    fn with_places(max: usize) -> Self {
        let addresses = vec![std::ptr::null_mut(); max].into();
        Self { runs: Vec::new(), cursors: Vec::new(), places: Places { addresses, count: 0 } }
    }

    /// Writes the packets of a burst to their addresses, and forgets these.
    ///
    /// # Safety
    /// The burst was placed here with this steering. The addresses are aligned to a flit and have space for the flits of
    /// their packets, which no thread accesses during the call. The CPU supports `V`.
    #[inline(always)]
    unsafe fn deliver<V: Vector>(&mut self, burst: impl RxBurst, nic: &EngineContext) {
        let steering = &nic.steering;
        // SAFETY: the caller guarantees the addresses. Each packet is in one run in order, or has a group, each of which has
        // a cursor.
        unsafe {
            if self.cursors.is_empty() {
                let places = &self.places.addresses[..self.places.count];
                C::deliver_runs::<V>(burst, steering.order(), &self.runs, places);
            } else {
                burst.put_in_order::<V, C>(steering.group_of(), &mut self.cursors);
            }
        }
        self.runs.clear();
        self.cursors.clear();
        self.places.count = 0;
    }
}

/// Placement of packets in ring space or buffers, which each engine allocates.
pub(super) trait RxPlacement {
    /// How the addresses of a queue's packets follow each other.
    type Cursor: Cursor;

    /// Returns the placement, which is `None` while a burst is placed.
    fn placement(&mut self) -> &mut Option<Placement<Self::Cursor>>;

    /// Allocates space for a run. Returns the address of the first packet and the number of packets that fit. The addresses
    /// of packets that are not contiguous are appended to `places`.
    fn allocate(
        &mut self,
        run: FlowRun,
        now: u64,
        nic: &mut EngineContext,
        packets: &impl RxBurst,
        places: &mut Places,
    ) -> (*mut u8, u32);

    /// Called when all packets of a burst have an address, before they are written.
    #[inline(always)]
    fn placed(&mut self, _: &[PacketRun], _: &[Packet], _: &EngineContext) {}

    /// Called when they are written. `sequence` is `None` if they were written run by run.
    #[inline(always)]
    fn written(&mut self, _: Option<Sequence>, _: &mut EngineContext) {}

    /// Writes arrived packets to the memory of their queues.
    ///
    /// # Safety
    /// Allocated addresses are aligned to a flit, have space for their packets, and belong to the NIC. The CPU supports
    /// `V`.
    #[inline(always)]
    unsafe fn take_packets<V: Vector, W: Wire>(
        &mut self,
        now: u64,
        nic: &mut EngineContext,
        wire: &mut W,
    ) {
        let Some(burst) = next_burst(now, nic, wire) else { return };
        let Some(mut placement) = self.placement().take() else { return };
        let sequence = self.place_burst(now, nic, &burst, &mut placement);
        self.placed(&placement.runs, burst.packets(), nic);
        // SAFETY: the burst was just placed, and the caller guarantees the remaining conditions.
        unsafe { placement.deliver::<V>(burst, nic) };
        self.written(sequence, nic);
        *self.placement() = Some(placement);
    }

    /// Places all packets of a burst as far as there is space. Space for a burst of more packets than queues is allocated
    /// once per queue. Returns the sequence of packets to write in the order in which they arrive, or `None` if they are to
    /// be written run by run.
    #[inline(always)]
    fn place_burst(
        &mut self,
        now: u64,
        nic: &mut EngineContext,
        burst: &impl RxBurst,
        placement: &mut Placement<Self::Cursor>,
    ) -> Option<Sequence> {
        let packets = burst.packets();
        let (mut index, mut left, all) = (burst.first(), burst.count(), packets.len() as u32);
        let groups = nic.steering.groups().len();
        if left as usize > groups && groups > 0 {
            // With a single group, both orders are the same.
            let in_order = groups > 1 && nic.placement == PlacementOrder::WireOrder;
            for number in 0..groups {
                let group = nic.steering.groups()[number];
                let (at, count) = group.among(nic.steering.order(), index, left, all);
                let run = PacketRun { place: std::ptr::null_mut(), count, list: group.list, at };
                let run = FlowRun { queue: group.pipe, flits: group.flits, run };
                let cursor = self.place_run(run, now, nic, burst, placement);
                if in_order {
                    placement.cursors.push(cursor);
                }
            }
            return in_order.then_some(Sequence { first: index, count: left });
        }
        let list = List { start: 0, len: all };
        while left > 0 {
            let route = nic.steering.route(index % all, packets);
            let count = route.run.min(left);
            let run = PacketRun { place: std::ptr::null_mut(), count, list, at: index };
            let run = FlowRun { queue: route.pipe, flits: route.flits, run };
            self.place_run(run, now, nic, burst, placement);
            left -= count;
            // An index beyond the last packet denotes the next round.
            index += count;
        }
        None
    }

    /// Places one run. Packets without space keep a null address. Returns the addresses of the others.
    #[inline(always)]
    fn place_run(
        &mut self,
        flow_run: FlowRun,
        now: u64,
        nic: &mut EngineContext,
        burst: &impl RxBurst,
        placement: &mut Placement<Self::Cursor>,
    ) -> Self::Cursor {
        let Placement { runs, places, .. } = placement;
        let first = places.count;
        let (place, taken) = self.allocate(flow_run, now, nic, burst, places);
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
        let bytes = flow_run.flits as usize * super::layout::FLIT;
        Self::Cursor::new(place, &places.addresses[first..], taken, bytes)
    }
}
