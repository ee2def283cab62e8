//! The fallback: pipes for packets that match no rule of the flow table.
//!
//! The hardware uses its flow table's hash of the looked-up fields, so that all UDP packets to one destination go to
//! one pipe, and requires a power of two of pipes. Here the hash is that of receive-side scaling, as in other NICs, over
//! both endpoints of the packet, and any number of pipes is allowed.

use crate::wire::Flow;

/// How the pipe of a packet is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// By the flow's [`hash`], so that a flow stays on one pipe.
    #[default]
    Hash,
    /// Round-robin, packet by packet.
    RoundRobin,
}

/// The pipes for packets that match no rule. Without pipes, such packets are dropped.
#[derive(Debug, Clone, Default)]
pub struct Fallback {
    pipes: Vec<u32>,
    policy: Policy,
    next: usize,
}

impl Fallback {
    /// Creates a fallback that starts with the first pipe.
    pub fn new(pipes: Vec<u32>, policy: Policy) -> Self {
        Self { pipes, policy, next: 0 }
    }

    /// Returns the pipes.
    pub fn pipes(&self) -> &[u32] {
        &self.pipes
    }

    /// Returns the policy.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Removes a pipe. Returns whether it was one of them.
    pub(crate) fn remove(&mut self, pipe: u32) -> bool {
        let before = self.pipes.len();
        self.pipes.retain(|other| *other != pipe);
        self.next = 0;
        self.pipes.len() < before
    }

    /// Returns the pipe for the next packet, or `None` to drop it.
    pub fn pipe(&mut self, flow: &Flow) -> Option<u32> {
        if self.pipes.is_empty() {
            return None;
        }
        let index = match self.policy {
            Policy::Hash => hash(flow) as usize % self.pipes.len(),
            Policy::RoundRobin => {
                let next = self.next;
                // No division: it takes as long as some packets.
                self.next = if next + 1 == self.pipes.len() { 0 } else { next + 1 };
                next
            }
        };
        Some(self.pipes[index])
    }
}

/// Length of the hash input: both addresses and both ports.
const INPUT: usize = 12;

/// The key that Microsoft published with its description of receive-side scaling.
const KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
    0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
    0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

/// Contribution of each byte value at each position to the hash.
static PARTS: [[u32; 256]; INPUT] = parts();

/// Returns the Toeplitz hash of receive-side scaling over addresses and ports. Ports of 0 contribute nothing, so
/// protocols without ports are hashed by their addresses, as in NICs. The protocol is not hashed.
pub fn hash(flow: &Flow) -> u32 {
    let mut input = [0; INPUT];
    input[..4].copy_from_slice(&flow.source.octets());
    input[4..8].copy_from_slice(&flow.destination.octets());
    input[8..10].copy_from_slice(&flow.source_port.to_be_bytes());
    input[10..].copy_from_slice(&flow.destination_port.to_be_bytes());
    input.iter().zip(&PARTS).fold(0, |hash, (byte, part)| hash ^ part[usize::from(*byte)])
}

/// Computes the table: for each set bit, the 32 bits of the key that start at its position.
const fn parts() -> [[u32; 256]; INPUT] {
    let mut parts = [[0; 256]; INPUT];
    let mut place = 0;
    while place < INPUT {
        let window = (KEY[place] as u64) << 32
            | (KEY[place + 1] as u64) << 24
            | (KEY[place + 2] as u64) << 16
            | (KEY[place + 3] as u64) << 8
            | KEY[place + 4] as u64;
        let mut byte = 0;
        while byte < 256 {
            let mut bit = 0;
            while bit < 8 {
                if byte & (0x80 >> bit) != 0 {
                    parts[place][byte] ^= (window >> (8 - bit)) as u32;
                }
                bit += 1;
            }
            byte += 1;
        }
        place += 1;
    }
    parts
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::Ipv4Addr;

    use super::*;

    /// Source, destination, and Microsoft's published hashes with and without ports.
    const PUBLISHED: [(&str, u16, &str, u16, u32, u32); 5] = [
        ("66.9.149.187", 2794, "161.142.100.80", 1766, 0x51cc_c178, 0x323e_8fc2),
        ("199.92.111.2", 14230, "65.69.140.83", 4739, 0xc626_b0ea, 0xd718_262a),
        ("24.19.198.95", 12898, "12.22.207.184", 38024, 0x5c2b_394a, 0xd2d0_a5de),
        ("38.27.205.30", 48228, "209.142.163.6", 2217, 0xafc7_327f, 0x8298_9176),
        ("153.39.163.191", 44251, "202.188.127.2", 1303, 0x10e8_28a2, 0x5d18_09c5),
    ];

    fn flow(source: &str, source_port: u16, destination: &str, destination_port: u16) -> Flow {
        let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
        Flow { source, destination, source_port, destination_port, protocol: 6 }
    }

    #[test]
    fn the_hash_is_the_published_one() {
        for (source, from, destination, to, with_ports, without) in PUBLISHED {
            assert_eq!(hash(&flow(source, from, destination, to)), with_ports, "{source}");
            assert_eq!(hash(&flow(source, 0, destination, 0)), without, "{source}");
        }
    }

    #[test]
    fn a_flow_stays_on_one_pipe_and_many_flows_reach_them_all() {
        let mut fallback = Fallback::new(vec![7, 9, 4], Policy::Hash);
        let mut reached = BTreeSet::new();
        for low in 0..=255 {
            let destination = Ipv4Addr::new(192, 168, 0, low);
            let flow = Flow { destination, ..flow("10.0.0.1", 8080, "0.0.0.0", 80) };
            let pipe = fallback.pipe(&flow);
            assert_eq!(fallback.pipe(&flow), pipe);
            reached.extend(pipe);
        }
        assert_eq!(reached, BTreeSet::from([4, 7, 9]));
    }

    #[test]
    fn round_robin_takes_the_pipes_in_turn_for_any_flow() {
        let mut fallback = Fallback::new(vec![7, 9, 4], Policy::RoundRobin);
        let flow = flow("10.0.0.1", 8080, "10.0.0.2", 80);
        let pipes: Vec<_> = (0..7).filter_map(|_| fallback.pipe(&flow)).collect();
        assert_eq!(pipes, [7, 9, 4, 7, 9, 4, 7]);
    }

    #[test]
    fn without_pipes_a_packet_is_dropped() {
        let flow = flow("10.0.0.1", 8080, "10.0.0.2", 80);
        for policy in [Policy::Hash, Policy::RoundRobin] {
            assert_eq!(Fallback::new(Vec::new(), policy).pipe(&flow), None);
        }
        assert_eq!(Fallback::default().pipe(&flow), None);
    }
}
