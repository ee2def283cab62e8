//! What a point asks for.

// Levels may be any numbers: this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::time::Duration;

use lab::capability::{Capability, state_of};
use lab::proximity;
use lab::quantity;
use lab::sample::Failure;
use machine::topology::Topology;

use super::interface::Interface;
use super::params::{CommonParams, Depth};
use crate::generator::Check;
use crate::nic::layout::FLIT;
use crate::wire::packet::flits;
use crate::wire::traffic::WIRE_OVERHEAD;

/// Bytes of the check sequence, which packets on the wire have and packets in memory do not.
const CHECK_SEQUENCE: u16 = 4;
/// Bytes of preamble and gap.
const BETWEEN: u32 = WIRE_OVERHEAD - CHECK_SEQUENCE as u32;

/// What all methods need of a point, checked and completed.
#[derive(Debug, Clone)]
pub struct Setting {
    /// How packets reach the application.
    pub interface: Interface,
    /// Bytes of each packet on the wire, with check sequence.
    pub packet_bytes: u16,
    /// Pipes of all cores.
    pub pipes: u32,
    /// Cores of the application.
    pub cores: usize,
    /// What of each packet is compared.
    pub check: Check,
    /// Bytes of each pipe's ring.
    pub ring: usize,
    /// Packets that each pipe or queue holds.
    pub depth: u32,
    /// NOP instructions per packet.
    pub cycles: u32,
    /// Notifications of each buffer.
    pub notifications: u32,
    /// How long doorbells are modelled to take.
    pub doorbell: Duration,
    /// How long transfers are modelled to take.
    pub transfer: Duration,
}

impl Setting {
    /// Chooses rings for the packets of a point.
    pub fn new(params: &CommonParams) -> Self {
        let in_memory = params.packet_bytes.saturating_sub(CHECK_SEQUENCE);
        let (ring, depth) = match params.depth {
            Depth::Ring => (params.ring, u32::try_from(params.ring / FLIT).unwrap_or(u32::MAX)),
            Depth::Packets(depth) => {
                let flits = flits(in_memory.into()).saturating_mul(depth as usize);
                let ring = flits.checked_next_power_of_two().unwrap_or(flits);
                (ring.saturating_mul(FLIT), depth)
            }
        };
        Self {
            interface: params.interface,
            packet_bytes: params.packet_bytes,
            pipes: params.pipes,
            cores: params.cores,
            check: params.check,
            ring,
            depth,
            cycles: params.cycles,
            notifications: params.notifications,
            doorbell: params.modelled_doorbell.0,
            transfer: params.modelled_transfer.0,
        }
    }

    /// The most packets under way: as many may have come back before the application frees theirs, and one slot stays
    /// free.
    pub fn max_window(&self) -> u64 {
        let each = self.depth.saturating_sub(1) / 2;
        u64::from(self.pipes).saturating_mul(each.into()).max(1)
    }

    /// Bits that a packet takes on the wire, with preamble and gap.
    pub fn wire_bits(&self) -> f64 {
        f64::from(u32::from(self.packet_bytes).saturating_add(BETWEEN)) * 8.0
    }

    /// Pipes of each core, the first ones' where they differ.
    pub fn pipes_a_core(&self) -> usize {
        (self.pipes as usize).div_ceil(self.cores)
    }

    /// What is modelled, in words.
    pub fn modelled(&self) -> String {
        let part = |what: &str, time: Duration| match time.is_zero() {
            true => None,
            false => Some(format!("{what} {} ns", time.as_nanos())),
        };
        let parts = [part("doorbell", self.doorbell), part("transfer", self.transfer)];
        let told: Vec<String> = parts.into_iter().flatten().collect();
        if told.is_empty() { "nothing".into() } else { told.join(", ") }
    }

    /// The CPUs for it, of those that may be used, where this machine has what the point needs.
    ///
    /// # Errors
    /// What is lacking, and the remedy.
    pub fn cpus(&self, allowed: &[usize]) -> Result<Cpus, Failure> {
        let cores = self.cores;
        if self.pipes_a_core().saturating_mul(cores.saturating_sub(1)) >= self.pipes as usize {
            return Err(Failure::unavailable(
                format!("{} pipes do not reach {cores} cores", self.pipes),
                "give each core a pipe",
            ));
        }
        let cpus = Cpus::of(allowed, cores)?;
        let (needed, free) = (self.interface.memory(self), machine::memory::available());
        // Others need some too, and what is made for one point goes only when the next begins.
        if needed > free / 2 {
            return Err(Failure::unavailable(
                format!(
                    "its rings take {} of memory, and {} are free",
                    quantity::format_bytes(needed),
                    quantity::format_bytes(free)
                ),
                "use smaller rings, or a machine with twice that",
            ));
        }
        Ok(cpus)
    }
}

/// The CPUs of a measurement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cpus {
    /// That of the NIC, which also is the generator's.
    pub nic: usize,
    /// Those of the application.
    pub applications: Vec<usize>,
}

impl Cpus {
    /// The first CPU for the NIC, others for the application, each on a core of its own.
    ///
    /// # Errors
    /// Where there are fewer cores.
    pub fn of(cpus: &[usize], cores: usize) -> Result<Self, Failure> {
        // Also where they are threads of one core, two CPUs can measure something.
        let (nic, near) = proximity::pair(cpus)?;
        if cores == 1 {
            return Ok(Self { nic, applications: vec![near] });
        }
        let topology = Topology::detect();
        let mut taken = vec![nic];
        for cpu in cpus {
            let apart = |other: &usize| !topology.siblings(*other).contains(cpu) && other != cpu;
            if taken.iter().all(apart) {
                taken.push(*cpu);
            }
        }
        if taken.len() <= cores {
            return Err(Failure::unavailable(
                format!(
                    "{cores} cores of the application and one of the NIC with its generator are {}, and \
                     {} may be used",
                    cores.saturating_add(1),
                    taken.len()
                ),
                "measure on a machine with more cores",
            ));
        }
        Ok(Self { nic, applications: taken[1..=cores].to_vec() })
    }
}

/// Whether so many cores of the application can be measured here.
pub fn capability(cores: usize) -> Capability {
    // The lab hands out the last first.
    let allowed: Vec<usize> = machine::topology::allowed_cpus().into_iter().rev().collect();
    let tried = Cpus::of(&allowed, cores).map(|cpus| {
        let all: Vec<String> = cpus.applications.iter().map(ToString::to_string).collect();
        format!("the NIC on CPU {}, the application on {}", cpus.nic, all.join(", "))
    });
    let word = if cores == 1 { "core" } else { "cores" };
    Capability {
        name: format!("stream-{cores}-{word}"),
        about: format!("{cores} {word} of the application, and one of the NIC"),
        state: state_of(tried),
    }
}

#[cfg(test)]
mod tests {
    use lab::method::Params;
    use lab::point::Point;

    use super::super::params::LoadParams;
    use super::*;
    use crate::nic::layout::{NOTIFICATIONS, RING};

    fn setting(levels: &[(&str, &str)]) -> Setting {
        let levels = levels.iter().map(|(name, level)| ((*name).to_string(), (*level).into()));
        Setting::new(&CommonParams::with_defaults(&levels.collect()).unwrap())
    }

    #[test]
    fn defaults_are_those_of_the_hardware() {
        let plain = setting(&[]);
        assert_eq!((plain.ring, plain.depth, plain.notifications), (2 << 20, 32768, 16384));
        assert_eq!((plain.pipes, plain.cores, plain.interface), (1, 1, Interface::Pipes));
        assert_eq!((plain.ring, plain.notifications), (RING, NOTIFICATIONS));
        let load = LoadParams::with_defaults(&Point::default()).unwrap().load;
        assert_eq!(load.0 / plain.wire_bits(), 100e9 / 672.0);
        assert_eq!(plain.modelled(), "nothing");
    }

    #[test]
    fn a_depth_is_in_packets_of_any_size() {
        let at = |bytes| setting(&[("depth", "1024"), ("packet_bytes", bytes)]);
        let (small, large) = (at("64"), at("1518"));
        assert_eq!((small.ring, small.depth), (64 << 10, 1024));
        assert_eq!((large.ring, large.depth), (2 << 20, 1024), "24 flits each, rounded up");
        assert_eq!(small.max_window(), 511, "half of what the ring holds");
    }

    #[test]
    fn levels_that_are_out_of_range_are_refused() {
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
        let largest = setting(&largest);
        assert_eq!((largest.ring, largest.interface.memory(&largest)), (2 << 30, 16 << 40));
    }

    #[test]
    fn what_is_modelled_is_named() {
        let both = [("modelled_doorbell", "400 ns"), ("modelled_transfer", "1 us")];
        let both = setting(&both);
        assert_eq!(both.modelled(), "doorbell 400 ns, transfer 1000 ns");
    }

    #[test]
    fn more_cores_than_there_are_say_what_is_lacking() {
        assert!(!capability(10_000).state.is_present());
        let failure = Cpus::of(&[1, 0], 64).unwrap_err();
        assert!(failure.why.contains("65") && failure.remedy.is_some(), "{failure}");
        let few = setting(&[("pipes", "2"), ("cores", "4")]);
        assert!(few.cpus(&[1, 0]).unwrap_err().why.contains("2 pipes do not reach 4 cores"));
    }
}
