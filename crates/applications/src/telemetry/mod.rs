//! Telemetry as in NitroSketch: estimates of the number of packets of each pair of addresses, by a
//! [count-min sketch](sketch) of which updates are [sampled](sampling), and the [pairs with most packets](heavy).
//!
//! Every packet is sent on unchanged; Ensō's version swaps its Ethernet addresses. Only sampled packets are parsed, so the
//! counts of malformed packets are of sampled ones.

pub mod heavy;
pub mod sampling;
pub mod sketch;

use crate::application::{Application, Count, Decision, Finding, Subject};
use crate::packet::{Headers, MalformedCounts};
use heavy::{Heavy, HeavyKeys};
use sampling::Sampler;
use sketch::Sketch;

/// Reciprocal of the sampling probability in Ensō's evaluation, 0.01.
pub const ONE_IN: u32 = 100;

/// Reciprocal of the share of the packets from which a pair of addresses is a finding.
pub const HEAVY_ONE_IN: u64 = 1000;

/// The telemetry of one core.
#[derive(Debug, Clone)]
pub struct Telemetry {
    sketch: Sketch,
    sampler: Sampler,
    heavy: HeavyKeys,
    packets: u64,
    sampled: u64,
    malformed: MalformedCounts,
}

impl Telemetry {
    /// Creates telemetry that updates each row of the sketch by one in `one_in` packets, at least 1.
    pub fn new(one_in: u32, seed: u64) -> Self {
        let one_in = one_in.max(1);
        Self {
            sketch: Sketch::new(one_in),
            sampler: Sampler::new(one_in, seed),
            heavy: HeavyKeys::default(),
            packets: 0,
            sampled: 0,
            malformed: MalformedCounts::default(),
        }
    }

    /// Returns the number of packets.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Returns the estimated number of packets of a pair of addresses, as in [`Flow`](crate::packet::Flow).
    pub fn estimate(&self, addresses: u64) -> u64 {
        self.sketch.estimate(addresses)
    }

    /// Returns the pairs of addresses with at least `threshold` packets, at most 64, the highest estimate first.
    pub fn heavy(&self, threshold: u64) -> Vec<Heavy> {
        self.heavy.at_least(threshold)
    }

    /// Updates the selected rows by a packet.
    #[inline(never)]
    fn sample(&mut self, packet: &[u8]) {
        self.sampled += 1;
        let parsed = match Headers::plain(packet) {
            Some(headers) => Ok(headers),
            None => Headers::parse(packet),
        };
        let key = match parsed {
            Ok(headers) => headers.flow(packet).addresses,
            Err(kind) => {
                self.malformed.add(kind);
                return self.sampler.rows(|_| ());
            }
        };
        let Self { sketch, sampler, heavy, .. } = self;
        let mut first = false;
        sampler.rows(|row| {
            sketch.add(row, key);
            first |= row == 0;
        });
        // One row is enough to find keys with many packets.
        if first {
            heavy.update(key, sketch.estimate(key));
        }
    }
}

impl Application for Telemetry {
    #[inline(always)]
    fn process<'a>(
        &mut self,
        packets: impl Iterator<Item = &'a mut [u8]>,
        mut done: impl FnMut(&'a mut [u8], Decision),
    ) {
        for packet in packets {
            self.packets += 1;
            if self.sampler.selects() {
                self.sample(packet);
            }
            done(packet, Decision::Send);
        }
    }

    fn counts(&self) -> Vec<Count> {
        let count = |name, value| Count { name, value };
        [count("packets", self.packets), count("sampled-packets", self.sampled)]
            .into_iter()
            .chain(self.malformed.counts())
            .collect()
    }

    fn findings(&self) -> Vec<Finding> {
        let of_pair = |heavy: Heavy| {
            let [a, b, c, d, e, f, g, h] = heavy.key.to_ne_bytes();
            let (source, destination) = ([a, b, c, d].into(), [e, f, g, h].into());
            Finding { subject: Subject::Flow { source, destination }, value: heavy.estimate }
        };
        self.heavy((self.packets / HEAVY_ONE_IN).max(1)).into_iter().map(of_pair).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use rand::SeedableRng;
    use rand_pcg::Pcg64Mcg;

    use super::sketch::Bound;
    use super::*;
    use crate::application::tests::run;
    use crate::packet::tests::Spec;
    use crate::zipf::Zipf;

    const FLOWS: usize = 100_000;
    const PACKETS: u64 = 3_000_000;

    /// Sends packets of flows with a Zipf distribution; returns the telemetry and the exact counts.
    fn measure() -> (Telemetry, Vec<u64>) {
        let mut telemetry = Telemetry::new(ONE_IN, 11);
        let mut counts = vec![0; FLOWS];
        let (zipf, mut random) =
            (Zipf::new(FLOWS as u64, 0.9).unwrap(), Pcg64Mcg::seed_from_u64(2));
        let mut packet = Spec::default().frame();
        for _ in 0..PACKETS {
            let flow = zipf.draw(&mut random) as usize;
            counts[flow] += 1;
            packet[26..30].copy_from_slice(&(flow as u32).to_be_bytes());
            telemetry.process(std::iter::once(packet.as_mut_slice()), |_, _| ());
        }
        (telemetry, counts)
    }

    fn key(flow: usize) -> u64 {
        let [a, b, c, d] = (flow as u32).to_be_bytes();
        u64::from_ne_bytes([a, b, c, d, 10, 0, 0, 2])
    }

    #[test]
    fn estimates_are_within_the_bound() {
        let (telemetry, counts) = measure();
        let outside = |flows: std::ops::Range<usize>| {
            let of = flows.len() as f64;
            let outside = flows.filter(|flow| {
                let bound = Bound::new(counts[*flow], PACKETS, ONE_IN);
                !bound.includes(telemetry.estimate(key(*flow)))
            });
            outside.count() as f64 / of
        };
        assert!(outside(0..FLOWS) <= Bound::PROBABILITY, "{}", outside(0..FLOWS));
        // The bound is tight for the flows with most packets only.
        assert!(outside(0..60) <= Bound::PROBABILITY, "{}", outside(0..60));
        let first = Bound::new(counts[0], PACKETS, ONE_IN);
        assert!(first.max / (counts[0] as f64) < 1.2 && first.min / (counts[0] as f64) > 0.8);
        // 1 - 0.99^5 of the packets are sampled.
        let sampled = telemetry.counts()[1].value as f64 / PACKETS as f64;
        assert!((0.0485..0.0495).contains(&sampled), "{sampled}");
    }

    #[test]
    fn flows_with_many_packets_are_listed() {
        let (telemetry, counts) = measure();
        let threshold = PACKETS / 1000;
        let heavy = telemetry.heavy(threshold);
        let true_heavy = (0..FLOWS).filter(|flow| counts[*flow] >= 2 * threshold);
        assert!(true_heavy.clone().count() >= 5);
        for flow in true_heavy {
            assert!(heavy.iter().any(|heavy| heavy.key == key(flow)), "flow {flow}");
        }
        let findings = telemetry.findings();
        assert_eq!(findings.len(), heavy.len());
        let (source, destination) = (Ipv4Addr::from(0), Ipv4Addr::new(10, 0, 0, 2));
        assert_eq!(findings[0].subject, Subject::Flow { source, destination }, "the first rank");
        assert_eq!(findings[0].value, heavy[0].estimate);
        for Heavy { key: found, estimate } in &heavy {
            let flow = (0..FLOWS).find(|flow| key(*flow) == *found).unwrap();
            assert!(counts[flow] >= threshold / 2, "flow {flow}: {estimate}, not {}", counts[flow]);
        }
    }

    #[test]
    fn packets_are_sent_unchanged_and_malformed_ones_counted() {
        let mut telemetry = Telemetry::new(1, 1);
        let mut packets = vec![Spec::default().frame(), vec![1; 9], Spec::default().frame()];
        let before = packets.clone();
        assert_eq!(run(&mut telemetry, &mut packets), [Decision::Send; 3]);
        assert_eq!(packets, before);
        assert_eq!(telemetry.malformed.total(), 1);
        assert_eq!((telemetry.packets(), telemetry.sampled), (3, 3));
        assert_eq!(telemetry.estimate(u64::from_ne_bytes([10, 0, 0, 1, 10, 0, 0, 2])), 2);
    }
}
