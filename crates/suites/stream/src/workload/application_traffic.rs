//! The traffic of an application, and what that returns: the same for experiments and commands.

// Levels may be any number, and this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::log_lines::{LogLines, LogTraffic, MatchingLines};
use super::maglev::{self, CACHED, FLOOD, SynFlood};
use super::pairs::{self, Pairs};
use super::params::{Flows, TrafficKind, Workload, WorkloadParams};
use super::requests::{self, Requests};
use super::{WorkloadError, destination};
use crate::application::{ApplicationKind, backend_addresses};
use crate::generator::Expectation;
use crate::nic::fallback::hash;
use crate::nic::flow_table::looked_up;
use crate::steering::Steering;
use crate::wire::Flow;
use crate::wire::sample::{MIN_SIZE, SampleTraffic, Sizes};
use crate::wire::traffic::{Packet, Traffic};

/// An application with the levels of its workload, and how packets reach it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ApplicationTraffic {
    /// The application.
    pub application: ApplicationKind,
    /// Which flows, keys and lines the packets have.
    pub workload: WorkloadParams,
    /// Sizes of the packets, with their check sequence; requests and log lines have their own.
    pub sizes: Sizes,
    /// Number of flows.
    pub flows: Flows,
    /// How packets reach the pipes or queues.
    pub steering: Steering,
    /// Pipes or queues of all cores.
    pub pipes: u32,
    /// Cores of the application.
    pub cores: usize,
    /// Number of keys of the key-value store.
    pub keys: u64,
    /// Number of Maglev's backends.
    pub backends: u32,
}

/// Generated traffic.
#[derive(Debug)]
pub struct Generated {
    /// The packets.
    pub traffic: Traffic,
    /// The lines that a log monitor finds in them; `None` if they are no log lines.
    pub matching: Option<MatchingLines>,
}

impl Generated {
    /// Replaces the packets by what `change` makes of them.
    pub(crate) fn map<E>(
        self,
        change: impl FnOnce(Traffic) -> Result<Traffic, E>,
    ) -> Result<Self, E> {
        Ok(Self { traffic: change(self.traffic)?, ..self })
    }
}

/// Converts per cent to a share.
fn share(percent: u32) -> f64 {
    f64::from(percent) / 100.0
}

impl ApplicationTraffic {
    fn kind(&self) -> TrafficKind {
        self.workload.kind(self.application)
    }

    /// Returns the sizes of the packets, with their check sequence.
    pub fn sizes(&self) -> Sizes {
        self.workload.sizes(self.application, self.sizes)
    }

    /// Checks that there is traffic of the workload for the application.
    ///
    /// # Errors
    /// Returns what to use instead.
    pub fn check(&self) -> Result<(), WorkloadError> {
        let unsuitable = |why| Err(WorkloadError::Unsuitable(why));
        let has_pipes = self.flows == Flows::PerPipe;
        let is_directed = self.steering == Steering::Rules || self.cores == 1;
        let (kind, workload) = (self.kind(), self.workload.workload);
        match (kind, workload) {
            (TrafficKind::Requests, Workload::InTurn | Workload::Cached | Workload::SynFlood) => {
                unsuitable(
                    "the keys of requests have a distribution; use workload zipf-0.99 or uniform",
                )
            }
            (TrafficKind::Requests, _) if !has_pipes => {
                unsuitable("the keys of a packet belong to a pipe; leave flows at per-pipe")
            }
            (TrafficKind::Requests, _) if !is_directed => {
                unsuitable("the keys of a packet belong to one core; use steering rules")
            }
            (
                TrafficKind::LogLines,
                Workload::Cached | Workload::SynFlood | Workload::Uniform | Workload::Zipf(_),
            ) => unsuitable("the streams of log lines are sent in turn; use workload in-turn"),
            (TrafficKind::Sample, Workload::Cached) if !has_pipes => {
                unsuitable("workload cached has 16 flows; leave flows at per-pipe")
            }
            (TrafficKind::SynFlood, _) if self.sizes != Sizes::One(MIN_SIZE) => {
                unsuitable("packets that open a connection have 64 B; use packet_bytes 64")
            }
            (
                TrafficKind::Sample
                | TrafficKind::SynFlood
                | TrafficKind::Pairs
                | TrafficKind::Requests
                | TrafficKind::LogLines,
                _,
            ) => Ok(()),
        }
    }

    /// Returns what the application returns.
    pub fn expectation(&self) -> Expectation {
        match self.application {
            ApplicationKind::Echo => Expectation::Byte,
            ApplicationKind::MaglevEnso | ApplicationKind::Maglev => Expectation::Images,
            ApplicationKind::KeyValue => Expectation::Answers,
            ApplicationKind::LogMonitor => Expectation::Nothing,
            ApplicationKind::Telemetry => Expectation::Same,
        }
    }

    /// Returns the number of flows: of a workload with a distribution, of destinations.
    pub fn flow_count(&self) -> u32 {
        match (self.flows, self.workload.workload) {
            (Flows::PerPipe, Workload::Cached) => self.pipes.max(CACHED),
            (
                Flows::PerPipe,
                Workload::InTurn | Workload::SynFlood | Workload::Uniform | Workload::Zipf(_),
            ) => self.pipes,
            (Flows::Count(count), _) => count,
        }
    }

    /// Returns the flow that has the rule of a number, and whether its packets open connections.
    pub(crate) fn flow(&self, number: u32) -> (Flow, bool) {
        match self.kind() {
            TrafficKind::Sample | TrafficKind::Pairs | TrafficKind::Requests => {
                (SampleTraffic::flow_to(number), false)
            }
            TrafficKind::SynFlood => (SynFlood::flow_to(number), true),
            TrafficKind::LogLines => (LogLines::flow_to(number), false),
        }
    }

    /// Returns the rules of the traffic, one per flow in order; none if packets are directed without rules.
    pub fn rules(&self) -> Vec<Flow> {
        match self.steering {
            Steering::Rules => {
                let flows = (0..self.flow_count()).map(|number| self.flow(number));
                flows.map(|(flow, syn)| looked_up(&flow, syn)).collect()
            }
            Steering::Hash | Steering::RoundRobin => Vec::new(),
        }
    }

    /// Returns the number of packets of the traffic. Each flow gets a whole cycle of sizes.
    pub fn packet_count(&self) -> u32 {
        match self.kind() {
            TrafficKind::Sample => self.flow_count().saturating_mul(self.sizes.cycle()),
            TrafficKind::SynFlood => FLOOD,
            TrafficKind::Pairs => pairs::PACKETS,
            TrafficKind::Requests => Requests::packets(self.workload.per_packet()),
            TrafficKind::LogLines => LogLines::packets(self.flow_count()),
        }
    }

    /// Generates the packets, with what the application is expected to return, and in which order. They are replayed
    /// endlessly.
    ///
    /// # Errors
    /// Returns why they cannot be generated.
    pub fn traffic(&self) -> Result<Generated, WorkloadError> {
        let ordered = self.packets()?.map(|traffic| self.in_order(traffic))?;
        ordered.map(|traffic| self.with_expected(traffic))
    }

    /// Generates the packets.
    ///
    /// # Errors
    /// Returns why they cannot be generated.
    pub(crate) fn packets(&self) -> Result<Generated, WorkloadError> {
        let flows = self.flow_count();
        let (size, exponent) = (self.sizes, self.workload.exponent());
        let traffic = match self.kind() {
            TrafficKind::Sample => {
                let packets = self.packet_count();
                SampleTraffic { packets, size, sources: 1, destinations: flows }.traffic()?
            }
            TrafficKind::SynFlood => {
                SynFlood { connections: FLOOD, destinations: flows }.traffic()?
            }
            TrafficKind::Pairs => Pairs { size, exponent, destinations: flows }.traffic()?,
            TrafficKind::Requests => self.requests().traffic()?,
            TrafficKind::LogLines => {
                let matching = share(self.workload.match_share);
                let LogTraffic { traffic, matching } =
                    LogLines { matching, streams: flows }.traffic()?;
                return Ok(Generated { traffic, matching: Some(matching) });
            }
        };
        Ok(Generated { traffic, matching: None })
    }

    fn requests(&self) -> Requests {
        let pipes_per_core = (self.pipes as usize).div_ceil(self.cores.max(1));
        Requests {
            keys: self.keys,
            exponent: self.workload.exponent(),
            gets: share(self.workload.get_share),
            per_packet: self.workload.per_packet(),
            pipes: self.pipes,
            cores: u16::try_from(self.cores).unwrap_or(u16::MAX),
            pipes_per_core: u32::try_from(pipes_per_core).unwrap_or(u32::MAX),
        }
    }

    /// Sets which packets return in the order in which they are sent: those of each pipe or queue.
    ///
    /// # Errors
    /// Returns an error if packets that are directed round-robin had to be repeated too often.
    pub(crate) fn in_order(&self, traffic: Traffic) -> Result<Traffic, WorkloadError> {
        let by = |number: fn(&Flow) -> u32| {
            let pipe = |packet: &Packet| number(&packet.flow).checked_rem(self.pipes);
            traffic.packets().iter().map(pipe).map(|pipe| pipe.unwrap_or(0)).collect()
        };
        // Packets to one pipe return in order, so all packets of a pipe are a sequence.
        match self.steering {
            Steering::Rules => {
                let pipes = by(destination);
                Ok(traffic.with_sequences(pipes))
            }
            Steering::Hash => {
                let pipes = by(hash);
                Ok(traffic.with_sequences(pipes))
            }
            Steering::RoundRobin => {
                traffic.for_round_robin(self.pipes).ok_or(WorkloadError::RoundRobin(self.pipes))
            }
        }
    }

    /// Sets what the application returns for each packet.
    ///
    /// # Errors
    /// Returns why it cannot be computed.
    pub(crate) fn with_expected(&self, traffic: Traffic) -> Result<Traffic, WorkloadError> {
        let balanced = |traffic, checksums| {
            maglev::with_expected(traffic, &backend_addresses(self.backends), checksums)
        };
        match self.application {
            ApplicationKind::MaglevEnso => balanced(traffic, false),
            ApplicationKind::Maglev => balanced(traffic, true),
            ApplicationKind::KeyValue => Ok(requests::with_expected(traffic)?),
            ApplicationKind::Echo | ApplicationKind::LogMonitor | ApplicationKind::Telemetry => {
                Ok(traffic)
            }
        }
    }
}
