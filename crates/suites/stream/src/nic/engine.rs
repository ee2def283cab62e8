//! What differs between interfaces: how packets reach a program's memory, and how they leave it.

use super::counters::Counters;
use super::memory::Region;
use super::posted::Arrivals;
use super::steering::Steering;
use crate::wire::Wire;
use crate::wire::vector::Vector;

/// The NIC's side of one interface.
pub trait Engine: Send + 'static {
    /// A core's registers come into being.
    fn attach(&mut self, pair: u32, arrivals: ArrivalsOf);

    /// They go; what was written before counts first.
    fn detach(&mut self, pair: u32, nic: &mut Common);

    /// Takes what programs have written to registers.
    fn doorbells(&mut self, now: u64, nic: &mut Common);

    /// Takes all that was written to registers so far, also what is modelled to be still on its way: memory
    /// is about to go.
    fn settle(&mut self, now: u64, nic: &mut Common);

    /// Sends what programs have asked to send.
    fn transmit<W: Wire>(&mut self, now: u64, nic: &mut Common, wire: &mut W);

    /// Takes what is due from the wire.
    fn receive<V: Vector, W: Wire>(&mut self, now: u64, nic: &mut Common, wire: &mut W);
}

/// Posted writes as they arrive; only the NIC reads them.
pub struct ArrivalsOf(pub(crate) Arrivals);

/// What all engines have in common.
pub struct Common {
    /// What was counted.
    pub counters: Counters,
    /// Memory that may be touched.
    pub(crate) regions: Vec<Region>,
    pub(crate) steering: Steering,
    /// How long doorbells take, ticks; 0 where nothing is modelled.
    pub(crate) doorbell: u64,
    /// How long a transfer takes, ticks; 0 where nothing is modelled.
    pub(crate) transfer: u64,
    pub(crate) ticks_a_second: f64,
}

impl Common {
    /// Where a span of bus addresses lies, where the NIC may touch it.
    #[inline(always)]
    pub(crate) fn reach(&self, bus: u64, length: usize) -> Option<*mut u8> {
        let region = self.regions.iter().find(|region| region.holds(bus, length))?;
        Some(region.pointer().wrapping_add((bus - region.bus()) as usize))
    }
}
