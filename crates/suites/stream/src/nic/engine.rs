//! What differs between interfaces: how packets reach a program's memory, and how they leave it.

use super::counters::Counters;
use super::fallback::{Fallback, Policy};
use super::flow_table::Full;
use super::form::Form;
use super::layout::FLIT;
use super::posted::Arrivals;
use super::region::{Program, Region, Regions};
use super::steering::Steering;
use crate::wire::Wire;
use crate::wire::flow::Flow;
use crate::wire::vector::Vector;

/// The NIC's side of one interface.
pub trait Engine: Send + 'static {
    /// What programs must lay out as it does.
    fn form(&self) -> Form;

    /// A core's registers come into being.
    fn attach(&mut self, pair: u32, arrivals: ArrivalsOf);

    /// They go, with its pipes and all rules of those; what was written before counts first.
    fn detach(&mut self, pair: u32, nic: &mut Common);

    /// Takes what programs have written to registers.
    fn doorbells(&mut self, now: u64, nic: &mut Common);

    /// Takes all that was written to registers so far, also what is modelled to be still on its way: memory
    /// is about to go.
    fn settle(&mut self, now: u64, nic: &mut Common);

    /// This memory goes: what lies in it is not there any more, whatever its program has said.
    fn forget(&mut self, region: &Region, nic: &mut Common);

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
    pub(crate) regions: Regions,
    /// Whose each pair of notification buffers is.
    pub(crate) programs: Vec<Program>,
    pub(crate) steering: Steering,
    /// How long doorbells take, ticks; 0 where nothing is modelled.
    pub(crate) doorbell: u64,
    /// How long a transfer takes, ticks; 0 where nothing is modelled.
    pub(crate) transfer: u64,
    pub(crate) ticks_a_second: f64,
}

impl Common {
    /// Where a span of bus addresses lies, where the program that has the pair may have it touched.
    #[inline(always)]
    pub(crate) fn reach(&self, pair: u32, bus: u64, length: usize) -> Option<*mut u8> {
        let region = self.region(pair, bus, length)?;
        Some(region.pointer().wrapping_add((bus - region.bus()) as usize))
    }

    /// A pair of notification buffers is a program's from now on.
    pub(super) fn belongs(&mut self, pair: u32, program: Program) {
        let index = pair as usize;
        if self.programs.len() <= index {
            self.programs.resize(index + 1, Program::default());
        }
        self.programs[index] = program;
    }

    /// The memory that holds a span of bus addresses, where it is of the program that has the pair.
    #[inline(always)]
    pub(crate) fn region(&self, pair: u32, bus: u64, length: usize) -> Option<&Region> {
        self.regions.find(*self.programs.get(pair as usize)?, bus, length)
    }

    /// Where a ring of so many bytes lies that the program with a pair names: null where it names none, or
    /// one that the NIC refuses.
    pub(crate) fn ring(&mut self, pair: u32, bus: u64, length: usize) -> *mut u8 {
        if bus == 0 {
            return std::ptr::null_mut();
        }
        let aligned = bus.is_multiple_of(FLIT as u64);
        let ring = self.reach(pair, bus, length).filter(|_| aligned);
        self.counters.refused += u64::from(ring.is_none());
        ring.unwrap_or(std::ptr::null_mut())
    }

    /// Packets of a flow go to a queue. Gives why not, where the flow table has no place for the rule.
    pub(crate) fn bind(&mut self, flow: Flow, queue: u32) -> Option<Full> {
        let full = self.steering.table.insert(flow, queue).err();
        match full {
            None => self.counters.rules += 1,
            Some(_) => self.counters.rules_refused += 1,
        }
        self.steering.changed();
        full
    }

    /// No packets go to a queue any more.
    pub(crate) fn unbind(&mut self, queue: u32) {
        self.steering.table.remove_all_of(queue);
        self.steering.changed();
    }

    /// Packets of no flow go to the first queues.
    pub(crate) fn fall_back(&mut self, queues: u32, round_robin: bool) {
        let policy = if round_robin { Policy::RoundRobin } else { Policy::Hash };
        self.steering.fallback = Fallback::new((0..queues).collect(), policy);
        self.steering.changed();
    }
}
