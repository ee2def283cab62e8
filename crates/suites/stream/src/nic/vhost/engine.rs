//! The engine for virtio: a network device whose driver is another process.

use std::sync::Arc;

use super::super::engine::{Engine, EngineContext, PairDoorbells};
use super::super::fallback::{Fallback, Policy};
use super::super::interface_config::InterfaceConfig;
use super::super::layout::FLIT;
use super::super::pcie::Read;
use super::super::placement::{FlowRun, Placement, Places, RxPlacement};
use super::super::region::{ClientId, Region};
use super::super::virtio::{HEADER, Ring, Scratch, Taken};
use super::requests::{Request, VhostControl};
use crate::wire::packet;
use crate::wire::vector::Vector;
use crate::wire::{BufferCursor, Flow, PacketRef, RxBurst, Wire};

/// Maximum number of packets sent per queue and iteration, as for descriptors.
const TRANSMISSIONS: usize = 1024;

/// The engine for virtio. Each queue is a pair of rings.
pub struct VirtioNet {
    control: VhostControl,
    /// Flows to direct to the queues in turn.
    flows: Arc<[Flow]>,
    /// How packets of other flows are directed to the queues; `None` to drop them.
    fallback: Option<Policy>,
    queues: Vec<Queue>,
    /// Whether packets are directed to the queues.
    is_steered: bool,
    /// Queues whose packets are to be reported at the end of the iteration.
    due: Vec<u32>,
    /// `None` while in use.
    placement: Option<Placement<BufferCursor>>,
    packets: Box<[PacketRef]>,
    scratch: Scratch,
}

// SAFETY: the pointers in `packets` are set and used within one call.
unsafe impl Send for VirtioNet {}

/// A pair of rings, named by what the driver does.
#[derive(Default)]
struct Queue {
    receive: Option<Ring>,
    transmit: Option<Ring>,
    /// Whether packets are to be reported at the end of this iteration.
    due: bool,
}

impl VirtioNet {
    /// Creates an engine with `queues` pairs of rings, which start when a driver has connected. Packets of each of `flows`
    /// go to one queue, flow by flow in turn; other packets by the hash of their flow.
    pub fn new(queues: u32, flows: Arc<[Flow]>, control: VhostControl) -> Self {
        let none = PacketRef { start: std::ptr::null(), bytes: 0 };
        Self {
            control,
            flows,
            fallback: Some(Policy::Hash),
            queues: (0..queues).map(|_| Queue::default()).collect(),
            is_steered: false,
            due: Vec::new(),
            placement: Some(Placement::scattered()),
            packets: vec![none; TRANSMISSIONS].into(),
            scratch: Scratch::new(TRANSMISSIONS),
        }
    }

    /// Sets how packets of other flows are directed to the queues; `None` to drop them.
    #[must_use]
    pub fn with_fallback(mut self, fallback: Option<Policy>) -> Self {
        self.fallback = fallback;
        self
    }

    /// Returns the place of a ring, by its index in the control messages. `None` if there is no such queue.
    fn ring(&mut self, index: u32) -> Option<&mut Option<Ring>> {
        let queue = self.queues.get_mut(index as usize / 2)?;
        Some(if index.is_multiple_of(2) { &mut queue.receive } else { &mut queue.transmit })
    }

    #[cold]
    fn execute(&mut self, requests: Vec<Request>, nic: &mut EngineContext) {
        if !self.is_steered {
            self.steer(nic);
        }
        for request in requests {
            // The control plane may have given up waiting for an answer.
            match request {
                Request::Start(index, ring, done) => {
                    if let Some(place) = self.ring(index) {
                        *place = Some(ring);
                    }
                    self.publish_started();
                    let _ = done.send(());
                }
                Request::Stop(index, done) => {
                    let ring = self.ring(index).and_then(Option::take);
                    self.publish_started();
                    let _ = done.send(ring);
                }
            }
        }
    }

    /// Publishes the number of rings that the NIC serves.
    fn publish_started(&self) {
        let rings = self.queues.iter().flat_map(|queue| [&queue.receive, &queue.transmit]);
        self.control.set_started(rings.flatten().count() as u32);
    }

    /// Directs packets to the queues. It does not depend on which rings run, so that packets of a flow stay in order while a
    /// driver starts its rings one by one: those for a stopped ring are dropped.
    fn steer(&mut self, nic: &mut EngineContext) {
        let all = self.queues.len() as u32;
        for (flow, queue) in self.flows.iter().zip((0..all).cycle()) {
            if nic.steering.table.insert(*flow, queue).is_err() {
                nic.counters.rules_refused += 1;
            }
        }
        if let Some(policy) = self.fallback {
            nic.steering.fallback = Fallback::new((0..all).collect(), policy);
        }
        nic.steering.changed();
        self.is_steered = true;
    }
}

impl Drop for VirtioNet {
    /// Releases waiting threads.
    fn drop(&mut self) {
        self.control.end();
    }
}

impl RxPlacement for VirtioNet {
    type Cursor = BufferCursor;

    fn placement(&mut self) -> &mut Option<Placement<BufferCursor>> {
        &mut self.placement
    }

    #[inline(always)]
    fn allocate(
        &mut self,
        FlowRun { queue: id, flits, run }: FlowRun,
        _: u64,
        nic: &mut EngineContext,
        burst: &impl RxBurst,
        places: &mut Places,
    ) -> (*mut u8, u32) {
        let queue = self.queues.get_mut(id as usize);
        let Some((ring, due)) =
            queue.and_then(|queue| Some((queue.receive.as_mut()?, &mut queue.due)))
        else {
            nic.counters.no_queue += u64::from(run.count);
            return (std::ptr::null_mut(), 0);
        };
        let first = places.count;
        let free = &mut places.addresses[first..];
        let space = HEADER + flits * FLIT as u32;
        let packets = burst.packets();
        let taken = match run.list.of(nic.steering.order()) {
            [index] => {
                let length = packets[*index as usize].length;
                ring.take_buffers(run.count, space, || length, free)
            }
            list => {
                let mut at = run.at as usize % list.len();
                let next = || {
                    let length = packets[list[at] as usize].length;
                    at = if at + 1 == list.len() { 0 } else { at + 1 };
                    length
                };
                ring.take_buffers(run.count, space, next, free)
            }
        };
        places.count += taken.count as usize;
        nic.counters.refused += u64::from(taken.refused);
        nic.counters.ring_full += u64::from(run.count - taken.count);
        nic.counters.to_memory += u64::from(taken.count);
        nic.counters.flits += u64::from(taken.count * flits);
        nic.write(taken.count.into(), space.into());
        if taken.count > 0 && !*due {
            *due = true;
            self.due.push(id);
        }
        (places.addresses.get(first).copied().unwrap_or(std::ptr::null_mut()), taken.count)
    }
}

/// Counts what a card would have read and written in a ring for buffers that were returned.
#[inline(always)]
fn count_rings(ring: &Ring, buffers: u32, sent: bool, nic: &mut EngineContext) {
    for bytes in ring.read_bytes(buffers) {
        nic.read(bytes);
    }
    for bytes in ring.written_bytes(buffers, sent) {
        nic.write(1, bytes);
    }
}

/// Programs of this process use other interfaces: this engine has no pairs of notification buffers and no regions.
impl Engine for VirtioNet {
    fn config(&self) -> InterfaceConfig {
        InterfaceConfig::Virtio { queues: self.queues.len() as u32 }
    }

    fn attach(&mut self, _: u32, _: PairDoorbells) {}

    fn detach(&mut self, _: u32, _: &mut EngineContext) {}

    #[inline(always)]
    fn poll_doorbells(&mut self, _: u64, nic: &mut EngineContext) {
        if let Some(requests) = self.control.pending() {
            self.execute(requests, nic);
        }
    }

    fn drain_doorbells(&mut self, _: ClientId, _: u64, _: &mut EngineContext) {}

    fn remove_queue(&mut self, _: u32, _: u64, _: &mut EngineContext) {}

    fn remove_region(&mut self, _: &Region, _: &mut EngineContext) {}

    #[inline(always)]
    fn transmit<W: Wire>(&mut self, _: u64, nic: &mut EngineContext, wire: &mut W) {
        for queue in &mut self.queues {
            let Some(ring) = &mut queue.transmit else { continue };
            let taken = ring.take_packets(&mut self.packets, &mut self.scratch);
            if taken == Taken::default() {
                continue;
            }
            let packets = &self.packets[..taken.count as usize];
            // SAFETY: shared memory, or the scratch space, of valid frame lengths, which belongs to the NIC until it returns
            // the buffers.
            unsafe { wire.on_transmit_scattered(packets) };
            let (mut flits, mut reads) = (0, Read::default());
            for packet in packets {
                let its_flits = packet::flits(packet.bytes as usize) as u64;
                flits += its_flits;
                reads.add(Read::of(its_flits * FLIT as u64 + u64::from(HEADER)));
            }
            nic.counters.flits_read += flits;
            nic.counters.count_read(reads);
            nic.counters.out_packets += u64::from(taken.count);
            nic.counters.refused += u64::from(taken.refused);
            let sent = ring.give_sent();
            nic.counters.transmissions += u64::from(sent);
            count_rings(ring, sent, true, nic);
            self.scratch.clear();
        }
    }

    #[inline(always)]
    fn receive<V: Vector, W: Wire>(&mut self, now: u64, nic: &mut EngineContext, wire: &mut W) {
        // SAFETY: the buffers are in shared memory, aligned to a flit, long enough for the flits of their packets, and
        // belong to the NIC until they are returned; the caller has checked that the CPU supports `V`.
        unsafe { self.take_packets::<V, W>(now, nic, wire) };
        for id in self.due.drain(..) {
            let queue = &mut self.queues[id as usize];
            queue.due = false;
            if let Some(ring) = &mut queue.receive {
                let received = ring.give_received::<V>();
                nic.counters.notifications += u64::from(received);
                count_rings(ring, received, false, nic);
            }
        }
    }
}
