//! The memory of an order: opened once, kept from point to point while it is not too much.

// Levels may be any numbers: this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::collections::BTreeMap;

use lab::option::is_allowed;
use lab::sample::Failure;
use machine::mapping::PAGE;

use super::params::{ThroughputParams, Touch};
use crate::factors::Direction;
use crate::memory::{Kind, Region};

/// Memory that is kept open, at most: two regions of 256 MiB and what the other kinds need.
const MOST: usize = 1200 << 20;
/// Regions are opened in these sizes, so that one serves many lengths.
const SIZES: [usize; 3] = [4 << 20, 64 << 20, 256 << 20];

/// Which end of the copies a region is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    /// The program's own memory.
    Program,
    /// The memory that is measured.
    Measured,
}

/// The two regions of a sample.
pub(super) struct Pair {
    pub(super) source: Region,
    pub(super) destination: Region,
    direction: Direction,
    cold: bool,
}

/// Regions that wait for their next point.
#[derive(Default)]
pub(super) struct Regions {
    waiting: Vec<(Side, Kind, bool, Region)>,
}

impl Regions {
    /// Two regions of so many bytes or more. All pages are present, except where the destination is
    /// to be touched first by the copies.
    pub(super) fn take(
        &mut self,
        params: &ThroughputParams,
        bytes: usize,
        options: &BTreeMap<String, String>,
    ) -> Result<Pair, Failure> {
        let cold = params.touch == Touch::Cold;
        let own = if params.memory == Kind::HeapHuge { Kind::HeapHuge } else { Kind::Heap };
        let writes = params.direction == Direction::Write;
        let (from, to) = ((Side::Program, own), (Side::Measured, params.memory));
        let (from, to) = if writes { (from, to) } else { (to, from) };
        let source = self.warm(from, bytes, writes, options)?;
        let destination = if cold {
            check_free(to.1, bytes)?;
            Region::open(to.1, bytes, writes, options)?
        } else {
            self.warm(to, bytes, writes, options)?
        };
        Ok(Pair { source, destination, direction: params.direction, cold })
    }

    fn warm(
        &mut self,
        (side, kind): (Side, Kind),
        bytes: usize,
        writes: bool,
        options: &BTreeMap<String, String>,
    ) -> Result<Region, Failure> {
        // What may be written by name may also be filled before it is read.
        let write =
            writes || !kind.is_physical() || is_allowed(options, crate::memory::ALLOW_WRITE);
        let fits = |one: &(Side, Kind, bool, Region)| {
            (one.0, one.1, one.2) == (side, kind, write) && one.3.len() >= bytes
        };
        if let Some(at) = self.waiting.iter().position(fits) {
            return Ok(self.waiting.swap_remove(at).3);
        }
        self.waiting.retain(|one| (one.0, one.1, one.2) != (side, kind, write));
        // A page more than the size, for the destination's offset.
        let size =
            SIZES.into_iter().map(|size| size.saturating_add(PAGE)).find(|size| *size >= bytes);
        // Hardware gives what is asked for and no more.
        let whole = size.filter(|_| !kind.is_physical()).unwrap_or(bytes);
        self.make_room(whole);
        check_free(kind, whole)?;
        let region = Region::open(kind, whole, write, options)?;
        region.prefault()?;
        Ok(region)
    }

    fn make_room(&mut self, bytes: usize) {
        let mut kept: usize = self.waiting.iter().map(|one| one.3.len()).sum();
        while kept.saturating_add(bytes) > MOST && !self.waiting.is_empty() {
            kept = kept.saturating_sub(self.waiting.remove(0).3.len());
        }
    }

    /// Keeps the regions of a sample for the next.
    pub(super) fn put(&mut self, pair: Pair) {
        let write = pair.direction == Direction::Write;
        let (source, destination) =
            if write { (Side::Program, Side::Measured) } else { (Side::Measured, Side::Program) };
        self.keep(source, pair.source);
        if !pair.cold {
            self.keep(destination, pair.destination);
        }
    }

    fn keep(&mut self, side: Side, region: Region) {
        self.waiting.push((side, region.kind(), region.is_writable(), region));
    }
}

/// Whether the machine has so much memory to give, so that nothing ends for the lack of it.
fn check_free(kind: Kind, bytes: usize) -> Result<(), Failure> {
    let free = machine::memory::available();
    if kind.is_physical() || bytes as u64 <= free {
        return Ok(());
    }
    let why = format!("{kind} needs {} MiB and {} MiB are free", bytes >> 20, free >> 20);
    Err(Failure::unavailable(why, "copy less, or free memory"))
}
