//! Traffic for Maglev: packets of few connections, which its cache contains, or a flood of new ones.

use std::net::Ipv4Addr;

use applications::hash;
use applications::maglev::table::Table;
use applications::packet::{Headers, rewrite};

use super::WorkloadError;
use crate::wire::MarkPosition;
use crate::wire::build::{self, SYN};
use crate::wire::frame::{Head, MIN_LENGTH, TCP};
use crate::wire::packet::Flow;
use crate::wire::sample::SampleTraffic;
use crate::wire::traffic::{Traffic, TrafficBuilder, lines_of};

/// Number of connections that the cache contains, as in Ensō's evaluation.
pub const CACHED: u32 = 16;

/// Number of connections of a flood, as in Ensō's evaluation: 1024 times as many as the cache has entries.
pub const FLOOD: u32 = 1 << 20;

/// Offset of the 8 bytes with both addresses, of which Maglev changes the destination.
pub const WORD: usize = 26;

/// First source address of a flood.
const SOURCES: u32 = 0x0a80_0000;

/// A flood of TCP segments with SYN, of 64 B on the wire, each of another source. They have no space for a mark in their
/// payload, so that it is in the Ethernet addresses. The NIC looks up a SYN by its destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SynFlood {
    /// Number of connections, each with one packet.
    pub connections: u32,
    /// Number of destinations, to which packets go in turn.
    pub destinations: u32,
}

impl SynFlood {
    /// Generates the packets.
    ///
    /// # Errors
    /// Returns that memory is exhausted.
    pub fn traffic(&self) -> Result<Traffic, WorkloadError> {
        let lines = lines_of(MIN_LENGTH) * self.connections as usize;
        let mut builder = TrafficBuilder::new(lines, MarkPosition::Addresses)?;
        for number in 0..self.connections {
            let flow = Flow {
                source: Ipv4Addr::from_bits(SOURCES.wrapping_add(number)),
                ..Self::flow_to(number % self.destinations.max(1))
            };
            builder.push(&build::tcp(&flow, SYN, &[], &[]), Head { flow, syn: true });
        }
        Ok(builder.finish())
    }

    /// Returns the flow of a packet to a destination.
    pub fn flow_to(destination: u32) -> Flow {
        Flow { protocol: TCP, ..SampleTraffic::flow_to(destination) }
    }
}

/// Sets what Maglev returns: each packet goes to the backend that the table has for its flow. No backend fails, so that the
/// cache of connections makes no difference. `checksums` states whether it updates these.
///
/// # Errors
/// Returns why there is no such table, or that memory is exhausted.
pub fn with_expected(
    traffic: Traffic,
    backends: &[Ipv4Addr],
    checksums: bool,
) -> Result<Traffic, WorkloadError> {
    let table = Table::new(backends, |_| true)?;
    let balance = |packet: &mut [u8]| {
        // A packet that cannot be parsed is dropped by Maglev; the generator sends none.
        let Ok(headers) = Headers::parse(packet) else { return };
        let backend = table.backend(hash::of_flow(headers.flow(packet)));
        let address = backends[usize::from(backend)].octets();
        if checksums {
            rewrite::set_destination(packet, &headers, address);
        } else {
            rewrite::set_destination_only(packet, &headers, address);
        }
    };
    Ok(traffic.with_expected(WORD, balance)?)
}

#[cfg(test)]
mod tests {
    use applications::maglev::{CompleteMaglev, EnsoMaglev};
    use applications::{Application, Decision};

    use super::*;
    use crate::wire::sample::Sizes;

    fn backends() -> Vec<Ipv4Addr> {
        (0..1000).map(|number| Ipv4Addr::from_bits(0x0a01_0000 + number)).collect()
    }

    /// Compares what the application returns with the images, twice: first new connections, then known ones.
    fn check(traffic: &Traffic, mut application: impl Application) {
        for index in (0..traffic.len()).chain(0..traffic.len()) {
            let mut packet = traffic.bytes(index).to_vec();
            application.process(std::iter::once(packet.as_mut_slice()), |packet, decision| {
                assert_eq!(decision, Decision::Send);
                assert_eq!(packet, traffic.expected(index), "packet {index}");
            });
        }
    }

    #[test]
    fn the_reference_agrees_with_both_variants() {
        let flood = SynFlood { connections: 3000, destinations: 3 };
        let cached = SampleTraffic {
            packets: CACHED,
            size: Sizes::One(64),
            sources: 1,
            destinations: CACHED,
        };
        let all = || [flood.traffic().unwrap(), cached.traffic().unwrap()];
        for traffic in all() {
            let traffic = with_expected(traffic, &backends(), true).unwrap();
            check(&traffic, CompleteMaglev::new(&backends()).unwrap());
        }
        for traffic in all() {
            let traffic = with_expected(traffic, &backends(), false).unwrap();
            check(&traffic, EnsoMaglev::new(&backends()).unwrap());
        }
    }

    #[test]
    fn a_flood_has_only_new_connections_in_the_smallest_packets() {
        let flood = SynFlood { connections: 5000, destinations: 2 };
        let traffic = flood.traffic().unwrap();
        let mut flows: Vec<_> = traffic.packets().iter().map(|packet| packet.flow).collect();
        assert!(traffic.packets().iter().all(|packet| packet.syn && packet.wire_bytes() == 84));
        assert!(
            flows
                .iter()
                .zip(0..)
                .all(|(flow, number)| super::super::destination(flow) == number % 2)
        );
        flows.sort_unstable();
        flows.dedup();
        assert_eq!(flows.len(), 5000);
    }
}
