//! The interface `dpdk`: an unmodified program of DPDK, `dpdk-testpmd`, attached to the NIC by vhost-user.

// Levels may be any number, and this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod process;
mod statistics;
mod waiting;

use std::sync::Arc;

use lab::factor::LevelType;
use lab::method::Params;
use lab::program::Program;
use lab::sample::Failure;
use machine::SysError;

use super::testbed_config::{Cpus, TestbedConfig};
use crate::generator::{Expectation, GeneratorCommand};
use crate::nic::vhost::{VhostControl, VirtioNet};
use crate::nic::{Nic, NicParams, Pages};
use crate::wire::traffic::Traffic;
use crate::wire::{Flow, Wire};

use process::Socket;
pub(super) use process::Testpmd;
#[cfg(test)]
pub(super) use statistics::ForwardStats;
pub(super) use statistics::TestpmdStats;

/// The program.
pub(crate) const TESTPMD: Program = Program {
    name: "dpdk-testpmd",
    capability: "dpdk-testpmd",
    about: "DPDK's packet forwarder, for the interface dpdk",
    package: "dpdk-dev",
};

/// Maximum number of queues that testpmd uses per virtio port.
const MAX_QUEUES: u32 = 8;
/// Maximum number of descriptors per ring.
const MAX_DEPTH: u32 = 32_768;

/// Minimum number of packet buffers.
const MIN_BUFFERS: u64 = 32_768;
/// Packet buffers in the cache of a core, and in its bursts.
const BUFFERS_PER_CORE: u64 = 1024;
/// Size of a packet buffer with its headers, in bytes: 2176 of data with headroom, 128 of mbuf, 64 of pool.
const BUFFER: u64 = 2368;
/// Memory besides the packet buffers, in MiB.
const OTHER_MEMORY: u64 = 96;

/// The virtqueues that testpmd's driver negotiates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub enum Virtqueue {
    /// Packed rings, used in order, which the driver processes by AVX-512, four descriptors at a time.
    PackedVectorised,
    /// Packed rings, used in order.
    Packed,
    /// Split rings, used in order.
    Split,
    /// What the driver negotiates without options: split rings with mergeable buffers.
    Default,
}

/// What testpmd does with each packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub enum Forward {
    /// Exchanges the Ethernet addresses: reads and writes the packet's first cache line, as the echo does.
    Macswap,
    /// Nothing: does not access the packet.
    Io,
}

/// Offset of 8 bytes that `macswap` changes: of both Ethernet addresses.
const WORD_OF_ADDRESSES: usize = 2;

/// Does the work of `macswap` on a packet.
fn swap_addresses(packet: &mut [u8]) {
    let (addresses, _) = packet.split_at_mut(2 * ADDRESS);
    addresses.rotate_left(ADDRESS);
}

/// Length of an Ethernet address, in bytes.
const ADDRESS: usize = 6;

/// Params of the interface `dpdk`.
#[derive(Debug, Clone, Copy, Params)]
pub struct DpdkParams {
    /// dpdk: virtqueues, packed-vectorised (packed, by AVX-512), packed, split, or default (the driver's: split with mergeable buffers)
    #[factor(default = "packed-vectorised")]
    virtqueue: Virtqueue,
    /// dpdk: what it does with each packet, macswap (exchanges the Ethernet addresses) or io (nothing)
    #[factor(default = "macswap")]
    forward: Forward,
}

impl DpdkParams {
    /// Returns what the program returns.
    pub(super) fn expectation(&self) -> Expectation {
        match self.forward {
            Forward::Macswap => Expectation::Images,
            Forward::Io => Expectation::Same,
        }
    }

    /// Sets what the program returns for the packets of a traffic.
    ///
    /// # Errors
    /// Returns that memory is exhausted.
    pub(super) fn with_expected(&self, traffic: Traffic) -> Result<Traffic, SysError> {
        match self.forward {
            Forward::Macswap => traffic.with_expected(WORD_OF_ADDRESSES, swap_addresses),
            Forward::Io => Ok(traffic),
        }
    }

    /// Returns the number of packet buffers, for all rings to be full and all caches.
    fn buffers(config: &TestbedConfig) -> u64 {
        let rings = u64::from(config.pipes).saturating_mul(2).saturating_mul(config.depth.into());
        let cores = (config.cores as u64).saturating_mul(BUFFERS_PER_CORE);
        rings.saturating_add(cores).max(MIN_BUFFERS)
    }

    /// Returns the program's memory, in MiB.
    fn mebibytes(config: &TestbedConfig) -> u64 {
        let buffers = Self::buffers(config).saturating_mul(BUFFER);
        // The program cannot use the end of each page.
        buffers.saturating_mul(5).div_ceil(4 << 20).saturating_add(OTHER_MEMORY)
    }

    /// Returns the program's memory, in bytes.
    pub(super) fn memory(config: &TestbedConfig) -> u64 {
        Self::mebibytes(config) << 20
    }

    /// Checks whether this machine can measure a configuration.
    ///
    /// # Errors
    /// Returns what is missing and the remedy.
    pub(super) fn available(&self, config: &TestbedConfig) -> Result<(), Failure> {
        TESTPMD.find()?;
        if config.pipes > MAX_QUEUES {
            return Err(Failure::unsupported(
                format!("testpmd uses at most {MAX_QUEUES} queues per port, not {}", config.pipes),
                format!("use at most {MAX_QUEUES} pipes"),
            ));
        }
        if config.depth > MAX_DEPTH {
            return Err(Failure::unsupported(
                format!("virtqueues have at most {MAX_DEPTH} entries"),
                format!("use a depth of at most {MAX_DEPTH}"),
            ));
        }
        config.without_model("the interface dpdk")?;
        if config.nops > 0 {
            return Err(Failure::unsupported(
                "testpmd does no other work per packet",
                "use nops 0",
            ));
        }
        let has_avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl");
        if self.virtqueue == Virtqueue::PackedVectorised && !has_avx512 {
            return Err(Failure::unsupported(
                "DPDK's vectorised packed rings need AVX-512",
                "use another virtqueue, or a CPU with AVX-512",
            ));
        }
        Ok(())
    }
}

/// Starts a NIC, and testpmd as its application, with rules that direct `flows` to its queues in turn.
///
/// # Errors
/// Returns why a part cannot run.
pub(super) fn start(
    config: &TestbedConfig,
    pages: Pages,
    cpus: &Cpus,
    wire: impl Wire<Command = GeneratorCommand>,
    flows: Arc<[Flow]>,
) -> Result<(Nic<GeneratorCommand>, Testpmd), Failure> {
    let control = VhostControl::default();
    let engine = VirtioNet::new(config.pipes, flows, control.clone());
    let engine = engine.with_fallback(config.steering.policy());
    let params = NicParams { cpu: cpus.nic, placement: config.placement, ..NicParams::default() };
    let nic = Nic::start(params, engine, wire);
    let nic = nic.map_err(|why| Failure::failed(why.to_string()))?;
    let socket = Socket::listen(config.pipes, control)?;
    let testpmd = Testpmd::start(config, pages, &cpus.applications, socket)?;
    Ok((nic, testpmd))
}
