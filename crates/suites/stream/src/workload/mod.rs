//! The traffic of the applications, and what they should return: references that work on each packet by itself, without the
//! state and the optimisations of the applications.
//!
//! All traffic is generated before it is sent, from a fixed seed, and replayed endlessly. Packets to destination *i*, counted
//! from the first address, are flow *i* of the NIC's rules.

// A new level of a factor must not compile until every match defines it.
#![deny(clippy::wildcard_enum_match_arm)]

pub mod application_traffic;
pub mod log_lines;
pub mod maglev;
pub mod pairs;
pub mod params;
pub mod requests;

use applications::maglev::table::TableError;
use applications::zipf::ZipfError;
use lab::sample::Failure;
use machine::SysError;

use crate::application::ApplicationKind;
use crate::nic::flow_table::looked_up;
use crate::wire::packet::Flow;
use crate::wire::sample::{FIRST, SampleError, SampleTraffic};
use log_lines::LogLines;
use maglev::SynFlood;

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
    /// There is no such traffic of the application.
    #[error("{0}")]
    Unsuitable(&'static str),
    /// Packets that are distributed round-robin reach the same pipe again only after too many.
    #[error("round-robin over {0} pipes replays too many packets; use a multiple of {0} flows")]
    RoundRobin(u32),
    /// There is no table of these backends.
    #[error(transparent)]
    Backends(#[from] TableError),
    /// Memory is exhausted.
    #[error(transparent)]
    Memory(#[from] SysError),
}

impl From<WorkloadError> for Failure {
    fn from(why: WorkloadError) -> Self {
        match why {
            WorkloadError::Unsuitable(_) | WorkloadError::RoundRobin(_) => {
                let text = why.to_string();
                let (why, remedy) =
                    text.split_once("; ").unwrap_or((&text, "use another workload"));
                Self::unsupported(why, remedy)
            }
            WorkloadError::Memory(why) => why.into(),
            WorkloadError::Sample(_)
            | WorkloadError::Zipf(_)
            | WorkloadError::Requests(_)
            | WorkloadError::Backends(_) => Self::failed(why.to_string()),
        }
    }
}

/// Returns the number of a packet's destination, counted from the first address.
pub fn destination(flow: &Flow) -> u32 {
    flow.destination.to_bits().wrapping_sub(FIRST.to_bits())
}

/// A rule for packets to a destination, counted from the first address.
type Rule = fn(u32) -> Flow;

/// Returns the rules that a command of an application has for each destination, so that it receives what `generate` sends it:
/// one for each kind of packet that the NIC looks up differently.
pub(crate) fn rules_of_command(application: ApplicationKind) -> &'static [Rule] {
    const UDP: Rule = |to| looked_up(&SampleTraffic::flow_to(to), false);
    const NEW_CONNECTION: Rule = |to| looked_up(&SynFlood::flow_to(to), true);
    const LOG_STREAM: Rule = |to| looked_up(&LogLines::flow_to(to), false);
    match application {
        ApplicationKind::Echo | ApplicationKind::KeyValue => &[UDP],
        ApplicationKind::MaglevEnso | ApplicationKind::Maglev | ApplicationKind::Telemetry => {
            &[UDP, NEW_CONNECTION]
        }
        ApplicationKind::LogMonitor => &[UDP, LOG_STREAM],
    }
}
