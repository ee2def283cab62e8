//! The configuration of a testbed: what all methods derive from a point's params.

// Levels may be any number, and this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use lab::capability::{self, Capability};
use lab::proximity;
use lab::sample::Failure;
use machine::topology::Topology;

use super::dpdk::DpdkParams;
use super::driver::DriverParams;
use super::pages::PageLevel;
use super::params::{CommonParams, Depth, Interface};
use super::{links, pages};
use crate::application::ApplicationKind;
use crate::generator::Check;
use crate::host::descriptors::BURST;
use crate::host::{self, NotificationBatch};
use crate::nic::descriptor::BUFFER_SPACE;
use crate::nic::layout::FLIT;
use crate::nic::pcie::PcieModel;
use crate::nic::{InterfaceConfig, Pages, PlacementOrder};
use crate::steering::Steering;
use crate::wire::sample::Sizes;
use crate::workload::params::{Flows, WorkloadParams};

/// Maximum number of descriptors of a transmit ring: as many as Ensō's program for DPDK uses, whatever the receive ring.
pub(crate) const MAX_TX_RING: u32 = 1024;

/// The configuration of a testbed.
#[derive(Debug, Clone)]
pub struct TestbedConfig {
    /// How packets reach the application.
    pub interface: Interface,
    /// What processes them.
    pub application: ApplicationKind,
    /// The traffic of the application.
    pub workload: WorkloadParams,
    /// Packet sizes on the wire with check sequence, in bytes.
    pub packet_bytes: Sizes,
    /// Number of flows.
    pub flows: Flows,
    /// How packets reach the pipes or queues.
    pub steering: Steering,
    /// Pipes of all cores.
    pub pipes: u32,
    /// Application cores.
    pub cores: usize,
    /// How much of each packet is verified.
    pub check: Check,
    /// Size of each pipe's ring, in bytes.
    pub ring: usize,
    /// Capacity of each pipe or queue in packets, of 64 B if it is that of the ring.
    pub depth: u32,
    /// NOP instructions per packet.
    pub nops: u32,
    /// Notifications of each buffer.
    pub notifications: u32,
    /// What is modelled of PCIe.
    pub pcie: PcieModel,
    /// Maximum number of packets that the application takes at a time with descriptors or DPDK.
    pub burst: u32,
    /// Params of the interface `descriptors`.
    pub driver: DriverParams,
    /// The order in which the NIC writes packets to memory.
    pub placement: PlacementOrder,
    /// Notifications that pipes take at a time.
    pub notification_batch: NotificationBatch,
    /// The pages of shared memory.
    pub pages: PageLevel,
    /// Params of the interface `dpdk`.
    pub dpdk: DpdkParams,
}

impl TestbedConfig {
    /// Chooses the ring size for the packets of a point.
    pub fn new(params: &CommonParams) -> Self {
        let packet_bytes = params.workload.sizes(params.application, params.packet_bytes);
        let (ring, depth) = match params.depth {
            Depth::Ring => (params.ring, u32::try_from(params.ring / FLIT).unwrap_or(u32::MAX)),
            Depth::Packets(depth) => {
                let flits = Self::mean_flits(packet_bytes) * f64::from(depth);
                let flits = flits.ceil() as usize;
                let ring = flits.checked_next_power_of_two().unwrap_or(flits);
                (ring.saturating_mul(FLIT), depth)
            }
        };
        Self {
            interface: params.interface,
            application: params.application,
            workload: params.workload,
            packet_bytes,
            flows: params.flows,
            steering: params.steering,
            pipes: params.pipes,
            cores: params.cores,
            check: params.check,
            ring,
            depth,
            nops: params.nops,
            notifications: params.notifications,
            pcie: params.pcie(),
            burst: params.burst,
            driver: params.driver,
            placement: params.placement,
            notification_batch: params.notification_batch,
            pages: params.pages,
            dpdk: params.dpdk,
        }
    }

    /// Returns the maximum number of packets in flight without loss: half of what one pipe or queue can store. All may be in
    /// one, while the application drains others, as many may have been echoed before the application frees their space,
    /// and one slot stays free.
    pub fn max_window(&self) -> u64 {
        u64::from(self.capacity().saturating_sub(1) / 2).max(1)
    }

    /// Returns the number of packets of the point's sizes that each pipe or queue can store.
    pub fn capacity(&self) -> u32 {
        match self.interface {
            Interface::Pipes | Interface::PipesPerPacket | Interface::PipesPrefetch => {
                let packets = (self.ring / FLIT) as f64 / Self::mean_flits(self.packet_bytes);
                self.depth.min(packets as u32)
            }
            Interface::Descriptors
            | Interface::Dpdk
            | Interface::AfXdp
            | Interface::AfPacket
            | Interface::Tap => self.depth,
        }
    }

    /// Returns the size of all rings, buffers and traffic, and of what the application stores, in bytes.
    pub fn memory(&self) -> u64 {
        self.shared_memory().saturating_add(self.private_memory())
    }

    /// Returns the size of what is in no shared memory, in bytes.
    fn private_memory(&self) -> u64 {
        self.traffic_memory().saturating_add(self.application_memory())
    }

    /// Returns the size of all rings and buffers, in bytes.
    fn shared_memory(&self) -> u64 {
        match self.interface {
            Interface::Dpdk => DpdkParams::memory(self),
            Interface::AfXdp | Interface::AfPacket | Interface::Tap => links::MEMORY,
            Interface::Descriptors => {
                let rings = self.descriptors().memory(self.pipes.into());
                rings.saturating_add(self.buffers_of_bursts())
            }
            Interface::Pipes | Interface::PipesPerPacket | Interface::PipesPrefetch => {
                u64::from(self.pipes).saturating_mul(self.ring as u64)
            }
        }
    }

    /// Returns the size of the buffers of descriptors that are neither in a ring nor free: two bursts for each queue, in
    /// bytes.
    fn buffers_of_bursts(&self) -> u64 {
        let each = u64::from(self.burst).max(BURST as u64).saturating_mul(2);
        u64::from(self.pipes).saturating_mul(each).saturating_mul(BUFFER_SPACE as u64)
    }

    /// Returns the ring sizes of descriptors.
    pub fn ring_sizes(&self) -> host::descriptors::Sizes {
        host::descriptors::Sizes { rx: self.depth, tx: self.depth.min(MAX_TX_RING) }
    }

    /// Returns the NIC's configuration with descriptors.
    pub fn descriptors(&self) -> InterfaceConfig {
        self.ring_sizes().config(self.driver.kind().size)
    }

    /// Returns the number of pipes per core; the last core may have fewer.
    pub fn pipes_per_core(&self) -> usize {
        (self.pipes as usize).div_ceil(self.cores)
    }

    /// Returns an error if something of PCIe is modelled, which this interface does not support.
    pub(super) fn without_model(&self, interface: &str) -> Result<(), Failure> {
        match self.pcie == PcieModel::default() {
            true => Ok(()),
            false => Err(Failure::unsupported(
                format!("{interface} has no modelled PCIe"),
                "use pipes or descriptors, or the defaults of the model",
            )),
        }
    }

    /// Selects CPUs from `allowed`, after checking that this machine supports the configuration.
    ///
    /// # Errors
    /// Returns `unavailable` with what is missing and the remedy.
    pub fn cpus(&self, allowed: &[usize]) -> Result<Cpus, Failure> {
        let cores = self.cores;
        if self.pipes_per_core().saturating_mul(cores.saturating_sub(1)) >= self.pipes as usize {
            return Err(Failure::unavailable(
                format!("{} pipes are too few for {cores} cores", self.pipes),
                "use at least one pipe per core",
            ));
        }
        self.check_steering()?;
        self.check_application()?;
        self.check_workload()?;
        let cpus = Cpus::select(allowed, cores)?;
        match self.interface {
            Interface::Dpdk => self.dpdk.available(self)?,
            Interface::AfXdp | Interface::AfPacket | Interface::Tap => links::available(self)?,
            Interface::Pipes
            | Interface::PipesPerPacket
            | Interface::PipesPrefetch
            | Interface::Descriptors => {}
        }
        // Huge pages are reserved, so nothing else needs them.
        let needed = match pages::of(self)? {
            Pages::Huge if pages::has_short_rings(self) => self.memory(),
            Pages::Huge => self.private_memory(),
            Pages::Small => self.memory(),
        };
        let free = machine::proc::available_memory();
        // Others need memory too, and a point's rings are freed only when the next point begins.
        if needed > free / 2 {
            return Err(Failure::unavailable(
                format!(
                    "its rings, traffic and application need {} MiB of memory, and {} MiB are free",
                    needed >> 20,
                    free >> 20
                ),
                "use smaller rings, or a machine with more memory",
            ));
        }
        Ok(cpus)
    }
}

/// The CPUs of a testbed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cpus {
    /// CPU of the NIC and generator.
    pub nic: usize,
    /// CPUs of the application.
    pub applications: Vec<usize>,
}

impl Cpus {
    /// Selects a CPU for the NIC and `cores` for the application, each on a separate core.
    ///
    /// # Errors
    /// Returns `unavailable` if there are too few cores.
    pub fn select(cpus: &[usize], cores: usize) -> Result<Self, Failure> {
        // With a single application core, two threads of one core suffice.
        let (nic, near) = proximity::pair(cpus)?;
        if cores == 1 {
            return Ok(Self { nic, applications: vec![near] });
        }
        let topology = Topology::detect();
        let mut taken = vec![nic];
        for cpu in cpus {
            let separate = |other: &usize| !topology.siblings(*other).contains(cpu) && other != cpu;
            if taken.iter().all(separate) {
                taken.push(*cpu);
            }
        }
        if taken.len() <= cores {
            return Err(Failure::unavailable(
                format!(
                    "needs {} CPUs ({cores} for the application, 1 for the NIC and generator), but \
                     only {} are allowed",
                    cores.saturating_add(1),
                    taken.len()
                ),
                "measure on a machine with more cores",
            ));
        }
        Ok(Self { nic, applications: taken[1..=cores].to_vec() })
    }
}

/// Returns whether this machine can measure with `cores` application cores.
pub fn capability(cores: usize) -> Capability {
    // The lab assigns the last CPUs first.
    let allowed: Vec<usize> = machine::topology::allowed_cpus().into_iter().rev().collect();
    let report = Cpus::select(&allowed, cores).map(|cpus| {
        let all: Vec<String> = cpus.applications.iter().map(ToString::to_string).collect();
        format!("the NIC on CPU {}, the application on {}", cpus.nic, all.join(", "))
    });
    let word = if cores == 1 { "core" } else { "cores" };
    let about = format!("{cores} application {word} and one for the NIC");
    capability::checked(format!("stream-{cores}-{word}"), about, report)
}

/// Returns the configuration of a point with some levels and the defaults of the others.
#[cfg(test)]
pub(super) fn config(levels: &[(&str, &str)]) -> TestbedConfig {
    use lab::method::Params;
    let levels = levels.iter().map(|(name, level)| ((*name).to_string(), (*level).into()));
    TestbedConfig::new(&CommonParams::with_defaults(&levels.collect()).unwrap())
}

#[cfg(test)]
mod tests {
    use lab::method::Params;
    use lab::point::Point;

    use super::super::params::LoadParams;
    use super::*;
    use crate::host::descriptors::DriverKind;
    use crate::host::descriptors::driver::{MbufKind, TxCleaning};
    use crate::nic::descriptor::RxSize;
    use crate::nic::layout::{NOTIFICATIONS, RING};

    #[test]
    fn defaults_are_the_hardwares() {
        let plain = config(&[]);
        assert_eq!((plain.ring, plain.depth, plain.notifications), (2 << 20, 32768, 16384));
        assert_eq!((plain.pipes, plain.cores, plain.interface), (1, 1, Interface::Pipes));
        assert_eq!(plain.application, ApplicationKind::Echo);
        assert_eq!((plain.ring, plain.notifications), (RING, NOTIFICATIONS));
        let load = LoadParams::with_defaults(&Point::default()).unwrap().load;
        assert_eq!(load.0 / plain.wire_bits(), 100e9 / 672.0);
        assert_eq!(plain.pcie.to_string(), "nothing");
    }

    #[test]
    fn depth_counts_packets_of_the_points_size() {
        let at = |bytes| config(&[("depth", "1024"), ("packet_bytes", bytes)]);
        let (small, large) = (at("64"), at("1518"));
        assert_eq!((small.ring, small.depth), (64 << 10, 1024));
        assert_eq!((large.ring, large.depth), (2 << 20, 1024), "24 flits each, rounded up");
        assert_eq!(small.max_window(), 511, "half of what the ring holds");
        let mix = at("imix");
        assert_eq!((mix.ring, mix.depth), (512 << 10, 1024), "71 flits in 12 packets, rounded up");
        assert_eq!(mix.wire_bits(), 8.0 * (7.0 * 84.0 + 4.0 * 614.0 + 1538.0) / 12.0);
    }

    #[test]
    fn a_ring_stores_fewer_long_packets() {
        let at = |bytes| config(&[("packet_bytes", bytes)]).capacity();
        assert_eq!([at("64"), at("128"), at("1518")], [32768, 16384, 32768 / 24]);
        assert_eq!(at("imix"), 32768 * 12 / 71);
        let queue = config(&[("packet_bytes", "1518"), ("interface", "descriptors")]);
        assert_eq!(queue.capacity(), 32768);
    }

    #[test]
    fn drivers_of_descriptors_are_those_of_the_levels() {
        let default = config(&[("interface", "descriptors"), ("depth", "512")]);
        assert_eq!((default.driver.kind(), default.burst), (DriverKind::default(), 64));
        let rings = |rx, tx, size| InterfaceConfig::Descriptors { rx, tx, size };
        assert_eq!(default.descriptors(), rings(512, 512, RxSize::Long));
        let other = config(&[
            ("interface", "descriptors"),
            ("depth", "8192"),
            ("rx_descriptor", "16 B"),
            ("tx_cleaning", "every-burst"),
            ("mbuf", "none"),
            ("burst", "32"),
        ]);
        assert_eq!(other.descriptors(), rings(8192, 1024, RxSize::Short), "as in Ensō's program");
        let kind = DriverKind {
            size: RxSize::Short,
            cleaning: TxCleaning::EveryBurst,
            mbuf: MbufKind::None,
        };
        assert_eq!((other.driver.kind(), other.burst), (kind, 32));
        assert!(other.memory() > default.memory());
    }

    #[test]
    fn out_of_range_levels_are_refused() {
        for (name, level) in [
            ("packet_bytes", "3"),
            ("cores", "0"),
            ("depth", "4294967296"),
            ("depth", "0"),
            ("ring", "8192 TiB"),
            ("ring", "2 MB"),
            ("pipes", "4294967295"),
        ] {
            let failure = CommonParams::with_defaults(&Point::from([(name, level)])).unwrap_err();
            assert!(failure.why.contains(name) && !failure.why.contains('\n'), "{failure}");
        }
        // The largest levels together.
        let largest = [("depth", "1048576"), ("pipes", "8192"), ("packet_bytes", "1518")];
        let largest = config(&largest);
        assert_eq!(largest.ring, 2 << 30);
        assert_eq!(largest.memory(), (16 << 40) + 8192 * 24 * 64, "rings and traffic");
    }

    #[test]
    fn modelled_levels_are_what_the_nic_models() {
        let all = config(&[
            ("modelled_doorbell", "400 ns"),
            ("modelled_transfer", "1 us"),
            ("modelled_mmio", "100 ns"),
            ("modelled_link", "gen4x16"),
        ]);
        let text = "doorbell 400 ns, transfer 1000 ns, mmio 100 ns, link gen4x16";
        assert_eq!(all.pcie.to_string(), text);
        assert!(all.without_model("it").unwrap_err().why.contains("modelled PCIe"));
    }

    #[test]
    fn too_few_cores_are_reported() {
        assert!(!capability(10_000).state.is_present());
        let failure = Cpus::select(&[1, 0], 64).unwrap_err();
        assert!(failure.why.contains("65") && failure.remedy.is_some(), "{failure}");
        let few = config(&[("pipes", "2"), ("cores", "4")]);
        assert!(few.cpus(&[1, 0]).unwrap_err().why.contains("2 pipes are too few for 4 cores"));
    }
}
