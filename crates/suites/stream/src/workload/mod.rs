//! The traffic of the applications, and what they should return: references that work on each packet by itself, without the
//! state and the optimisations of the applications.
//!
//! All traffic is generated before it is sent, from a fixed seed, and replayed endlessly. Packets to destination *i*, counted
//! from the first address, are flow *i* of the NIC's rules.

pub mod log_lines;
pub mod maglev;
pub mod pairs;
pub mod requests;

use applications::zipf::ZipfError;
use machine::SysError;

use crate::wire::packet::Flow;
use crate::wire::sample::{FIRST, SampleError};

/// Seed of all generated traffic.
const SEED: u64 = 1;

/// Why there is no such traffic.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// The sizes or addresses are invalid.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// The distribution is invalid.
    #[error(transparent)]
    Zipf(#[from] ZipfError),
    /// More requests than a packet has space for, or none.
    #[error("{0} requests per packet; use 1 to {max}", max = requests::MAX_PER_PACKET)]
    Requests(u16),
    /// Memory is exhausted.
    #[error(transparent)]
    Memory(#[from] SysError),
}

/// Returns the number of a packet's destination, counted from the first address.
pub fn destination(flow: &Flow) -> u32 {
    flow.destination.to_bits().wrapping_sub(FIRST.to_bits())
}
