//! The levels of a workload: which flows, keys and lines the packets of an application have.

use std::fmt;

use lab::factor::{LevelType, Levels};
use lab::method::Params;

use super::log_lines;
use super::requests::{MAX_PER_PACKET, Requests};
use crate::application::ApplicationKind;
use crate::wire::sample::Sizes;

/// Which flows or keys the packets have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Workload {
    /// Packets of all flows in turn.
    InTurn,
    /// The same with as many flows as Maglev's cache contains.
    Cached,
    /// Packets that each open a connection.
    SynFlood,
    /// Flows or keys with equal shares.
    Uniform,
    /// Flows or keys with a Zipf distribution of this exponent.
    Zipf(f64),
}

impl LevelType for Workload {
    const LEVELS: Levels = Levels::Checked(workload);

    fn from_level(level: &str) -> Option<Self> {
        match level {
            "in-turn" => Some(Self::InTurn),
            "cached" => Some(Self::Cached),
            "syn-flood" => Some(Self::SynFlood),
            "uniform" => Some(Self::Uniform),
            zipf => exponent(zipf).map(Self::Zipf),
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InTurn => f.write_str("in-turn"),
            Self::Cached => f.write_str("cached"),
            Self::SynFlood => f.write_str("syn-flood"),
            Self::Uniform => f.write_str("uniform"),
            Self::Zipf(exponent) => write!(f, "zipf-{exponent}"),
        }
    }
}

/// Parses `zipf-<exponent>`.
fn exponent(level: &str) -> Option<f64> {
    let exponent = level.strip_prefix("zipf-")?.parse().ok()?;
    (0.01..=4.0).contains(&exponent).then_some(exponent)
}

fn workload(text: &str) -> Result<String, String> {
    match Workload::from_level(text) {
        Some(workload) => Ok(workload.to_string()),
        None => Err(format!(
            "'{text}' is not in-turn, cached, syn-flood, uniform, or zipf-<exponent> of 0.01 to 4"
        )),
    }
}

/// Params of the workload.
#[derive(Debug, Clone, Copy, PartialEq, Params)]
pub struct WorkloadParams {
    /// which flows packets have, or which keys requests: in-turn (all flows in turn), cached (16 flows), syn-flood (1048576 connections of one packet), or pairs of addresses and keys with a distribution: uniform, zipf-0.99
    #[factor(default = "in-turn")]
    pub workload: Workload,
    /// key-value: share of the requests that are GETs and not SETs
    #[factor(default = "50", unit = "%", levels = Levels::Count(0, 100))]
    pub get_share: u32,
    /// key-value: requests per packet
    #[factor(default = "1", levels = Levels::Count(1, MAX_PER_PACKET as u64))]
    pub requests_per_packet: u32,
    /// log-monitor: share of the lines that report a failure
    #[factor(default = "10", unit = "%", levels = Levels::Count(0, 100))]
    pub match_share: u32,
}

/// Kinds of traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TrafficKind {
    /// Packets of all flows in turn.
    Sample,
    SynFlood,
    Pairs,
    Requests,
    LogLines,
}

impl WorkloadParams {
    /// Returns the kind of traffic of an application.
    pub(super) fn kind(&self, application: ApplicationKind) -> TrafficKind {
        match (application, self.workload) {
            (ApplicationKind::KeyValue, _) => TrafficKind::Requests,
            (ApplicationKind::LogMonitor, _) => TrafficKind::LogLines,
            (
                ApplicationKind::Echo
                | ApplicationKind::MaglevEnso
                | ApplicationKind::Maglev
                | ApplicationKind::Telemetry,
                workload,
            ) => match workload {
                Workload::InTurn | Workload::Cached => TrafficKind::Sample,
                Workload::SynFlood => TrafficKind::SynFlood,
                Workload::Uniform | Workload::Zipf(_) => TrafficKind::Pairs,
            },
        }
    }

    /// Returns the sizes of packets of which `sizes` are those that a point or a command states.
    pub(crate) fn sizes(&self, application: ApplicationKind, sizes: Sizes) -> Sizes {
        match self.kind(application) {
            TrafficKind::Sample | TrafficKind::Pairs | TrafficKind::SynFlood => sizes,
            TrafficKind::Requests => Sizes::One(Requests::size(self.per_packet())),
            TrafficKind::LogLines => Sizes::One(log_lines::SIZE),
        }
    }

    pub(super) fn per_packet(&self) -> u16 {
        u16::try_from(self.requests_per_packet).unwrap_or(u16::MAX)
    }

    pub(super) fn exponent(&self) -> f64 {
        match self.workload {
            Workload::Zipf(exponent) => exponent,
            Workload::InTurn | Workload::Cached | Workload::SynFlood | Workload::Uniform => 0.0,
        }
    }
}

/// Maximum number of flows.
const MAX_FLOWS: u32 = 65_536;

/// Number of flows of the traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flows {
    /// One for each pipe or queue.
    PerPipe,
    /// This number.
    Count(u32),
}

impl LevelType for Flows {
    const LEVELS: Levels = Levels::Checked(flows);

    fn from_level(level: &str) -> Option<Self> {
        match level {
            "per-pipe" => Some(Self::PerPipe),
            count => count.parse().ok().map(Self::Count),
        }
    }
}

fn flows(text: &str) -> Result<String, String> {
    let count = text.parse::<u32>().ok().filter(|count| (1..=MAX_FLOWS).contains(count));
    match count {
        Some(count) => Ok(count.to_string()),
        None if text == "per-pipe" => Ok(text.into()),
        None => Err(format!("'{text}' is not 'per-pipe' or a number from 1 to {MAX_FLOWS}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_canonical() {
        assert_eq!(workload("zipf-0.990").unwrap(), "zipf-0.99");
        for level in ["in-turn", "cached", "syn-flood", "uniform", "zipf-1", "zipf-0.5"] {
            assert_eq!(workload(level).unwrap(), level);
        }
        for wrong in ["zipf", "zipf-0", "zipf--1", "zipf-nan", "zipf-9", "random", ""] {
            let why = workload(wrong).unwrap_err();
            assert!(why.contains(&format!("'{wrong}'")) && !why.contains('\n'), "{why}");
        }
    }
}
