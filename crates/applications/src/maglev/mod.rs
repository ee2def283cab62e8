//! Maglev, a load balancer: sends each connection to one of many backends.
//!
//! A [table](table::Table) maps hashes of connections to backends; a cache of connections keeps a connection on its backend
//! if the table changes. There are two variants:
//!
//! - [`EnsoMaglev`], as in Ensō's evaluation: the cache has 1,024 entries keyed by a 32-bit hash, and only the destination
//!   address is rewritten, so checksums become wrong.
//! - [`CompleteMaglev`]: the cache has as many entries keyed by all fields of the flow, and checksums are updated.
//!
//! Both hash the same fields. The hash function is ours; Ensō uses Jenkins' hash of DPDK. Packets of other protocols than
//! TCP and UDP, e.g. ICMP, are balanced by their addresses. Malformed packets are counted and dropped, fragments too because
//! only the first has ports.

pub mod hash_cache;
pub mod table;

use std::net::Ipv4Addr;

use crate::application::{Application, Count, Decision};
use crate::flow_cache::FlowCache;
use crate::hash;
use crate::packet::{Flow, Headers, MalformedCounts, rewrite};
use hash_cache::HashCache;
use table::{Backend, Table, TableError};

/// The connections that have been seen, with their backends.
pub trait Connections: Default {
    /// Whether checksums are updated.
    const CHECKSUMS: bool;

    /// Returns the backend of a connection: that which it had, or that of the table.
    fn backend(&mut self, flow: Flow, table: &Table) -> Backend;

    /// Removes the connections of a backend.
    fn forget(&mut self, backend: Backend);

    /// Returns how many packets were of no connection in the cache.
    fn misses(&self) -> u64;
}

/// Connections by all fields of their flows: 1,024 entries.
#[derive(Debug, Clone, Default)]
pub struct FlowConnections {
    cache: FlowCache<256>,
    misses: u64,
}

impl Connections for FlowConnections {
    const CHECKSUMS: bool = true;

    #[inline(always)]
    fn backend(&mut self, flow: Flow, table: &Table) -> Backend {
        let hash = hash::of_flow(flow);
        if let Some(entry) = self.cache.find(flow, hash) {
            return entry.value;
        }
        self.misses += 1;
        let backend = table.backend(hash);
        self.cache.insert(flow, hash, backend);
        backend
    }

    fn forget(&mut self, backend: Backend) {
        self.cache.remove_value(backend);
    }

    fn misses(&self) -> u64 {
        self.misses
    }
}

/// The variant of Ensō's evaluation.
pub type EnsoMaglev = Maglev<HashCache>;

/// The variant with complete keys and right checksums.
pub type CompleteMaglev = Maglev<FlowConnections>;

/// The load balancer of one core.
#[derive(Debug, Clone)]
pub struct Maglev<C> {
    backends: Box<[Ipv4Addr]>,
    /// Which backends serve.
    serves: Box<[bool]>,
    table: Table,
    connections: C,
    packets: u64,
    malformed: MalformedCounts,
}

impl<C: Connections> Maglev<C> {
    /// Creates a balancer for backends, all of which serve.
    ///
    /// # Errors
    /// Returns an error if there are no backends, too many, or equal ones.
    pub fn new(backends: &[Ipv4Addr]) -> Result<Self, TableError> {
        Ok(Self {
            backends: backends.into(),
            serves: vec![true; backends.len()].into(),
            table: Table::new(backends, |_| true)?,
            connections: C::default(),
            packets: 0,
            malformed: MalformedCounts::default(),
        })
    }

    /// Takes a backend out of service, or back into it. Connections of other backends remain on them while they are in
    /// the cache. A number without backend has no effect.
    ///
    /// # Errors
    /// Returns an error, and changes nothing, if no backend is left.
    pub fn set_serving(&mut self, backend: Backend, serves: bool) -> Result<(), TableError> {
        let mut changed = self.serves.clone();
        let Some(place) = changed.get_mut(usize::from(backend)) else { return Ok(()) };
        *place = serves;
        self.table = Table::new(&self.backends, |backend| changed[usize::from(backend)])?;
        self.serves = changed;
        if !serves {
            self.connections.forget(backend);
        }
        Ok(())
    }

    #[inline(always)]
    fn balance(&mut self, packet: &mut [u8], headers: &Headers) -> Decision {
        let backend = self.connections.backend(headers.flow(packet), &self.table);
        // The table and the connections contain only numbers of backends.
        let address = self.backends[usize::from(backend)].octets();
        if C::CHECKSUMS {
            rewrite::set_destination(packet, headers, address);
        } else {
            rewrite::set_destination_only(packet, headers, address);
        }
        Decision::Send
    }

    /// Balances a packet that is not of the most common form.
    #[cold]
    #[inline(never)]
    fn balance_any(&mut self, packet: &mut [u8]) -> Decision {
        match Headers::parse(packet) {
            Ok(headers) => self.balance(packet, &headers),
            Err(kind) => {
                self.malformed.add(kind);
                Decision::Consume
            }
        }
    }
}

impl<C: Connections> Application for Maglev<C> {
    #[inline(always)]
    fn process<'a>(
        &mut self,
        packets: impl Iterator<Item = &'a mut [u8]>,
        mut done: impl FnMut(&'a mut [u8], Decision),
    ) {
        for packet in packets {
            let decision = match Headers::plain(packet) {
                Some(headers) => self.balance(packet, &headers),
                None => self.balance_any(packet),
            };
            self.packets += 1;
            done(packet, decision);
        }
    }

    fn counts(&self) -> Vec<Count> {
        let count = |name, value| Count { name, value };
        let misses = self.connections.misses();
        [count("packets", self.packets), count("cache-misses", misses)]
            .into_iter()
            .chain(self.malformed.counts())
            .collect()
    }
}

#[cfg(test)]
mod tests;
