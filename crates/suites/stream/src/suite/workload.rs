//! The workload of a testbed: the traffic of its application, and what that returns.

// Levels may be any number, and this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use lab::factor::{LevelType, Levels};
use lab::method::Params;
use lab::sample::Failure;

use super::application_config::KEYS;
use super::params::Interface;
use super::testbed_config::TestbedConfig;
use super::traffic::Flows;
use crate::application::{ApplicationKind, BACKENDS, backend_addresses};
use crate::generator::Expectation;
use crate::steering::Steering;
use crate::wire::Flow;
use crate::wire::sample::{MIN_SIZE, SampleTraffic, Sizes};
use crate::wire::traffic::Traffic;
use crate::workload::log_lines::{self, LogLines};
use crate::workload::maglev::{self, CACHED, FLOOD, SynFlood};
use crate::workload::pairs::{self, Pairs};
use crate::workload::requests::{self, MAX_PER_PACKET, Requests};

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

/// Parses `zipf-<exponent>`.
fn exponent(level: &str) -> Option<f64> {
    let exponent = level.strip_prefix("zipf-")?.parse().ok()?;
    (0.01..=4.0).contains(&exponent).then_some(exponent)
}

fn workload(text: &str) -> Result<String, String> {
    match Workload::from_level(text) {
        Some(Workload::Zipf(exponent)) => Ok(format!("zipf-{exponent}")),
        Some(_) => Ok(text.into()),
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
    /// key-value: share of GETs among the requests, in per cent; the others are SETs
    #[factor(default = "50", levels = Levels::Count(0, 100))]
    pub get_share: u32,
    /// key-value: requests per packet
    #[factor(default = "1", levels = Levels::Count(1, MAX_PER_PACKET as u64))]
    pub requests_per_packet: u32,
    /// log-monitor: share of the lines that report a failure, in per cent
    #[factor(default = "10", levels = Levels::Count(0, 100))]
    pub match_share: u32,
}

/// Kinds of traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TrafficKind {
    /// Packets of all flows in turn.
    Sample,
    SynFlood,
    Pairs,
    Requests,
    LogLines,
}

impl WorkloadParams {
    /// Returns the kind of traffic of an application.
    fn kind(&self, application: ApplicationKind) -> TrafficKind {
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

    /// Returns the sizes of packets of which `sizes` are those that a point states.
    pub(super) fn sizes(&self, application: ApplicationKind, sizes: Sizes) -> Sizes {
        match self.kind(application) {
            TrafficKind::Sample | TrafficKind::Pairs | TrafficKind::SynFlood => sizes,
            TrafficKind::Requests => Sizes::One(Requests::size(self.per_packet())),
            TrafficKind::LogLines => Sizes::One(log_lines::SIZE),
        }
    }

    fn per_packet(&self) -> u16 {
        u16::try_from(self.requests_per_packet).unwrap_or(u16::MAX)
    }

    fn exponent(&self) -> f64 {
        match self.workload {
            Workload::Zipf(exponent) => exponent,
            Workload::InTurn | Workload::Cached | Workload::SynFlood | Workload::Uniform => 0.0,
        }
    }
}

/// Converts per cent to a share.
fn share(percent: u32) -> f64 {
    f64::from(percent) / 100.0
}

impl TestbedConfig {
    fn kind(&self) -> TrafficKind {
        self.workload.kind(self.application)
    }

    /// Checks that there is traffic of the configured workload for the configured application.
    ///
    /// # Errors
    /// Returns `unsupported` with what to use instead.
    pub(super) fn check_workload(&self) -> Result<(), Failure> {
        let unsupported = |why: &str| Err(Failure::unsupported(why));
        let (workload, kind) = (self.workload.workload, self.kind());
        let has_pipes = self.flows == Flows::PerPipe;
        match (kind, workload) {
            (TrafficKind::Requests, Workload::InTurn | Workload::Cached | Workload::SynFlood) => {
                return unsupported(
                    "the keys of requests have a distribution; use workload zipf-0.99 or uniform",
                );
            }
            (
                TrafficKind::LogLines,
                Workload::Cached | Workload::SynFlood | Workload::Uniform | Workload::Zipf(_),
            ) => {
                return unsupported(
                    "the streams of log lines are sent in turn; use workload in-turn",
                );
            }
            (
                TrafficKind::Sample
                | TrafficKind::SynFlood
                | TrafficKind::Pairs
                | TrafficKind::Requests
                | TrafficKind::LogLines,
                _,
            ) => {}
        }
        if workload == Workload::Cached && !has_pipes {
            return unsupported("workload cached has 16 flows; leave flows at per-pipe");
        }
        if kind == TrafficKind::Requests && !has_pipes {
            return unsupported("the keys of a packet belong to a pipe; leave flows at per-pipe");
        }
        let is_directed = self.steering == Steering::Rules || self.cores == 1;
        if kind == TrafficKind::Requests && !is_directed {
            return unsupported("the keys of a packet belong to one core; use steering rules");
        }
        let is_smallest = self.packet_bytes == Sizes::One(MIN_SIZE);
        if kind == TrafficKind::SynFlood && !is_smallest {
            return unsupported("packets that open a connection have 64 B; use packet_bytes 64");
        }
        if kind == TrafficKind::SynFlood && self.interface == Interface::Dpdk {
            return unsupported(
                "testpmd exchanges the addresses in which syn-flood has its marks; use another workload",
            );
        }
        Ok(())
    }

    /// Checks that a closed loop can have this application.
    ///
    /// # Errors
    /// Returns `unsupported` with what to use instead.
    pub(super) fn check_closed_loop(&self) -> Result<(), Failure> {
        let is_receiver = self.expectation() == Expectation::Nothing;
        if is_receiver && self.interface.notify().is_none() {
            return Err(Failure::unsupported(
                "a closed loop needs to know when packets are consumed, which only pipes tell; use pipes or an offered load",
            ));
        }
        Ok(())
    }

    /// Returns what the application returns.
    pub fn expectation(&self) -> Expectation {
        match (self.interface, self.application) {
            (Interface::Dpdk, _) => self.dpdk.expectation(),
            (_, ApplicationKind::Echo) => Expectation::Byte,
            (_, ApplicationKind::MaglevEnso | ApplicationKind::Maglev) => Expectation::Images,
            (_, ApplicationKind::KeyValue) => Expectation::Answers,
            (_, ApplicationKind::LogMonitor) => Expectation::Nothing,
            (_, ApplicationKind::Telemetry) => Expectation::Same,
        }
    }

    /// Returns the number of flows: of a workload with a distribution, of destinations.
    pub(super) fn flow_count(&self) -> u32 {
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
    pub(super) fn flow(&self, number: u32) -> (Flow, bool) {
        match self.kind() {
            TrafficKind::Sample | TrafficKind::Pairs | TrafficKind::Requests => {
                (SampleTraffic::flow_to(number), false)
            }
            TrafficKind::SynFlood => (SynFlood::flow_to(number), true),
            TrafficKind::LogLines => (LogLines::flow_to(number), false),
        }
    }

    /// Returns the number of packets of the traffic. Each flow gets a whole cycle of sizes.
    pub(super) fn packet_count(&self) -> u32 {
        match self.kind() {
            TrafficKind::Sample => self.flow_count().saturating_mul(self.packet_bytes.cycle()),
            TrafficKind::SynFlood => FLOOD,
            TrafficKind::Pairs => pairs::PACKETS,
            TrafficKind::Requests => Requests::packets(self.workload.per_packet()),
            TrafficKind::LogLines => LogLines::packets(self.flow_count()),
        }
    }

    /// Returns how many times the traffic is in memory: twice if it has images.
    pub(super) fn traffic_copies(&self) -> u64 {
        match self.expectation() {
            Expectation::Images | Expectation::Answers => 2,
            Expectation::Same | Expectation::Byte | Expectation::Nothing => 1,
        }
    }

    /// Generates the packets.
    ///
    /// # Errors
    /// Returns why they cannot be generated.
    pub(super) fn packets(&self) -> Result<Traffic, Failure> {
        let flows = self.flow_count();
        let exponent = self.workload.exponent();
        let generated = match self.kind() {
            TrafficKind::Sample => {
                let packets = self.packet_count();
                let size = self.packet_bytes;
                let sample = SampleTraffic { packets, size, sources: 1, destinations: flows };
                sample.traffic().map_err(Into::into)
            }
            TrafficKind::SynFlood => SynFlood { connections: FLOOD, destinations: flows }.traffic(),
            TrafficKind::Pairs => {
                Pairs { size: self.packet_bytes, exponent, destinations: flows }.traffic()
            }
            TrafficKind::Requests => {
                let requests = Requests {
                    keys: KEYS as u64,
                    exponent,
                    gets: share(self.workload.get_share),
                    per_packet: self.workload.per_packet(),
                    pipes: self.pipes,
                    cores: u16::try_from(self.cores).unwrap_or(u16::MAX),
                    pipes_per_core: u32::try_from(self.pipes_per_core()).unwrap_or(u32::MAX),
                };
                requests.traffic()
            }
            TrafficKind::LogLines => {
                let matching = share(self.workload.match_share);
                LogLines { matching, streams: flows }.traffic().map(|lines| lines.traffic)
            }
        };
        generated.map_err(|why| Failure::failed(why.to_string()))
    }

    /// Sets what the application returns for each packet.
    ///
    /// # Errors
    /// Returns why it cannot be computed.
    pub(super) fn with_expected(&self, traffic: Traffic) -> Result<Traffic, Failure> {
        let balanced = |traffic, checksums| {
            let backends = backend_addresses(BACKENDS);
            let balanced = maglev::with_expected(traffic, &backends, checksums);
            balanced.map_err(|why| Failure::failed(why.to_string()))
        };
        match (self.interface, self.application) {
            (Interface::Dpdk, _) => Ok(self.dpdk.with_expected(traffic)?),
            (_, ApplicationKind::MaglevEnso) => balanced(traffic, false),
            (_, ApplicationKind::Maglev) => balanced(traffic, true),
            (_, ApplicationKind::KeyValue) => Ok(requests::with_expected(traffic)?),
            (
                _,
                ApplicationKind::Echo | ApplicationKind::LogMonitor | ApplicationKind::Telemetry,
            ) => Ok(traffic),
        }
    }
}

#[cfg(test)]
mod tests {
    use lab::sample::FailureKind;

    use super::super::params::CommonParams;
    use super::*;

    fn config(levels: &[(&str, &str)]) -> TestbedConfig {
        let levels = levels.iter().map(|(name, level)| ((*name).to_string(), (*level).into()));
        TestbedConfig::new(&CommonParams::with_defaults(&levels.collect()).unwrap())
    }

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

    #[test]
    fn impossible_workloads_are_refused_with_another() {
        for (levels, said) in [
            (&[("application", "key-value")][..], "use workload zipf-0.99 or uniform"),
            (&[("application", "log-monitor"), ("workload", "uniform")], "use workload in-turn"),
            (&[("workload", "cached"), ("flows", "3")], "leave flows at per-pipe"),
            (&[("application", "key-value"), ("workload", "uniform"), ("flows", "3")], "per-pipe"),
            (
                &[
                    ("application", "key-value"),
                    ("workload", "uniform"),
                    ("steering", "hash"),
                    ("pipes", "2"),
                    ("cores", "2"),
                ],
                "use steering rules",
            ),
            (&[("workload", "syn-flood"), ("packet_bytes", "128")], "use packet_bytes 64"),
            (&[("workload", "syn-flood"), ("interface", "dpdk")], "use another workload"),
        ] {
            let failure = config(levels).check_workload().unwrap_err();
            assert_eq!(failure.kind, FailureKind::Unsupported);
            assert!(failure.why.contains(said) && !failure.why.contains('\n'), "{failure}");
        }
        for levels in [
            &[][..],
            &[("workload", "syn-flood")],
            &[("application", "key-value"), ("workload", "zipf-0.99"), ("steering", "hash")],
            &[("application", "log-monitor"), ("flows", "100")],
        ] {
            config(levels).check_workload().unwrap();
        }
    }

    #[test]
    fn sizes_are_those_of_the_traffic() {
        let size = |levels: &[(&str, &str)]| config(levels).packet_bytes;
        assert_eq!(size(&[("packet_bytes", "imix")]), Sizes::Imix);
        assert_eq!(size(&[("application", "log-monitor")]), Sizes::One(1518));
        let requests =
            |count| size(&[("application", "key-value"), ("requests_per_packet", count)]);
        assert_eq!([requests("1"), requests("60")], [Sizes::One(94), Sizes::One(1510)]);
    }

    #[test]
    fn a_closed_loop_of_a_receiver_needs_pipes() {
        let of = |interface| {
            config(&[("application", "log-monitor"), ("interface", interface)]).check_closed_loop()
        };
        of("pipes").unwrap();
        let failure = of("descriptors").unwrap_err();
        assert!(failure.why.contains("use pipes or an offered load"), "{failure}");
        config(&[("interface", "descriptors")]).check_closed_loop().unwrap();
    }
}
