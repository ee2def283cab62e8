//! The params of each method, with their factors and levels.

// Levels may be any numbers, and this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::time::Duration;

use lab::factor::{LevelType, Levels};
use lab::method::Params;
use lab::quantity;

use super::dpdk::DpdkParams;
use super::driver::DriverParams;
use super::pages::PageLevel;
use crate::application::ApplicationKind;
use crate::generator::Check;
use crate::host::NotificationBatch;
use crate::host::descriptors::MAX_BURST;
use crate::link::LinkKind;
use crate::nic::PlacementOrder;
use crate::nic::layout::{BUFFERS, FLIT, NOTIFICATIONS, PIPES};
use crate::nic::pcie::{LinkRate, PcieModel};
use crate::nic::pipes::Notify;
use crate::steering::Steering;
use crate::wire::sample::Sizes;
use crate::workload::params::{Flows, WorkloadParams};

/// Ring sizes, in bytes.
const RINGS: std::ops::RangeInclusive<usize> = 4096..=64 << 20;

/// Maximum number of NOP instructions per packet: a packet then takes about 0.1 ms.
pub(crate) const MAX_NOPS: u32 = 1_000_000;
/// Maximum modelled duration of a doorbell or transfer.
pub(crate) const MAX_MODELLED: Duration = Duration::from_millis(1);

/// How packets reach the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType, clap::ValueEnum)]
pub enum Interface {
    /// Pipes with reactive notifications, each for all packets since the last one.
    Pipes,
    /// Pipes with one notification per packet.
    PipesPerPacket,
    /// Pipes with reactive notifications that the application requests before it needs them.
    PipesPrefetch,
    /// One descriptor and one buffer per packet.
    Descriptors,
    /// Virtqueues of an unmodified program of DPDK, which attaches by vhost-user. It is no interface of this project's
    /// programs.
    #[value(skip)]
    Dpdk,
    /// AF_XDP sockets at a veth pair.
    #[value(skip)]
    AfXdp,
    /// Packet sockets at a veth pair.
    #[value(skip)]
    AfPacket,
    /// A TAP interface, at which the application has a packet socket.
    #[value(skip)]
    Tap,
}

impl Interface {
    /// Returns when the NIC notifies; `None` if it has no pipes.
    pub(crate) fn notify(self) -> Option<Notify> {
        match self {
            Self::Pipes | Self::PipesPrefetch => Some(Notify::Reactively),
            Self::PipesPerPacket => Some(Notify::EveryPacket),
            Self::Descriptors | Self::Dpdk | Self::AfXdp | Self::AfPacket | Self::Tap => None,
        }
    }

    /// Returns the kind of the NIC's link; `None` if it has no interface of Linux.
    pub(crate) fn link(self) -> Option<LinkKind> {
        match self {
            Self::AfXdp => Some(LinkKind::AfXdp),
            Self::AfPacket => Some(LinkKind::AfPacket),
            Self::Tap => Some(LinkKind::Tap),
            Self::Pipes
            | Self::PipesPerPacket
            | Self::PipesPrefetch
            | Self::Descriptors
            | Self::Dpdk => None,
        }
    }

    /// Whether the application requests notifications before it needs them.
    pub(crate) fn prefetches(self) -> bool {
        match self {
            Self::PipesPrefetch => true,
            Self::Pipes
            | Self::PipesPerPacket
            | Self::Descriptors
            | Self::Dpdk
            | Self::AfXdp
            | Self::AfPacket
            | Self::Tap => false,
        }
    }
}

impl CommonParams {
    /// Returns the code of others that processes packets or scans them.
    pub(super) fn foreign_code(&self) -> Vec<&'static str> {
        let interface = match self.interface {
            Interface::Dpdk => Some("testpmd of DPDK and its driver, which the host has installed"),
            Interface::AfXdp | Interface::AfPacket | Interface::Tap => {
                Some("the network stack of Linux, and drivers of interfaces")
            }
            Interface::Pipes
            | Interface::PipesPerPacket
            | Interface::PipesPrefetch
            | Interface::Descriptors => None,
        };
        let library = match self.application {
            ApplicationKind::LogMonitor => Some("Hyperscan, a library that the host has installed"),
            ApplicationKind::Echo
            | ApplicationKind::MaglevEnso
            | ApplicationKind::Maglev
            | ApplicationKind::KeyValue
            | ApplicationKind::Telemetry => None,
        };
        interface.into_iter().chain(library).collect()
    }
}

/// Params of all methods.
#[derive(Debug, Clone, Params)]
pub struct CommonParams {
    /// how packets reach the application: pipes (reactive notifications), pipes-per-packet (one per packet), pipes-prefetch, descriptors (one descriptor and buffer per packet), dpdk (dpdk-testpmd by vhost-user), or through the kernel: af-xdp, af-packet, tap
    #[factor(default = "pipes")]
    pub(super) interface: Interface,
    /// what processes the packets: echo (adds 1 to a byte), maglev-enso (as in Ensō's evaluation, without checksums), maglev, key-value, log-monitor (sends nothing) or telemetry
    #[factor(default = "echo")]
    pub(super) application: ApplicationKind,
    #[factor(flatten)]
    pub(super) workload: WorkloadParams,
    /// packet size on the wire with its check sequence, in bytes: 64 to 1518, or imix (64, 594 and 1518 B as 7:4:1); packets of requests and log lines have their own
    #[factor(default = "64")]
    pub(super) packet_bytes: Sizes,
    /// number of flows of the traffic: per-pipe (one for each pipe or queue), or 1 to 65536
    #[factor(default = "per-pipe")]
    pub(super) flows: Flows,
    /// how packets reach the pipes or queues: rules (one per flow in the flow table), hash (of the flow), or round-robin (packet by packet)
    #[factor(default = "rules")]
    pub(super) steering: Steering,
    /// pipes (or queues) of all cores together
    #[factor(default = "1", levels = Levels::Count(1, PIPES as u64))]
    pub(super) pipes: u32,
    /// application cores
    #[factor(default = "1", levels = Levels::Count(1, BUFFERS as u64))]
    pub(super) cores: usize,
    /// how much of each echoed packet to verify besides count and order: none, one-word or all
    #[factor(default = "one-word")]
    pub(super) check: Check,
    /// size of each pipe's ring, in bytes: a power of two
    #[factor(default = "2 MiB", levels = Levels::Checked(ring))]
    pub(super) ring: usize,
    /// capacity of each pipe (or queue) in packets: a power of two, or 'ring' for as many 64 B packets as fit the ring
    #[factor(default = "ring")]
    pub(super) depth: Depth,
    /// NOP instructions per packet of the echo
    #[factor(default = "0", levels = Levels::Count(0, MAX_NOPS as u64))]
    pub(super) nops: u32,
    /// capacity of each core's notification buffer: a power of two
    #[factor(default = "16384", levels = Levels::Checked(notifications))]
    pub(super) notifications: u32,
    /// modelled duration of a write to the NIC's registers; none: no added delay
    #[factor(default = "none")]
    pub(super) modelled_doorbell: Modelled,
    /// modelled duration of a transfer by the NIC; none: no added delay
    #[factor(default = "none")]
    pub(super) modelled_transfer: Modelled,
    /// modelled duration for which each write to the NIC's registers stalls the application's core; none: no stall
    #[factor(default = "none")]
    pub(super) modelled_mmio: Modelled,
    /// modelled rate of the link between NIC and host, of each direction, with the overhead of PCIe: none, gen3x16 or gen4x16
    #[factor(default = "none")]
    pub(super) modelled_link: LinkRate,
    /// descriptors and dpdk: maximum number of packets that the application takes at a time
    #[factor(default = "64", levels = Levels::Count(1, MAX_BURST as u64))]
    pub(super) burst: u32,
    #[factor(flatten)]
    pub(super) driver: DriverParams,
    /// order in which the NIC writes a burst to memory: wire-order, or by-pipe if it has more packets than pipes
    #[factor(default = "wire-order")]
    pub(super) placement: PlacementOrder,
    /// notifications that pipes take at a time: 64 (not merged, as in Ensō's library), or merged (2048, each pipe once)
    #[factor(default = "64")]
    pub(super) notification_batch: NotificationBatch,
    /// pages of rings, notifications, descriptors and packet buffers: 2 MiB (of the kernel's pool), 4 KiB, or largest (2 MiB if the pool has enough, else 4 KiB; with dpdk always 2 MiB)
    #[factor(default = "largest")]
    pub(super) pages: PageLevel,
    #[factor(flatten)]
    pub(super) dpdk: DpdkParams,
}

impl CommonParams {
    /// Returns what is modelled of PCIe.
    pub(super) fn pcie(&self) -> PcieModel {
        PcieModel {
            doorbell: self.modelled_doorbell.0,
            transfer: self.modelled_transfer.0,
            mmio: self.modelled_mmio.0,
            link: self.modelled_link,
        }
    }
}

/// Params of `interfaces`.
#[derive(Debug, Clone, Params)]
pub(crate) struct ClosedParams {
    #[factor(flatten)]
    pub(super) common: CommonParams,
    /// maximum number of packets in flight, at most half of what the rings can store
    #[factor(default = "8192", levels = Levels::Count(1, 1 << 30))]
    pub(super) window: u64,
}

/// Params of `line-rate` and `rtt-vs-load`.
#[derive(Debug, Clone, Params)]
pub(crate) struct LoadParams {
    #[factor(flatten)]
    pub(super) common: CommonParams,
    /// sending rate on the wire with preamble and gap
    #[factor(default = "100", unit = "Gbps")]
    pub(super) load: Gigabits,
}

/// Params of `throughput`.
#[derive(Debug, Clone, Params)]
pub(crate) struct SearchParams {
    #[factor(flatten)]
    pub(super) common: CommonParams,
    /// highest rate that the search tries
    #[factor(default = "100", unit = "Gbps")]
    pub(super) maximum: Gigabits,
}

/// Capacity of a pipe or queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// As many 64 B packets as fit the ring.
    Ring,
    /// This number of packets of the point's size.
    Packets(u32),
}

impl LevelType for Depth {
    const LEVELS: Levels = Levels::Checked(depth);

    fn from_level(level: &str) -> Option<Self> {
        match level {
            "ring" => Some(Self::Ring),
            packets => packets.parse().ok().map(Self::Packets),
        }
    }
}

/// A rate in bit/s, whose levels are in Gbps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gigabits(pub f64);

impl LevelType for Gigabits {
    const LEVELS: Levels = Levels::Checked(gigabits);

    fn from_level(level: &str) -> Option<Self> {
        level.parse().ok().map(|gigabits: f64| Self(gigabits * 1e9))
    }
}

/// A modelled duration; zero if nothing is modelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Modelled(pub Duration);

impl LevelType for Modelled {
    const LEVELS: Levels = Levels::Checked(modelled);

    fn from_level(level: &str) -> Option<Self> {
        match level {
            "none" => Some(Self(Duration::ZERO)),
            time => quantity::duration(time).ok().map(Self),
        }
    }
}

/// Parses a whole number in `range`.
fn whole(text: &str, range: std::ops::RangeInclusive<u64>) -> Result<String, String> {
    let (min, max) = (range.start(), range.end());
    let number = text.parse::<u64>().ok().filter(|number| range.contains(number));
    number.map(|n| n.to_string()).ok_or_else(|| format!("'{text}' is not in {min} to {max}"))
}

/// Parses a power of two in `range`.
fn power(text: &str, range: std::ops::RangeInclusive<u64>) -> Result<String, String> {
    let number = whole(text, range)?;
    let is = number.parse::<u64>().is_ok_and(u64::is_power_of_two);
    if is { Ok(number) } else { Err(format!("{text} is not a power of two")) }
}

fn notifications(text: &str) -> Result<String, String> {
    power(text, 2..=u64::from(NOTIFICATIONS))
}

fn depth(text: &str) -> Result<String, String> {
    let flits = |bytes: &usize| (bytes / FLIT) as u64;
    if text == "ring" {
        return Ok(text.into());
    }
    let range = flits(RINGS.start())..=flits(RINGS.end());
    power(text, range.clone()).map_err(|_| {
        let (min, max) = (range.start(), range.end());
        format!("'{text}' is not 'ring' or a power of two from {min} to {max}")
    })
}

fn ring(text: &str) -> Result<String, String> {
    let bytes = quantity::bytes(text).map_err(|why| why.to_string())?;
    let fits = usize::try_from(bytes).is_ok_and(|bytes| RINGS.contains(&bytes));
    let canonical = quantity::format_bytes(bytes);
    match bytes.is_power_of_two() && fits {
        true => Ok(canonical),
        false => Err(format!("{canonical} is not a power of two from 4 KiB to 64 MiB")),
    }
}

fn gigabits(text: &str) -> Result<String, String> {
    let number = text.parse::<f64>().ok().filter(|number| *number >= 0.001 && *number <= 10_000.0);
    number.map(|n| n.to_string()).ok_or_else(|| format!("'{text}' is not a rate in Gbps, e.g. 100"))
}

fn modelled(text: &str) -> Result<String, String> {
    if text == "none" {
        return Ok(text.into());
    }
    let time = quantity::duration(text).map_err(|why| why.to_string())?;
    match time.is_zero() || time > MAX_MODELLED {
        true => Err(format!("{text} is not in 1 ns to 1 ms; use 'none' for no delay")),
        false => Ok(format!("{} ns", time.as_nanos())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_canonical_and_errors_name_the_factor() {
        let level = |name: &str, text: &str| {
            let all = [ClosedParams::FACTORS, LoadParams::FACTORS].concat();
            let factor = lab::factor::find(&all, name).unwrap();
            factor.level(text).map(|level| level.as_str().to_owned())
        };
        assert_eq!(level("ring", "2048 KiB").unwrap(), "2 MiB");
        assert_eq!(level("depth", "ring").unwrap(), "ring");
        assert_eq!(level("depth", "1024").unwrap(), "1024");
        assert_eq!(level("packet_bytes", "imix").unwrap(), "imix");
        assert_eq!(level("packet_bytes", "064").unwrap(), "64");
        assert_eq!(level("flows", "1024").unwrap(), "1024");
        assert_eq!(level("load", "0.5").unwrap(), "0.5");
        assert_eq!(level("load", "100.0").unwrap(), "100");
        assert_eq!(level("modelled_doorbell", "0.4 us").unwrap(), "400 ns");
        assert_eq!(level("modelled_doorbell", "none").unwrap(), "none");
        for (name, text) in [
            ("ring", "3 MiB"),
            ("ring", "1 KiB"),
            ("depth", "1000"),
            ("load", "0"),
            ("packet_bytes", "63"),
            ("packet_bytes", "each"),
            ("flows", "0"),
            ("flows", "65537"),
            ("steering", "random"),
            ("pipes", "8193"),
            ("nops", "1000001"),
            ("nops", "-1"),
            ("cores", "18446744073709551616"),
            ("window", "1073741825"),
            ("modelled_transfer", "0 ns"),
            ("interface", "rings"),
        ] {
            let why = level(name, text).unwrap_err();
            assert!(why.contains(name) && !why.contains('\n'), "{why}");
        }
    }
}
