//! The memory of an order: opened once and kept from point to point within a limit.

// Levels may be any numbers: this crate is built without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::collections::BTreeMap;

use lab::option::is_allowed;
use lab::sample::Failure;
use machine::mapping::PAGE;

use super::params::{PageState, ThroughputParams};
use crate::levels::Direction;
use crate::memory::{ALLOW_WRITE, CachingLevel, MemoryKind, Region};

/// Maximum bytes kept open: two regions of 256 MiB and space for other kinds.
const MAX_KEPT: usize = 1200 << 20;
/// Sizes in which regions are opened, so that one serves many lengths.
const SIZES: [usize; 3] = [4 << 20, 64 << 20, 256 << 20];

/// The end of the copies at which a region is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    /// The program's own memory.
    Program,
    /// The memory under test.
    Measured,
}

/// The two regions of a sample.
pub(super) struct RegionPair {
    pub(super) source: Region,
    pub(super) destination: Region,
    /// Whether all pages of the destination are present and no copy has written them.
    pub(super) is_fresh: bool,
    direction: Direction,
    cold: bool,
}

/// The uses for which a region is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    side: Side,
    kind: MemoryKind,
    caching: CachingLevel,
    is_writable: bool,
}

/// Open regions between two points.
#[derive(Default)]
pub(super) struct Regions {
    waiting: Vec<(Key, Region)>,
}

impl Regions {
    /// Returns two regions of at least `bytes` bytes. All pages are present, unless the copies are to
    /// be the first access to the destination.
    pub(super) fn take(
        &mut self,
        params: &ThroughputParams,
        bytes: usize,
        options: &BTreeMap<String, String>,
    ) -> Result<RegionPair, Failure> {
        let cold = params.touch == PageState::Cold;
        let program = if params.memory.is_huge() { MemoryKind::HeapHuge } else { MemoryKind::Heap };
        let writes = params.direction == Direction::Write;
        let (from, to) = (
            (Side::Program, program, CachingLevel::Default),
            (Side::Measured, params.memory, params.caching),
        );
        let (from, to) = if writes { (from, to) } else { (to, from) };
        let (source, _) = self.warm(from, bytes, writes, options)?;
        let (destination, is_fresh) = if cold {
            check_free(to.1, bytes)?;
            (Region::open(to.1, bytes, writes, to.2, options)?, false)
        } else {
            self.warm(to, bytes, writes, options)?
        };
        Ok(RegionPair { source, destination, is_fresh, direction: params.direction, cold })
    }

    /// Returns a region with all pages present, and whether it is a new one rather than a kept one.
    fn warm(
        &mut self,
        (side, kind, caching): (Side, MemoryKind, CachingLevel),
        bytes: usize,
        writes: bool,
        options: &BTreeMap<String, String>,
    ) -> Result<(Region, bool), Failure> {
        // Memory that may be written may also be filled before it is read.
        let is_writable = writes || !kind.is_physical() || is_allowed(options, ALLOW_WRITE);
        let key = Key { side, kind, caching, is_writable };
        let fits = |(kept, region): &(Key, Region)| *kept == key && region.len() >= bytes;
        if let Some(index) = self.waiting.iter().position(fits) {
            return Ok((self.waiting.swap_remove(index).1, false));
        }
        // A range cannot be mapped with two attributes at a time: the kernel gives the second mapping that of the first.
        let conflicts = |kept: &Key| kept.kind.is_physical() && kept.caching != caching;
        self.waiting.retain(|(kept, _)| *kept != key && !(kind.is_physical() && conflicts(kept)));
        // One page more, for the destination's offset.
        let size =
            SIZES.into_iter().map(|size| size.saturating_add(PAGE)).find(|size| *size >= bytes);
        // Physical memory is mapped at its exact size.
        let whole = size.filter(|_| !kind.is_physical()).unwrap_or(bytes);
        self.release_for(whole);
        check_free(kind, whole)?;
        let region = Region::open(kind, whole, is_writable, caching, options)?;
        region.prefault()?;
        Ok((region, true))
    }

    /// Closes the oldest regions until `bytes` more are within the limit.
    fn release_for(&mut self, bytes: usize) {
        let mut kept: usize = self.waiting.iter().map(|(_, region)| region.len()).sum();
        while kept.saturating_add(bytes) > MAX_KEPT && !self.waiting.is_empty() {
            kept = kept.saturating_sub(self.waiting.remove(0).1.len());
        }
    }

    /// Keeps the regions of a sample for the next one.
    pub(super) fn put(&mut self, pair: RegionPair) {
        let write = pair.direction == Direction::Write;
        let (source, destination) =
            if write { (Side::Program, Side::Measured) } else { (Side::Measured, Side::Program) };
        self.keep(source, pair.source);
        if !pair.cold {
            self.keep(destination, pair.destination);
        }
    }

    fn keep(&mut self, side: Side, region: Region) {
        let (kind, caching) = (region.kind(), region.caching());
        let key = Key { side, kind, caching, is_writable: region.is_writable() };
        self.waiting.push((key, region));
    }
}

/// Checks that the machine has `bytes` of free memory, so that no process is killed for lack of it.
fn check_free(kind: MemoryKind, bytes: usize) -> Result<(), Failure> {
    let free = machine::proc::available_memory();
    if kind.is_physical() || kind.is_gpu() || bytes as u64 <= free {
        return Ok(());
    }
    let why = format!("{kind} needs {} MiB and {} MiB are free", bytes >> 20, free >> 20);
    Err(Failure::unavailable(why, "copy less, or free memory"))
}
