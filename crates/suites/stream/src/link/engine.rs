//! The engine of a NIC whose packets pass an interface of Linux: the wire's packets are sent, the received ones returned to it.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use machine::SysError;

use super::filter::Filter;
use super::{BURST, Link};
use crate::nic::engine::{Engine, EngineContext, PairDoorbells};
use crate::nic::interface_config::InterfaceConfig;
use crate::nic::{ClientId, Region};
use crate::wire::vector::Vector;
use crate::wire::{List, PacketRef, PacketRun, RxBurst, Wire, packet};

/// State of a link that other threads read.
#[derive(Debug, Default)]
pub struct LinkStatus {
    stray: AtomicU64,
    error: OnceLock<SysError>,
}

impl LinkStatus {
    /// Returns the number of received packets that are not of the traffic.
    pub fn stray(&self) -> u64 {
        self.stray.load(Ordering::Relaxed)
    }

    /// Returns why the link cannot be used any more; `None` if it can.
    pub fn error(&self) -> Option<&SysError> {
        self.error.get()
    }

    /// Records an error; the first one is kept.
    #[cold]
    pub(crate) fn fail(&self, why: SysError) {
        let _ = self.error.set(why);
    }

    /// Counts stray packets. Only one thread does so.
    pub(crate) fn add_stray(&self, packets: u64) {
        let before = self.stray.load(Ordering::Relaxed);
        self.stray.store(before.wrapping_add(packets), Ordering::Relaxed);
    }
}

/// The engine of a link. Packets that the NIC receives from the wire are sent through the interface; its counters are named
/// accordingly.
pub struct LinkEngine {
    link: Box<dyn Link>,
    status: Arc<LinkStatus>,
    filter: Filter,
    /// The traffic for which `filter` and `order` are valid.
    epoch: Option<u64>,
    /// All packets of the traffic in order.
    order: Vec<u32>,
    received: Vec<PacketRef>,
    accepted: Vec<PacketRef>,
    places: Vec<*mut u8>,
    lengths: Vec<u32>,
}

// SAFETY: the pointers refer to memory of the link, and are set and used within one call.
unsafe impl Send for LinkEngine {}

impl LinkEngine {
    /// Creates an engine whose status other threads can read.
    pub fn new(link: Box<dyn Link>, status: Arc<LinkStatus>) -> Self {
        Self {
            link,
            status,
            filter: Filter::default(),
            epoch: None,
            order: Vec::new(),
            received: Vec::with_capacity(BURST),
            accepted: Vec::with_capacity(BURST),
            places: Vec::with_capacity(BURST),
            lengths: Vec::with_capacity(BURST),
        }
    }

    /// Prepares for other traffic.
    fn refresh(&mut self, wire: &impl Wire) {
        let (epoch, packets) = wire.packets();
        if self.epoch != Some(epoch) {
            self.filter = Filter::of(packets, &wire.returning_flows());
            self.order = (0..packets.len() as u32).collect();
            self.epoch = Some(epoch);
        }
    }

    /// Passes received packets of the traffic to the wire.
    #[inline(always)]
    fn take<W: Wire>(&mut self, nic: &mut EngineContext, wire: &mut W) -> Result<(), SysError> {
        self.received.clear();
        self.link.receive(BURST, &mut self.received)?;
        if self.received.is_empty() {
            return Ok(());
        }
        self.accepted.clear();
        for frame in &self.received {
            // SAFETY: the link guarantees that the frame has these bytes until it is released.
            let bytes = unsafe { std::slice::from_raw_parts(frame.start, frame.bytes as usize) };
            if self.filter.accepts(bytes) {
                self.accepted.push(*frame);
            }
        }
        // SAFETY: accepted frames have valid lengths, and belong to this thread until they are released.
        unsafe { wire.on_transmit_scattered(&self.accepted) };
        let (all, accepted) = (self.received.len() as u64, self.accepted.len() as u64);
        nic.counters.out_packets = nic.counters.out_packets.wrapping_add(accepted);
        if accepted < all {
            self.status.add_stray(all.wrapping_sub(accepted));
        }
        self.link.release();
        Ok(())
    }

    /// Sends packets that are due, as many as there is space for: a sender that is too slow is late, it drops nothing.
    #[inline(always)]
    fn send<V: Vector, W: Wire>(
        &mut self,
        now: u64,
        nic: &mut EngineContext,
        wire: &mut W,
    ) -> Result<(), SysError> {
        self.places.clear();
        self.link.reserve(BURST, &mut self.places)?;
        let Some(first_place) = self.places.first().copied() else {
            pass_time(now, wire);
            return Ok(());
        };
        let burst = wire.next_burst(now, self.places.len() as u32);
        let (count, first) = (burst.count(), burst.first());
        if count == 0 {
            return Ok(());
        }
        let packets = burst.packets();
        self.lengths.clear();
        let following = packets.iter().cycle().skip(first as usize);
        self.lengths.extend(following.take(count as usize).map(|one| u32::from(one.length)));
        let list = List { start: 0, len: self.order.len() as u32 };
        let run = PacketRun { place: first_place, count, list, at: first };
        // SAFETY: the run contains all packets of the burst in order. Each frame is aligned to a flit, has space for the
        // longest packet, and belongs to this thread until it is sent; the caller has checked that the CPU supports `V`.
        unsafe { burst.deliver_scattered::<V>(&self.order, &[run], &self.places) };
        self.link.send(&self.lengths)?;
        let flits = self.lengths.iter().map(|length| packet::flits(*length as usize) as u64);
        nic.counters.in_packets = nic.counters.in_packets.wrapping_add(count.into());
        nic.counters.flits = nic.counters.flits.wrapping_add(flits.sum());
        Ok(())
    }
}

/// Lets the wire end a trial whose time is over, although nothing can be sent: a burst that is not delivered has not arrived.
#[cold]
fn pass_time(now: u64, wire: &mut impl Wire) {
    let _ = wire.next_burst(now, 1);
}

/// No program attaches: the packets are the kernel's.
impl Engine for LinkEngine {
    fn config(&self) -> InterfaceConfig {
        InterfaceConfig::Link(self.link.mode())
    }

    fn attach(&mut self, _: u32, _: PairDoorbells) {}

    fn detach(&mut self, _: u32, _: &mut EngineContext) {}

    fn poll_doorbells(&mut self, _: u64, _: &mut EngineContext) {}

    fn drain_doorbells(&mut self, _: ClientId, _: u64, _: &mut EngineContext) {}

    fn remove_queue(&mut self, _: u32, _: u64, _: &mut EngineContext) {}

    fn remove_region(&mut self, _: &Region, _: &mut EngineContext) {}

    #[inline(always)]
    fn transmit<W: Wire>(&mut self, _: u64, nic: &mut EngineContext, wire: &mut W) {
        if self.status.error().is_some() {
            return;
        }
        self.refresh(wire);
        if let Err(why) = self.take(nic, wire) {
            self.status.fail(why);
        }
    }

    #[inline(always)]
    fn receive<V: Vector, W: Wire>(&mut self, now: u64, nic: &mut EngineContext, wire: &mut W) {
        if self.status.error().is_some() {
            pass_time(now, wire);
            return;
        }
        if let Err(why) = self.send::<V, W>(now, nic, wire) {
            self.status.fail(why);
        }
    }
}
