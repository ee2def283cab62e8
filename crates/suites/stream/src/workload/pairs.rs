//! Traffic for telemetry: packets between pairs of addresses of which few send most packets.

use std::net::Ipv4Addr;

use applications::zipf::Zipf;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use super::{SEED, WorkloadError};
use crate::wire::packet::Flow;
use crate::wire::sample::{SampleTraffic, Sizes};
use crate::wire::traffic::Traffic;

/// Number of pairs.
pub const PAIRS: u32 = 100_000;

/// Number of packets.
pub const PACKETS: u32 = 1 << 18;

/// First source address.
const SOURCES: u32 = 0x0a80_0000;

/// Packets of pairs of a source and a destination address.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pairs {
    /// Sizes of the packets, with their check sequence.
    pub size: Sizes,
    /// Exponent of the Zipf distribution of packets over pairs; 0 if it is uniform.
    pub exponent: f64,
    /// Number of destinations. The pairs with most packets have different ones, in turn.
    pub destinations: u32,
}

impl Pairs {
    /// Generates the packets.
    ///
    /// # Errors
    /// Returns which parameter is invalid, or that memory is exhausted.
    pub fn traffic(&self) -> Result<Traffic, WorkloadError> {
        let zipf = Zipf::new(u64::from(PAIRS), self.exponent)?;
        let mut random = Pcg64Mcg::seed_from_u64(SEED);
        let destinations = self.destinations.max(1);
        let sample = SampleTraffic { packets: PACKETS, size: self.size, sources: 1, destinations };
        let pair = |_| {
            let rank = zipf.draw(&mut random) as u32;
            let source = Ipv4Addr::from_bits(SOURCES.wrapping_add(rank / destinations));
            Flow { source, ..SampleTraffic::flow_to(rank % destinations) }
        };
        Ok(sample.traffic_of(pair)?)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn pairs_have_their_shares_and_destinations() {
        for (exponent, destinations) in [(0.99, 3), (0.0, 1)] {
            let pairs = Pairs { size: Sizes::One(64), exponent, destinations };
            let traffic = pairs.traffic().unwrap();
            assert_eq!(traffic.len() as u32, PACKETS);
            let mut counts = HashMap::<_, u32>::new();
            for packet in traffic.packets() {
                *counts.entry((packet.flow.source, packet.flow.destination)).or_default() += 1;
            }
            let weights: f64 = (1..=PAIRS).map(|rank| f64::from(rank).powf(-exponent)).sum();
            let most = f64::from(*counts.values().max().unwrap()) / f64::from(PACKETS);
            if exponent > 0.0 {
                assert!((most * weights - 1.0).abs() < 0.05, "{most}");
            } else {
                assert!(counts.len() > 90_000, "{} pairs", counts.len());
            }
            assert_eq!(traffic.destinations().len() as u32, destinations);
        }
    }
}
