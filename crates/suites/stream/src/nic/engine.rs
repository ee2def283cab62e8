//! Interface-specific parts of the NIC: how the NIC moves packets to and from a client's memory.

use std::sync::Arc;

use super::configuration::Configuration;
use super::counters::Counters;
use super::doorbells::DoorbellReceiver;
use super::fallback::{Fallback, Policy};
use super::flow_table::FlowTableFull;
use super::interface_config::InterfaceConfig;
use super::layout::{FLIT, FLITS_PER_SECOND};
use super::pcie::Link;
use super::pipe_ids::Owners;
use super::placement::PlacementOrder;
use super::region::{ClientId, Region, Regions};
use super::steering::Steering;
use crate::wire::vector::Vector;
use crate::wire::{Flow, Wire};

/// The NIC's side of one interface.
pub trait Engine: Send + 'static {
    /// Returns the configuration that clients must match.
    fn config(&self) -> InterfaceConfig;

    /// Adds the registers of a pair of notification buffers.
    fn attach(&mut self, pair: u32, doorbells: PairDoorbells);

    /// Removes a pair with its pipes and their rules, after processing earlier writes.
    fn detach(&mut self, pair: u32, nic: &mut EngineContext);

    /// Processes register writes.
    fn poll_doorbells(&mut self, now: u64, nic: &mut EngineContext);

    /// Processes all register writes that a client has made so far, including those delayed by the model, because its
    /// memory is about to be removed.
    fn drain_doorbells(&mut self, client: ClientId, now: u64, nic: &mut EngineContext);

    /// Removes a pipe or queue with its rules.
    fn remove_queue(&mut self, pipe: u32, now: u64, nic: &mut EngineContext);

    /// Stops using the memory of a region.
    fn remove_region(&mut self, region: &Region, nic: &mut EngineContext);

    /// Sends packets as requested.
    fn transmit<W: Wire>(&mut self, now: u64, nic: &mut EngineContext, wire: &mut W);

    /// Returns the number of flits of received packets that clients have not freed; `None` if the interface has no pipes.
    fn unread(&self) -> Option<u64> {
        None
    }

    /// Resets the settings of a client that has no pair left.
    fn client_gone(&mut self, _: ClientId) {}

    /// Receives packets that are due from the wire.
    fn receive<V: Vector, W: Wire>(&mut self, now: u64, nic: &mut EngineContext, wire: &mut W);
}

/// The NIC's end of a pair's doorbell queue.
pub struct PairDoorbells(pub(crate) DoorbellReceiver);

/// State and operations that all engines share.
pub struct EngineContext {
    /// The NIC's counters.
    pub counters: Counters,
    /// Memory that the NIC may access.
    pub(crate) regions: Regions,
    /// Client of each pair of notification buffers.
    pub(crate) clients: Vec<ClientId>,
    /// Client of each pipe.
    pub(crate) owners: Arc<Owners>,
    /// Time of the last rule refused for lack of space, in ticks: the search for space takes long.
    pub(crate) refused_at: u64,
    /// Client that has set the fallback.
    pub(crate) fallback_client: ClientId,
    /// Rate limit of one client's packets.
    pub(crate) limit: Option<Owned<RateLimiter>>,
    pub(crate) steering: Steering,
    /// The order in which packets are written to memory.
    pub(crate) placement: PlacementOrder,
    /// Modelled duration of a doorbell, in ticks; 0 if not modelled.
    pub(crate) doorbell: u64,
    /// Modelled duration of a transfer, in ticks; 0 if not modelled.
    pub(crate) transfer: u64,
    /// The modelled link, if there is one.
    pub(crate) link: Option<Link>,
    /// Start of this iteration, in ticks.
    pub(crate) now: u64,
    pub(crate) ticks_per_second: f64,
}

impl EngineContext {
    /// Translates a range of bus addresses. Returns `None` unless the pair's client has registered all of it.
    #[inline(always)]
    pub(crate) fn resolve_dma(&self, pair: u32, bus: u64, length: usize) -> Option<*mut u8> {
        let region = self.region(pair, bus, length)?;
        Some(region.pointer().wrapping_add((bus - region.bus()) as usize))
    }

    /// Assigns a pair of notification buffers to a client.
    pub(super) fn assign_pair(&mut self, pair: u32, client: ClientId) {
        let index = pair as usize;
        if self.clients.len() <= index {
            self.clients.resize(index + 1, ClientId::default());
        }
        self.clients[index] = client;
    }

    /// Returns the region of a range of bus addresses. Returns `None` unless the pair's client has registered it.
    #[inline(always)]
    pub(crate) fn region(&self, pair: u32, bus: u64, length: usize) -> Option<&Region> {
        self.regions.find(*self.clients.get(pair as usize)?, bus, length)
    }

    /// Translates the address of a ring. Returns null if the address is 0 or the NIC refuses it.
    pub(crate) fn resolve_ring(&mut self, pair: u32, bus: u64, length: usize) -> *mut u8 {
        if bus == 0 {
            return std::ptr::null_mut();
        }
        let aligned = bus.is_multiple_of(FLIT as u64);
        let ring = self.resolve_dma(pair, bus, length).filter(|_| aligned);
        self.counters.refused += u64::from(ring.is_none());
        ring.unwrap_or(std::ptr::null_mut())
    }

    /// Returns the client of a pair.
    #[inline(always)]
    pub(crate) fn client(&self, pair: u32) -> ClientId {
        self.clients.get(pair as usize).copied().unwrap_or_default()
    }

    /// Returns whether a pair's client owns a pipe, and so may set its ring.
    pub(crate) fn owns_pipe(&self, pair: u32, pipe: u32) -> bool {
        self.owners.of(pipe) == Some(self.client(pair))
    }

    /// Returns whether this iteration has already searched space for a rule in vain. Further configuration requests wait
    /// for the next iteration, so that they do not delay packets.
    pub(crate) fn is_busy(&self, now: u64) -> bool {
        self.refused_at == now
    }

    /// Directs packets of a flow to a queue.
    ///
    /// # Errors
    /// Returns an error if the flow belongs to another client or the flow table is full.
    pub(crate) fn bind(
        &mut self,
        pair: u32,
        flow: Flow,
        queue: u32,
        now: u64,
    ) -> Result<(), ConfigRefused> {
        let client = self.client(pair);
        let bound = self.steering.table.find(&flow);
        if bound.is_some_and(|other| self.owners.of(other).is_some_and(|it| it != client)) {
            self.counters.refused += 1;
            return Err(ConfigRefused::Taken);
        }
        if let Err(FlowTableFull { rules, .. }) = self.steering.table.insert(flow, queue) {
            self.counters.rules_refused += 1;
            self.refused_at = now;
            return Err(ConfigRefused::TableFull(rules as u64));
        }
        self.counters.rules += 1;
        self.steering.changed();
        Ok(())
    }

    /// Removes all rules of a queue.
    pub(crate) fn unbind(&mut self, queue: u32) {
        self.steering.table.remove_all_of(queue);
        self.steering.changed();
    }

    /// Directs packets without a matching rule to the first queues.
    ///
    /// # Errors
    /// Returns an error if one of them belongs to another client, or another client has set the fallback.
    pub(crate) fn set_fallback(
        &mut self,
        pair: u32,
        queues: u32,
        round_robin: bool,
    ) -> Result<(), ConfigRefused> {
        let client = self.client(pair);
        let is_free = self.steering.fallback.pipes().is_empty() || self.fallback_client == client;
        let is_others = |queue| self.owners.of(queue).is_some_and(|owner| owner != client);
        if !is_free || (0..queues).any(is_others) {
            self.counters.refused += 1;
            return Err(ConfigRefused::Taken);
        }
        let policy = if round_robin { Policy::RoundRobin } else { Policy::Hash };
        self.steering.fallback = Fallback::new((0..queues).collect(), policy);
        self.fallback_client = client;
        self.steering.changed();
        Ok(())
    }

    /// Removes a pipe from another client's fallback when the pipe gets its ring.
    pub(crate) fn ring_set(&mut self, pair: u32, pipe: u32) {
        if self.fallback_client != self.client(pair) && self.steering.fallback.remove(pipe) {
            self.steering.changed();
        }
    }

    /// Removes the client of a pair. If it was the client's last pair, resets the client's settings and returns the
    /// client. The NIC's own process is never returned.
    pub(super) fn remove_pair(&mut self, pair: u32) -> Option<ClientId> {
        let client = std::mem::replace(self.clients.get_mut(pair as usize)?, ClientId::GONE);
        if client == ClientId::default() || self.clients.contains(&client) {
            return None;
        }
        if self.fallback_client == client {
            self.steering.fallback = Fallback::default();
            self.steering.changed();
        }
        self.limit.take_if(|of| of.client == client);
        Some(client)
    }

    /// Applies a configuration that concerns no pipe or queue: the rate limit or the fallback.
    ///
    /// # Errors
    /// Returns an error if the setting belongs to another client.
    pub(crate) fn configure(
        &mut self,
        pair: u32,
        configuration: Configuration,
    ) -> Result<(), ConfigRefused> {
        match configuration {
            Configuration::Fallback { pipes, round_robin } => {
                self.set_fallback(pair, pipes, round_robin)
            }
            Configuration::RateLimit { numerator, denominator, enable } => {
                let per_second = self.ticks_per_second;
                let limit = enable.then(|| RateLimiter::new(numerator, denominator, per_second));
                let client = self.client(pair);
                let set = Owned::set(&mut self.limit, client, limit);
                self.counters.refused += u64::from(set.is_err());
                set
            }
            Configuration::Bind { .. } | Configuration::Timestamp { .. } => {
                self.counters.refused += 1;
                Ok(())
            }
        }
    }

    /// Returns whether the rate limit delays packets of a pair's client.
    #[inline(always)]
    pub(crate) fn is_throttled(&self, pair: u32, now: u64) -> bool {
        Owned::of(&self.limit, self.client(pair)).is_some_and(|limit| limit.is_throttled(now))
    }

    /// Returns whether packets of a pair's client are rate-limited.
    #[inline(always)]
    pub(crate) fn is_limited(&self, pair: u32) -> bool {
        Owned::of(&self.limit, self.client(pair)).is_some()
    }

    /// Accounts for sent flits of a pair's client.
    #[inline(always)]
    pub(crate) fn count_sent(&mut self, pair: u32, flits: u64, now: u64) {
        let client = self.client(pair);
        if let Some(limit) = Owned::of_mut(&mut self.limit, client) {
            limit.count_sent(flits, now);
        }
    }
}

/// A setting that applies to one client's packets. One client can have it at a time.
#[derive(Debug)]
pub(crate) struct Owned<T> {
    pub(crate) client: ClientId,
    pub(crate) value: T,
}

impl<T> Owned<T> {
    /// Sets or removes the value for a client.
    ///
    /// # Errors
    /// Returns an error if another client has it.
    pub(crate) fn set(
        of: &mut Option<Self>,
        client: ClientId,
        value: Option<T>,
    ) -> Result<(), ConfigRefused> {
        match of {
            Some(other) if other.client != client => {
                // Removing what the client does not have succeeds.
                if value.is_some() { Err(ConfigRefused::Taken) } else { Ok(()) }
            }
            _ => {
                *of = value.map(|value| Self { client, value });
                Ok(())
            }
        }
    }

    /// Returns the value if `client` has set it.
    #[inline(always)]
    pub(crate) fn of(of: &Option<Self>, client: ClientId) -> Option<&T> {
        of.as_ref().filter(|of| of.client == client).map(|of| &of.value)
    }

    /// Returns the value mutably if `client` has set it.
    #[inline(always)]
    pub(crate) fn of_mut(of: &mut Option<Self>, client: ClientId) -> Option<&mut T> {
        of.as_mut().filter(|of| of.client == client).map(|of| &mut of.value)
    }
}

/// Why a configuration request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConfigRefused {
    /// The flow table has no space besides this number of rules.
    TableFull(u64),
    /// The flow or setting belongs to another client.
    Taken,
}

/// Maximum delay for which a rate-limited client may catch up, in seconds: the NIC was busy.
const MAX_CATCH_UP: f64 = 100e-6;

/// A rate limit.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    ticks_per_flit: f64,
    max_catch_up: f64,
    /// Earliest time of the next packet, in ticks.
    next: f64,
}

impl RateLimiter {
    /// Creates a limit of `numerator` flits per `denominator` cycles of the hardware.
    pub(super) fn new(numerator: u16, denominator: u16, ticks_per_second: f64) -> Self {
        let share = f64::from(numerator) / f64::from(denominator);
        Self {
            ticks_per_flit: ticks_per_second / (FLITS_PER_SECOND * share),
            max_catch_up: ticks_per_second * MAX_CATCH_UP,
            next: 0.0,
        }
    }

    /// Returns whether the next packet must wait.
    pub(super) fn is_throttled(&self, now: u64) -> bool {
        self.next > now as f64
    }

    /// Accounts for sent flits.
    pub(super) fn count_sent(&mut self, flits: u64, now: u64) {
        let start = self.next.max(now as f64 - self.max_catch_up);
        self.next = start + self.ticks_per_flit * flits as f64;
    }
}
