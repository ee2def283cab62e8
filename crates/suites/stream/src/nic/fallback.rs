//! Where a packet goes that matches no rule of the flow table.
//!
//! The hardware takes its flow table's hash of what it looked up, so that all UDP packets to one destination
//! go to one pipe, and asks for a power of two of pipes. Here the hash is that of receive-side scaling, as
//! other NICs compute it, over what the packet says of both ends, and any number of pipes will do.

use crate::wire::flow::Flow;

#[cfg(test)]
mod tests;

/// How a packet's pipe is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// By its flow's [`hash`], so that a flow stays on one pipe.
    #[default]
    Hash,
    /// One pipe after another, packet by packet.
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
    /// These pipes, the first of them the first in turn.
    pub fn new(pipes: Vec<u32>, policy: Policy) -> Self {
        Self { pipes, policy, next: 0 }
    }

    /// The pipes.
    pub fn pipes(&self) -> &[u32] {
        &self.pipes
    }

    /// How one is chosen.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// A pipe is none of them any more; whether it was.
    pub(crate) fn remove(&mut self, pipe: u32) -> bool {
        let before = self.pipes.len();
        self.pipes.retain(|other| *other != pipe);
        self.next = 0;
        self.pipes.len() < before
    }

    /// The pipe for the next packet; none where it is dropped.
    pub fn pipe(&mut self, flow: &Flow) -> Option<u32> {
        if self.pipes.is_empty() {
            return None;
        }
        let index = match self.policy {
            Policy::Hash => hash(flow) as usize % self.pipes.len(),
            Policy::RoundRobin => {
                let turn = self.next;
                self.next = (turn + 1) % self.pipes.len();
                turn
            }
        };
        Some(self.pipes[index])
    }
}

/// Bytes that are hashed: both addresses and both ports.
const INPUT: usize = 12;

/// The key that Microsoft published with its description of receive-side scaling.
const KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
    0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
    0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

/// What each byte at each place adds to the hash.
static PARTS: [[u32; 256]; INPUT] = parts();

/// The Toeplitz hash of receive-side scaling over addresses and ports. Ports of 0 add nothing, so protocols
/// without ports are hashed by their addresses, as NICs do; the protocol is not hashed.
pub fn hash(flow: &Flow) -> u32 {
    let mut input = [0; INPUT];
    input[..4].copy_from_slice(&flow.source.octets());
    input[4..8].copy_from_slice(&flow.destination.octets());
    input[8..10].copy_from_slice(&flow.source_port.to_be_bytes());
    input[10..].copy_from_slice(&flow.destination_port.to_be_bytes());
    input.iter().zip(&PARTS).fold(0, |hash, (byte, part)| hash ^ part[usize::from(*byte)])
}

/// For each bit that is set, the 32 bits of the key that begin where it stands.
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
