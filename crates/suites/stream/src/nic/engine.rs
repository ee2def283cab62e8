//! What differs between interfaces: how packets reach a program's memory, and how they leave it.

use std::sync::Arc;

use super::configuration::Configuration;
use super::counters::Counters;
use super::doorbells::DoorbellReceiver;
use super::fallback::{Fallback, Policy};
use super::flow_table::FlowTableFull;
use super::interface_config::InterfaceConfig;
use super::layout::{FLIT, FLITS_PER_SECOND};
use super::pipe_ids::Owners;
use super::region::{ClientId, Region, Regions};
use super::steering::Steering;
use crate::wire::vector::Vector;
use crate::wire::{Flow, Wire};

/// The NIC's side of one interface.
pub trait Engine: Send + 'static {
    /// What programs must lay out as it does.
    fn config(&self) -> InterfaceConfig;

    /// A core's registers come into being.
    fn attach(&mut self, pair: u32, arrivals: PairDoorbells);

    /// They go, with its pipes and all rules of those; what was written before counts first.
    fn detach(&mut self, pair: u32, nic: &mut EngineContext);

    /// Takes what programs have written to registers.
    fn doorbells(&mut self, now: u64, nic: &mut EngineContext);

    /// Takes all that a program has written to registers so far, also what is modelled to be still on its way:
    /// memory of its is about to go.
    fn drain_doorbells(&mut self, client: ClientId, now: u64, nic: &mut EngineContext);

    /// A pipe or queue goes, with all rules of its; nobody has it any more.
    fn free(&mut self, pipe: u32, now: u64, nic: &mut EngineContext);

    /// This memory goes: what lies in it is not there any more, whatever its program has said.
    fn forget(&mut self, region: &Region, nic: &mut EngineContext);

    /// Sends what programs have asked to send.
    fn transmit<W: Wire>(&mut self, now: u64, nic: &mut EngineContext, wire: &mut W);

    /// A program has no pair any more: what it has set for itself goes.
    fn left(&mut self, _: ClientId) {}

    /// Takes what is due from the wire.
    fn receive<V: Vector, W: Wire>(&mut self, now: u64, nic: &mut EngineContext, wire: &mut W);
}

/// Posted writes as they arrive; only the NIC reads them.
pub struct PairDoorbells(pub(crate) DoorbellReceiver);

/// What all engines have in common.
pub struct EngineContext {
    /// What was counted.
    pub counters: Counters,
    /// Memory that may be touched.
    pub(crate) regions: Regions,
    /// Whose each pair of notification buffers is, or was last.
    pub(crate) clients: Vec<ClientId>,
    /// Whose each pipe is.
    pub(crate) owners: Arc<Owners>,
    /// When a rule was last refused for want of a place, ticks: looking for one takes long.
    pub(crate) refused_at: u64,
    /// Who has said where packets of no flow go.
    pub(crate) falls_back: ClientId,
    /// How fast a program's packets may leave.
    pub(crate) limit: Option<Own<Limit>>,
    pub(crate) steering: Steering,
    /// How long doorbells take, ticks; 0 where nothing is modelled.
    pub(crate) doorbell: u64,
    /// How long a transfer takes, ticks; 0 where nothing is modelled.
    pub(crate) transfer: u64,
    pub(crate) ticks_per_second: f64,
}

impl EngineContext {
    /// Where a span of bus addresses lies, where the program that has the pair may have it touched.
    #[inline(always)]
    pub(crate) fn resolve_dma(&self, pair: u32, bus: u64, length: usize) -> Option<*mut u8> {
        let region = self.region(pair, bus, length)?;
        Some(region.pointer().wrapping_add((bus - region.bus()) as usize))
    }

    /// A pair of notification buffers is a program's from now on.
    pub(super) fn belongs(&mut self, pair: u32, client: ClientId) {
        let index = pair as usize;
        if self.clients.len() <= index {
            self.clients.resize(index + 1, ClientId::default());
        }
        self.clients[index] = client;
    }

    /// The memory that holds a span of bus addresses, where it is of the program that has the pair.
    #[inline(always)]
    pub(crate) fn region(&self, pair: u32, bus: u64, length: usize) -> Option<&Region> {
        self.regions.find(*self.clients.get(pair as usize)?, bus, length)
    }

    /// Where a ring of so many bytes lies that the program with a pair names: null where it names none, or
    /// one that the NIC refuses.
    pub(crate) fn ring(&mut self, pair: u32, bus: u64, length: usize) -> *mut u8 {
        if bus == 0 {
            return std::ptr::null_mut();
        }
        let aligned = bus.is_multiple_of(FLIT as u64);
        let ring = self.resolve_dma(pair, bus, length).filter(|_| aligned);
        self.counters.refused += u64::from(ring.is_none());
        ring.unwrap_or(std::ptr::null_mut())
    }

    /// The program that has a pair.
    #[inline(always)]
    pub(crate) fn client(&self, pair: u32) -> ClientId {
        self.clients.get(pair as usize).copied().unwrap_or_default()
    }

    /// Whether the program with this pair has the pipe, and so may say where its ring lies.
    pub(crate) fn may_place(&self, pair: u32, pipe: u32) -> bool {
        self.owners.of(pipe) == Some(self.client(pair))
    }

    /// Whether enough time of this turn went by in looking for a place for a rule: what else is to be
    /// configured waits for the next turn, so that packets of others do not wait for it.
    pub(crate) fn is_busy(&self, now: u64) -> bool {
        self.refused_at == now
    }

    /// Packets of a flow go to a queue.
    ///
    /// # Errors
    /// If the flow is another program's, or the flow table has no place for the rule.
    pub(crate) fn bind(
        &mut self,
        pair: u32,
        flow: Flow,
        queue: u32,
        now: u64,
    ) -> Result<(), NotBound> {
        let own = self.client(pair);
        let bound = self.steering.table.find(&flow);
        if bound.is_some_and(|other| self.owners.of(other).is_some_and(|it| it != own)) {
            self.counters.refused += 1;
            return Err(NotBound::Taken);
        }
        if let Err(FlowTableFull { rules, .. }) = self.steering.table.insert(flow, queue) {
            self.counters.rules_refused += 1;
            self.refused_at = now;
            return Err(NotBound::TableFull(rules as u64));
        }
        self.counters.rules += 1;
        self.steering.changed();
        Ok(())
    }

    /// No packets go to a queue any more.
    pub(crate) fn unbind(&mut self, queue: u32) {
        self.steering.table.remove_all_of(queue);
        self.steering.changed();
    }

    /// Packets of no flow go to the first queues, none of which may be another program's.
    ///
    /// # Errors
    /// If one is, or another program has said where such packets go.
    pub(crate) fn fall_back(
        &mut self,
        pair: u32,
        queues: u32,
        round_robin: bool,
    ) -> Result<(), NotBound> {
        let own = self.client(pair);
        let is_free = self.steering.fallback.pipes().is_empty() || self.falls_back == own;
        let are_others = |queue| self.owners.of(queue).is_some_and(|owner| owner != own);
        if !is_free || (0..queues).any(are_others) {
            self.counters.refused += 1;
            return Err(NotBound::Taken);
        }
        let policy = if round_robin { Policy::RoundRobin } else { Policy::Hash };
        self.steering.fallback = Fallback::new((0..queues).collect(), policy);
        self.falls_back = own;
        self.steering.changed();
        Ok(())
    }

    /// A pipe has got its ring: packets that another program wants there are not its.
    pub(crate) fn placed(&mut self, pair: u32, pipe: u32) {
        if self.falls_back != self.client(pair) && self.steering.fallback.remove(pipe) {
            self.steering.changed();
        }
    }

    /// A pair has gone. With the last of its program goes what the program has set for itself; which program
    /// has gone so. The NIC's own process never does.
    pub(super) fn left(&mut self, pair: u32) -> Option<ClientId> {
        let client = std::mem::replace(self.clients.get_mut(pair as usize)?, ClientId::GONE);
        if client == ClientId::default() || self.clients.contains(&client) {
            return None;
        }
        if self.falls_back == client {
            self.steering.fallback = Fallback::default();
            self.steering.changed();
        }
        self.limit.take_if(|of| of.client == client);
        Some(client)
    }

    /// Does what a core asks for that its pipes or queues have nothing to do with: to limit the rate of its
    /// program's packets, or to say where those of no flow go.
    ///
    /// # Errors
    /// If another program has it.
    pub(crate) fn configure(
        &mut self,
        pair: u32,
        configuration: Configuration,
    ) -> Result<(), NotBound> {
        match configuration {
            Configuration::Fallback { pipes, round_robin } => {
                self.fall_back(pair, pipes, round_robin)
            }
            Configuration::RateLimit { numerator, denominator, enable } => {
                let a_second = self.ticks_per_second;
                let limit = enable.then(|| Limit::new(numerator, denominator, a_second));
                let client = self.client(pair);
                let set = Own::set(&mut self.limit, client, limit);
                self.counters.refused += u64::from(set.is_err());
                set
            }
            Configuration::Bind { .. } | Configuration::Timestamp { .. } => {
                self.counters.refused += 1;
                Ok(())
            }
        }
    }

    /// Whether packets of the program with this pair may not leave yet.
    #[inline(always)]
    pub(crate) fn holds(&self, pair: u32, now: u64) -> bool {
        Own::of(&self.limit, self.client(pair)).is_some_and(|limit| limit.holds(now))
    }

    /// Whether the rate of its packets is limited.
    #[inline(always)]
    pub(crate) fn is_limited(&self, pair: u32) -> bool {
        Own::of(&self.limit, self.client(pair)).is_some()
    }

    /// So many flits of it leave.
    #[inline(always)]
    pub(crate) fn leave(&mut self, pair: u32, flits: u64, now: u64) {
        let client = self.client(pair);
        if let Some(limit) = Own::of_mut(&mut self.limit, client) {
            limit.leave(flits, now);
        }
    }
}

/// What a program has set for its own packets. One program has it at a time.
#[derive(Debug)]
pub(crate) struct Own<T> {
    pub(crate) client: ClientId,
    pub(crate) value: T,
}

impl<T> Own<T> {
    /// Sets it for a program, or removes it.
    ///
    /// # Errors
    /// If another program has it.
    pub(crate) fn set(
        of: &mut Option<Self>,
        client: ClientId,
        value: Option<T>,
    ) -> Result<(), NotBound> {
        match of {
            Some(other) if other.client != client => {
                // To have none is what it has.
                if value.is_some() { Err(NotBound::Taken) } else { Ok(()) }
            }
            _ => {
                *of = value.map(|value| Self { client, value });
                Ok(())
            }
        }
    }

    /// What the program has set, if it is this one.
    #[inline(always)]
    pub(crate) fn of(of: &Option<Self>, client: ClientId) -> Option<&T> {
        of.as_ref().filter(|of| of.client == client).map(|of| &of.value)
    }

    /// The same to change.
    #[inline(always)]
    pub(crate) fn of_mut(of: &mut Option<Self>, client: ClientId) -> Option<&mut T> {
        of.as_mut().filter(|of| of.client == client).map(|of| &mut of.value)
    }
}

/// Why a configuration was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotBound {
    /// The flow table has no place beside so many rules.
    TableFull(u64),
    /// Another program has it.
    Taken,
}

/// Of what a limited core sends late, because the NIC was busy, so many seconds are made up for.
const MADE_UP: f64 = 100e-6;

/// How fast packets may leave.
#[derive(Debug)]
pub(crate) struct Limit {
    ticks_per_flit: f64,
    made_up: f64,
    /// When the next may leave, ticks.
    next: f64,
}

impl Limit {
    /// So many flits in so many cycles of the hardware.
    pub(super) fn new(numerator: u16, denominator: u16, ticks_per_second: f64) -> Self {
        let share = f64::from(numerator) / f64::from(denominator);
        Self {
            ticks_per_flit: ticks_per_second / (FLITS_PER_SECOND * share),
            made_up: ticks_per_second * MADE_UP,
            next: 0.0,
        }
    }

    /// Whether nothing may leave yet.
    pub(super) fn holds(&self, now: u64) -> bool {
        self.next > now as f64
    }

    /// So many flits leave.
    pub(super) fn leave(&mut self, flits: u64, now: u64) {
        let begins = self.next.max(now as f64 - self.made_up);
        self.next = begins + self.ticks_per_flit * flits as f64;
    }
}
