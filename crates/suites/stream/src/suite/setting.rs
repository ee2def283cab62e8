//! What a point asks for.

// Levels may be any numbers: this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::str::FromStr;
use std::time::Duration;

use lab::capability::{Capability, state_of};
use lab::point::Point;
use lab::proximity;
use lab::quantity;
use lab::sample::Failure;
use machine::topology::Topology;

use super::interface::Interface;
use crate::generator::Check;
use crate::nic::layout::{FLIT, NOTIFICATIONS, RING};
use crate::wire::packet::flits;
use crate::wire::traffic::WIRE_OVERHEAD;

/// Bytes of the check sequence, which packets on the wire have and packets in memory do not.
const CHECK_SEQUENCE: u16 = 4;
/// Bytes of preamble and gap.
const BETWEEN: u32 = WIRE_OVERHEAD - CHECK_SEQUENCE as u32;
/// Packets under way where nothing is said.
const WINDOW: u64 = 8192;
/// Bits a second of a Gbps.
pub const GIGABIT: f64 = 1e9;
/// The line rate, Gbps.
const LINE_RATE: f64 = 100.0;

/// What a point asks for; what it leaves out is as the hardware has it.
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
    /// What of each packet is looked at.
    pub check: Check,
    /// Bytes of each pipe's ring.
    pub ring: usize,
    /// Packets that each pipe or queue holds.
    pub depth: u32,
    /// Bits a second on the wire.
    pub load: f64,
    /// Instructions that do nothing, for each packet.
    pub cycles: u32,
    /// Notifications of each buffer.
    pub notifications: u32,
    /// Packets under way at most.
    pub window: u64,
    /// How long doorbells are modelled to take.
    pub doorbell: Duration,
    /// How long transfers are modelled to take.
    pub transfer: Duration,
    /// The largest rate that a search tries, bits a second on the wire.
    pub maximum: f64,
}

impl Setting {
    /// Reads a point.
    ///
    /// # Errors
    /// Levels that do not go together.
    pub fn of(point: &Point) -> Result<Self, Failure> {
        let packet_bytes = number(point, "packet_bytes", 64)?;
        let in_memory = u16::checked_sub(packet_bytes, CHECK_SEQUENCE).ok_or_else(|| {
            let why = format!("a packet of {packet_bytes} B has no room for its check sequence");
            Failure::unavailable(why, "set packet_bytes from 64 to 1518")
        })?;
        let (ring, depth) = room(point, flits(in_memory.into()))?;
        let pipes = number(point, "pipes", 1)?;
        let cores = number(point, "cores", 1)?;
        if cores == 0 {
            return Err(Failure::unavailable("an application on no core", "set cores from 1"));
        }
        let gigabits = |name| Ok::<f64, Failure>(number(point, name, LINE_RATE)? * GIGABIT);
        // As many as are under way may have come back before the application frees theirs, and one place
        // stays free.
        let under_way = u64::from(pipes).saturating_mul((depth.saturating_sub(1) / 2).into());
        Ok(Self {
            interface: Interface::of(point.text("interface"))?,
            packet_bytes,
            pipes,
            cores,
            check: check(point.text("check")),
            ring,
            depth,
            load: gigabits("load")?,
            cycles: number(point, "cycles", 0)?,
            notifications: number(point, "notifications", NOTIFICATIONS)?,
            window: number(point, "window", WINDOW)?.min(under_way).max(1),
            doorbell: modelled(point, "modelled_doorbell")?,
            transfer: modelled(point, "modelled_transfer")?,
            maximum: gigabits("maximum")?,
        })
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

/// The level of a factor as a number; `otherwise` where the point does not have it.
fn number<T: FromStr>(point: &Point, name: &str, otherwise: T) -> Result<T, Failure> {
    match point.text(name) {
        "" => Ok(otherwise),
        text => text.parse().map_err(|_| Failure::failed(format!("{name} = {text}: too large"))),
    }
}

/// Bytes of each ring and the packets that it holds, where each takes so many flits.
fn room(point: &Point, flits: usize) -> Result<(usize, u32), Failure> {
    let too_large = |name| Failure::failed(format!("{name} = {}: too large", point.text(name)));
    let ring = match point.text("ring") {
        "" => RING,
        text => quantity::bytes(text)
            .map_err(|why| Failure::failed(format!("ring = {text}: {why}")))?
            .try_into()
            .map_err(|_| too_large("ring"))?,
    };
    match point.text("depth") {
        "" | "ring" => Ok((ring, u32::try_from(ring / FLIT).map_err(|_| too_large("ring"))?)),
        _ => {
            let depth: u32 = number(point, "depth", 0)?;
            let flits = flits.checked_mul(depth as usize);
            let ring = flits.and_then(usize::checked_next_power_of_two);
            let ring = ring.and_then(|flits| flits.checked_mul(FLIT));
            Ok((ring.ok_or_else(|| too_large("depth"))?, depth))
        }
    }
}

fn check(text: &str) -> Check {
    match text {
        "none" => Check::None,
        "all" => Check::All,
        _ => Check::OneWord,
    }
}

fn modelled(point: &Point, name: &str) -> Result<Duration, Failure> {
    match point.text(name) {
        "" | "none" => Ok(Duration::ZERO),
        text => quantity::duration(text)
            .map_err(|why| Failure::failed(format!("{name} = {text}: {why}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(levels: &[(&str, &str)]) -> Setting {
        let levels = levels.iter().map(|(name, level)| ((*name).to_string(), (*level).into()));
        Setting::of(&levels.collect()).unwrap()
    }

    #[test]
    fn what_a_point_leaves_out_is_as_the_hardware_has_it() {
        let plain = setting(&[("interface", "pipes")]);
        assert_eq!((plain.ring, plain.depth, plain.notifications), (2 << 20, 32768, 16384));
        assert_eq!((plain.pipes, plain.cores, plain.window), (1, 1, 8192));
        assert_eq!(plain.load / plain.wire_bits(), 100e9 / 672.0);
        assert_eq!(plain.modelled(), "nothing");
    }

    #[test]
    fn a_depth_is_in_packets_of_any_size() {
        let at =
            |bytes| setting(&[("interface", "pipes"), ("depth", "1024"), ("packet_bytes", bytes)]);
        let (small, large) = (at("64"), at("1518"));
        assert_eq!((small.ring, small.depth), (64 << 10, 1024));
        assert_eq!((large.ring, large.depth), (2 << 20, 1024), "24 flits each, rounded up");
        assert_eq!(small.window, 511, "half of what the ring holds");
    }

    #[test]
    fn levels_that_are_out_of_range_are_refused_and_wrap_nothing() {
        for (name, level, why) in [
            ("packet_bytes", "3", "3 B"),
            ("cores", "0", "no core"),
            ("depth", "4294967296", "too large"),
            ("ring", "8192 TiB", "ring = 8192 TiB: too large"),
            ("ring", "2 MB", "a number of bytes"),
        ] {
            let levels = [("interface", "pipes"), (name, level)];
            let failure = Setting::of(&Point::from(levels)).unwrap_err();
            assert!(failure.why.contains(why) && !failure.why.contains('\n'), "{failure}");
        }
        // 24 flits each: more than 2^32 of them.
        let deep = ("depth", "4294967295");
        let deep = setting(&[("interface", "pipes"), deep, ("packet_bytes", "1518")]);
        assert_eq!((deep.ring, deep.depth), (1 << 43, u32::MAX));
        let most = [("depth", "4294967295"), ("pipes", "4294967295")];
        let most = setting(&[&[("interface", "descriptors")], &most[..]].concat());
        assert_eq!(most.interface.memory(&most), u64::MAX);
        assert_eq!(setting(&[("interface", "pipes"), ("depth", "0")]).window, 1);
    }

    #[test]
    fn what_is_modelled_is_named() {
        let both = [("modelled_doorbell", "400 ns"), ("modelled_transfer", "1 us")];
        let both = setting(&[&[("interface", "pipes")], &both[..]].concat());
        assert_eq!(both.modelled(), "doorbell 400 ns, transfer 1000 ns");
    }

    #[test]
    fn more_cores_than_there_are_say_what_is_lacking() {
        assert!(!capability(10_000).state.is_present());
        let failure = Cpus::of(&[1, 0], 64).unwrap_err();
        assert!(failure.why.contains("65") && failure.remedy.is_some(), "{failure}");
        let few = setting(&[("interface", "pipes"), ("pipes", "2"), ("cores", "4")]);
        assert!(few.cpus(&[1, 0]).unwrap_err().why.contains("2 pipes do not reach 4 cores"));
    }
}
