//! The pages of the memory that application and NIC share.

// Levels may be any number, and this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use lab::factor::LevelType;
use lab::sample::Failure;
use machine::huge_pages::{self, SIZE};

use super::dpdk::DpdkParams;
use super::params::Interface;
use super::testbed_config::TestbedConfig;
use crate::nic::Pages;
use crate::nic::layout::FLIT;

/// Size of a receive and a transmit notification, in bytes.
const PAIR: u64 = 2 * FLIT as u64;

/// Maximum number of descriptors of a card's ring: at a larger depth nothing is compared with descriptors.
const MAX_CARD_RING: u32 = 8192;

/// The pages of rings, notification buffers, descriptor rings and packet buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub enum PageLevel {
    /// Huge pages if the kernel's pool has enough for the point and for the same point of the interface that it is compared
    /// with, pipes or descriptors; else small ones. The program of DPDK always gets huge ones.
    Largest,
    /// Huge pages of the kernel's pool.
    #[level("2 MiB")]
    Huge,
    /// Small pages.
    #[level("4 KiB")]
    Small,
}

impl PageLevel {
    /// Returns the pages that a configuration gets when the pool has `free` huge pages.
    fn resolve(self, config: &TestbedConfig, free: u64) -> Pages {
        match (self, config.interface) {
            (_, Interface::AfXdp | Interface::AfPacket | Interface::Tap) | (Self::Small, _) => {
                Pages::Small
            }
            (Self::Huge, _) | (Self::Largest, Interface::Dpdk) => Pages::Huge,
            (
                Self::Largest,
                Interface::Pipes
                | Interface::PipesPerPacket
                | Interface::PipesPrefetch
                | Interface::Descriptors,
            ) => match needed_by_compared(config) <= free {
                true => Pages::Huge,
                false => Pages::Small,
            },
        }
    }
}

/// Returns the pages of a configuration on this machine, after checking that it has them.
///
/// # Errors
/// Returns `unavailable` with the number of huge pages that are missing and the remedy.
pub(super) fn of(config: &TestbedConfig) -> Result<Pages, Failure> {
    let free = huge_pages::free().unwrap_or(0) as u64;
    let pages = config.pages.resolve(config, free);
    if config.pages == PageLevel::Huge && config.interface.link().is_some() {
        return Err(Failure::unsupported(
            "interfaces of Linux have memory in pages of 4 KiB only",
            "use other pages than 2 MiB",
        ));
    }
    let needed = needed(config);
    match pages {
        Pages::Huge if free < needed => Err(Failure::unavailable(
            format!("its memory needs {needed} huge pages of 2 MiB, and {free} are free"),
            huge_pages::RESERVE,
        )),
        Pages::Huge | Pages::Small => Ok(pages),
    }
}

/// Returns the number of huge pages that a configuration needs, or that it needs over the interface with which it is compared,
/// if these are more: otherwise a small pool would have enough for pipes only, whose rings are shorter than buffers.
fn needed_by_compared(config: &TestbedConfig) -> u64 {
    if config.depth > MAX_CARD_RING {
        return needed(config);
    }
    let over = |interface| needed(&TestbedConfig { interface, ..config.clone() });
    over(config.interface).max(over(Interface::Pipes)).max(over(Interface::Descriptors))
}

/// Returns the number of huge pages that a configuration needs. Each part of the memory starts on a page of its own; rings
/// that are shorter than a page are on small ones.
fn needed(config: &TestbedConfig) -> u64 {
    let (pipes, cores) = (u64::from(config.pipes), config.cores as u64);
    let pages = |bytes: u64| bytes.div_ceil(SIZE as u64);
    match config.interface {
        Interface::Dpdk => pages(DpdkParams::memory(config)),
        Interface::Pipes | Interface::PipesPerPacket | Interface::PipesPrefetch => {
            let ring = if has_short_rings(config) { 0 } else { pages(config.ring as u64) };
            let notifications = u64::from(config.notifications).saturating_mul(PAIR);
            pipes.saturating_mul(ring).saturating_add(cores.saturating_mul(pages(notifications)))
        }
        Interface::Descriptors => {
            // The two rings of each queue and the buffers of each core start on pages of their own.
            let other = pipes.saturating_mul(2).saturating_add(cores);
            pages(config.memory()).saturating_add(other)
        }
        Interface::AfXdp | Interface::AfPacket | Interface::Tap => 0,
    }
}

/// Returns whether pipes have rings that are shorter than a huge page, so that they are on small ones.
pub(super) fn has_short_rings(config: &TestbedConfig) -> bool {
    config.interface.notify().is_some() && !config.ring.is_multiple_of(SIZE)
}

#[cfg(test)]
mod tests {

    use super::super::testbed_config::config;
    use super::*;

    #[test]
    fn each_part_of_the_memory_needs_whole_pages() {
        assert_eq!(needed(&config(&[])), 1 + 1, "a ring, and a pair of notification buffers");
        let many = config(&[("pipes", "32"), ("cores", "4"), ("ring", "4 MiB")]);
        assert_eq!(needed(&many), 32 * 2 + 4);
        let short = config(&[("pipes", "32"), ("depth", "1024")]);
        assert_eq!(needed(&short), 1, "rings of 64 KiB are not on huge pages");
        let few = config(&[("notifications", "2")]);
        assert_eq!(needed(&few), 2);
        let descriptors = config(&[("interface", "descriptors"), ("depth", "1024")]);
        assert_eq!(needed(&descriptors), 3 + 2 + 1, "5 MiB of buffers and rings, and their ends");
        assert_eq!(needed(&config(&[("interface", "tap")])), 0);
    }

    #[test]
    fn the_largest_pages_are_those_of_a_pool_that_has_enough() {
        let pages = |level, free, interface| {
            let config = config(&[("pages", level), ("interface", interface)]);
            config.pages.resolve(&config, free)
        };
        assert_eq!(pages("largest", 1, "pipes"), Pages::Small);
        assert_eq!(pages("largest", 2, "pipes"), Pages::Huge);
        assert_eq!(pages("4 KiB", 1000, "pipes"), Pages::Small);
        assert_eq!(pages("2 MiB", 0, "pipes"), Pages::Huge);
        assert_eq!(pages("largest", 0, "dpdk"), Pages::Huge, "judged by its best");
        assert_eq!(pages("largest", 1000, "tap"), Pages::Small);
    }

    #[test]
    fn compared_interfaces_have_equal_pages() {
        // Packets of 1518 B, of which a ring of 2 MiB stores 1024.
        let pages = |free, interface| {
            let levels = [("depth", "1024"), ("packet_bytes", "1518"), ("interface", interface)];
            let config = config(&levels);
            (config.pages.resolve(&config, free), needed(&config))
        };
        assert_eq!(pages(0, "pipes").1, 2);
        let enough = pages(0, "descriptors").1;
        for free in 0..=enough {
            let expected = if free < enough { Pages::Small } else { Pages::Huge };
            assert_eq!(pages(free, "pipes").0, expected, "{free}");
            assert_eq!(pages(free, "descriptors").0, expected, "{free}");
        }
    }

    #[test]
    fn missing_pages_are_reported_with_the_remedy() {
        // More than any machine has reserved.
        let many = [("pages", "2 MiB"), ("pipes", "8192"), ("ring", "64 MiB")];
        let why = of(&config(&many)).unwrap_err();
        assert!(why.why.contains("needs 262145 huge pages"), "{why}");
        assert_eq!(why.remedy.as_deref(), Some(huge_pages::RESERVE));
        assert!(of(&config(&[("pages", "2 MiB"), ("interface", "tap")])).is_err());
        assert_eq!(of(&config(&[("pages", "4 KiB")])).unwrap(), Pages::Small);
    }
}
