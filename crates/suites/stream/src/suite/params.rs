//! The factors of each method, parsed.

use std::time::Duration;

use lab::factor::{LevelType, Levels};
use lab::method::Params;
use lab::quantity;

use super::interface::Interface;
use crate::generator::Check;
use crate::nic::layout::{BUFFERS, FLIT, NOTIFICATIONS, PIPES};
use crate::wire::sample::{LARGEST, SMALLEST};

/// Bytes of the smallest and of the largest ring.
const RINGS: std::ops::RangeInclusive<usize> = 4096..=64 << 20;

/// NOP instructions per packet at most: a packet then takes some 0.1 ms.
pub(crate) const MOST_CYCLES: u32 = 1_000_000;
/// The longest time that a doorbell or transfer is modelled to take.
pub(crate) const MOST_MODELLED: Duration = Duration::from_millis(1);

/// Levels that all methods share.
#[derive(Debug, Clone, Params)]
pub struct CommonParams {
    /// how packets reach the application: pipes (notified reactively), pipes-per-packet (of every packet), pipes-prefetch, or descriptors (a descriptor and a buffer a packet)
    #[factor(default = "pipes")]
    pub(super) interface: Interface,
    /// bytes of each packet on the wire, check sequence counted: 64 to 1518
    #[factor(default = "64", levels = Levels::Count(SMALLEST as u64, LARGEST as u64))]
    pub(super) packet_bytes: u16,
    /// pipes (or queues) of all cores together, each with a flow of its own
    #[factor(default = "1", levels = Levels::Count(1, PIPES as u64))]
    pub(super) pipes: u32,
    /// cores of the application
    #[factor(default = "1", levels = Levels::Count(1, BUFFERS as u64))]
    pub(super) cores: usize,
    /// what of each packet that comes back is compared with what was sent, besides count and order: none, one-word or all
    #[factor(default = "one-word")]
    pub(super) check: Check,
    /// bytes of each pipe's ring: a power of two
    #[factor(default = "2 MiB", levels = Levels::Checked(ring))]
    pub(super) ring: usize,
    /// packets that each pipe (or queue) holds: a power of two; 'ring': as many of 64 B as fit its ring
    #[factor(default = "ring")]
    pub(super) depth: Depth,
    /// instructions that do nothing, for each packet
    #[factor(default = "0", levels = Levels::Count(0, MOST_CYCLES as u64))]
    pub(super) cycles: u32,
    /// notifications that each buffer of a core holds: a power of two
    #[factor(default = "16384", levels = Levels::Checked(notifications))]
    pub(super) notifications: u32,
    /// how long a write to the NIC's registers is modelled to take; none: as long as it takes
    #[factor(default = "none")]
    pub(super) modelled_doorbell: Modelled,
    /// how long a transfer by the NIC is modelled to take; none: as long as it takes
    #[factor(default = "none")]
    pub(super) modelled_transfer: Modelled,
}

/// Levels of `interfaces`.
#[derive(Debug, Clone, Params)]
pub(crate) struct ClosedParams {
    #[factor(flatten)]
    pub(super) common: CommonParams,
    /// packets under way at most, where they are sent as they come back; half of what the rings hold where that is less
    #[factor(default = "8192", levels = Levels::Count(1, 1 << 30))]
    pub(super) window: u64,
}

/// Levels of `line-rate` and `rtt-vs-load`.
#[derive(Debug, Clone, Params)]
pub(crate) struct LoadParams {
    #[factor(flatten)]
    pub(super) common: CommonParams,
    /// the rate at which packets are sent, Gbps on the wire with preamble and gap
    #[factor(default = "100")]
    pub(super) load: Gigabits,
}

/// Levels of `throughput`.
#[derive(Debug, Clone, Params)]
pub(crate) struct SearchParams {
    #[factor(flatten)]
    pub(super) common: CommonParams,
    /// the largest rate that a search tries, Gbps
    #[factor(default = "100")]
    pub(super) maximum: Gigabits,
}

impl AsRef<CommonParams> for ClosedParams {
    fn as_ref(&self) -> &CommonParams {
        &self.common
    }
}

impl AsRef<CommonParams> for LoadParams {
    fn as_ref(&self) -> &CommonParams {
        &self.common
    }
}

impl AsRef<CommonParams> for SearchParams {
    fn as_ref(&self) -> &CommonParams {
        &self.common
    }
}

/// Packets that a pipe or queue holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// As many of 64 B as fit the ring.
    Ring,
    /// So many of any size.
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

/// A rate in bits a second, whose levels are Gbps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gigabits(pub f64);

impl LevelType for Gigabits {
    const LEVELS: Levels = Levels::Checked(gigabits);

    fn from_level(level: &str) -> Option<Self> {
        level.parse().ok().map(|gigabits: f64| Self(gigabits * 1e9))
    }
}

/// How long something is modelled to take; zero if it is not modelled.
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

/// A whole number in a range.
fn whole(text: &str, range: std::ops::RangeInclusive<u64>) -> Result<String, String> {
    let (least, most) = (range.start(), range.end());
    let number = text.parse::<u64>().ok().filter(|number| range.contains(number));
    number.map(|n| n.to_string()).ok_or_else(|| format!("'{text}' is not from {least} to {most}"))
}

/// A power of two in a range.
fn power(text: &str, range: std::ops::RangeInclusive<u64>) -> Result<String, String> {
    let number = whole(text, range)?;
    let is = number.parse::<u64>().is_ok_and(u64::is_power_of_two);
    if is { Ok(number) } else { Err(format!("{text} is no power of two")) }
}

fn notifications(text: &str) -> Result<String, String> {
    power(text, 2..=u64::from(NOTIFICATIONS))
}

fn depth(text: &str) -> Result<String, String> {
    let flits = |bytes: &usize| (bytes / FLIT) as u64;
    if text == "ring" {
        return Ok(text.into());
    }
    power(text, flits(RINGS.start())..=flits(RINGS.end()))
}

fn ring(text: &str) -> Result<String, String> {
    let bytes = quantity::bytes(text).map_err(|why| why.to_string())?;
    let fits = usize::try_from(bytes).is_ok_and(|bytes| RINGS.contains(&bytes));
    let spelled = quantity::format_bytes(bytes);
    match bytes.is_power_of_two() && fits {
        true => Ok(spelled),
        false => Err(format!("{spelled} is no power of two from 4 KiB to 64 MiB")),
    }
}

fn gigabits(text: &str) -> Result<String, String> {
    let number = text.parse::<f64>().ok().filter(|number| *number >= 0.001 && *number <= 10_000.0);
    number.map(|n| n.to_string()).ok_or_else(|| format!("'{text}' is no rate in Gbps, as 100"))
}

fn modelled(text: &str) -> Result<String, String> {
    if text == "none" {
        return Ok(text.into());
    }
    let time = quantity::duration(text).map_err(|why| why.to_string())?;
    match time.is_zero() || time > MOST_MODELLED {
        true => Err(format!("{text} is not from 1 ns to 1 ms; say none where nothing is modelled")),
        false => Ok(format!("{} ns", time.as_nanos())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_have_one_spelling_or_say_what_is_wrong() {
        let level = |name: &str, text: &str| {
            let all = [ClosedParams::FACTORS, LoadParams::FACTORS].concat();
            let factor = lab::factor::find(&all, name).unwrap();
            factor.level(text).map(|level| level.as_str().to_owned())
        };
        assert_eq!(level("ring", "2048 KiB").unwrap(), "2 MiB");
        assert_eq!(level("depth", "ring").unwrap(), "ring");
        assert_eq!(level("depth", "1024").unwrap(), "1024");
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
            ("pipes", "8193"),
            ("cycles", "1000001"),
            ("cycles", "-1"),
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
