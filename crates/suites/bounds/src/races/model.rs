//! The race of Intel MPX Explained, with directory and tables in software.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lab::sample::Failure;
use lab::statistics::median;
use machine::pin::spawn_pinned;
use machine::tsc::{self, Tsc};

use super::store::{Bounds, BoundsStorage, Pointers};

/// Bytes of an object.
const OBJECT: usize = 64;
/// Minimum number of accesses per timed group of passes.
const GROUP: u64 = 1 << 14;

/// Parameters of a race.
#[derive(Debug, Clone, Copy)]
pub(super) struct Race {
    /// Pointers in the array.
    pub(super) pointers: usize,
    /// Accesses, rounded up to whole groups of passes.
    pub(super) accesses: u64,
    /// Whether each access is one object size beyond its object.
    pub(super) beyond: bool,
    /// CPU of the thread that fills the array; `None` if the accessing thread does.
    pub(super) writer: Option<usize>,
}

/// Counts and time of a race.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ModelResult {
    /// Accesses made.
    pub(super) accesses: u64,
    /// Violations reported.
    pub(super) reported: u64,
    /// Times that the other thread filled the array during the accesses.
    pub(super) fills: u64,
    /// ns per access with its load and check: median over groups; `None` without a usable clock.
    pub(super) access: Option<f64>,
}

/// Two adjacent objects, followed by the same number of bytes as one of them.
#[repr(align(64))]
struct Objects([u8; 3 * OBJECT]);

impl Objects {
    fn pointer(&self, second: bool) -> (u64, Bounds) {
        let lower = self.0.as_ptr() as u64 + if second { OBJECT as u64 } else { 0 };
        (lower, Bounds { lower, upper: lower + OBJECT as u64 - 1 })
    }
}

struct Shared {
    pointers: Pointers,
    objects: Objects,
    stop: AtomicBool,
    fills: AtomicU64,
}

impl Shared {
    /// Stores pointers to the first or the second object in all slots.
    fn fill<K: BoundsStorage>(&self, second: bool) {
        let (pointer, bounds) = self.objects.pointer(second);
        for index in 0..self.pointers.count() {
            K::store(&self.pointers, index, pointer, bounds);
        }
    }

    /// Fills with both objects alternately until `stop` is set.
    fn keep_filling<K: BoundsStorage>(&self) {
        while !self.stop.load(Ordering::Relaxed) {
            self.fill::<K>(true);
            self.fill::<K>(false);
            self.fills.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Makes one access by every pointer and returns the number of reported ones.
    #[inline(never)]
    fn pass<K: BoundsStorage>(&self, offset: u64) -> u64 {
        let mut reported = 0_u64;
        for index in 0..self.pointers.count() {
            let (pointer, bounds) = K::load(&self.pointers, index);
            let address = pointer.wrapping_add(offset);
            reported = reported.wrapping_add(bounds.violated(address).into());
            // SAFETY: the pointer is to one of two objects, which are followed by at least `offset` bytes.
            black_box(unsafe { (address as *const u8).read_volatile() });
        }
        reported
    }
}

/// Runs a race, timed if there is a clock.
///
/// # Errors
/// Returns `failed` if memory or the second thread is not available.
pub(super) fn run<K: BoundsStorage + 'static>(
    race: &Race,
    tsc: Option<&Tsc>,
) -> Result<ModelResult, Failure> {
    let shared = Arc::new(Shared {
        pointers: Pointers::new(race.pointers)?,
        objects: Objects([0; 3 * OBJECT]),
        stop: AtomicBool::new(false),
        fills: AtomicU64::new(0),
    });
    shared.fill::<K>(false);
    let writer = race.writer.map(|cpu| {
        let shared = Arc::clone(&shared);
        spawn_pinned(cpu, move || shared.keep_filling::<K>())
    });
    let writer = writer.transpose()?;
    while writer.is_some() && shared.fills.load(Ordering::Relaxed) == 0 {
        std::hint::spin_loop();
    }
    let result = access::<K>(race, &shared, tsc);
    shared.stop.store(true, Ordering::Relaxed);
    match writer.map(std::thread::JoinHandle::join) {
        Some(Err(_)) => Err(Failure::failed("the thread that fills the array panicked")),
        _ => Ok(result),
    }
}

fn access<K: BoundsStorage>(race: &Race, shared: &Shared, tsc: Option<&Tsc>) -> ModelResult {
    let offset = if race.beyond { OBJECT as u64 } else { 0 };
    let passes = GROUP.div_ceil(race.pointers as u64);
    let per_group = passes * race.pointers as u64;
    let groups = race.accesses.div_ceil(per_group);
    let fills = shared.fills.load(Ordering::Relaxed);
    let mut reported = 0_u64;
    let mut times = Vec::with_capacity(groups as usize);
    for group in 0..groups {
        if race.writer.is_none() {
            shared.fill::<K>(group % 2 == 0);
        }
        let mut run_group = || {
            for _ in 0..passes {
                reported = reported.wrapping_add(shared.pass::<K>(offset));
            }
        };
        match tsc {
            Some(tsc) => {
                let start = tsc::start();
                run_group();
                let ticks = tsc::stop().saturating_sub(start).saturating_sub(tsc.overhead);
                times.push(tsc.nanoseconds(ticks as f64));
            }
            None => run_group(),
        }
    }
    ModelResult {
        accesses: groups * per_group,
        reported,
        fills: shared.fills.load(Ordering::Relaxed) - fills,
        access: median(&times).map(|time| time / per_group as f64),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::pair::{Compare, Vector};
    use super::super::store::{AtomicEntry, Locked, SplitEntry};
    use super::*;

    fn result_of<K: BoundsStorage + 'static>(beyond: bool, writer: Option<usize>) -> ModelResult {
        let race = Race { pointers: 100, accesses: 500_000, beyond, writer };
        run::<K>(&race, Tsc::get().ok()).unwrap()
    }

    #[test]
    fn every_access_is_judged_correctly_without_a_concurrent_writer() {
        for beyond in [false, true] {
            let results = [
                result_of::<SplitEntry>(beyond, None),
                result_of::<Locked>(beyond, None),
                result_of::<AtomicEntry<Compare>>(beyond, None),
                result_of::<AtomicEntry<Vector>>(beyond, None),
            ];
            for result in results {
                assert_eq!(result.reported, if beyond { result.accesses } else { 0 }, "{result:?}");
                assert!(result.accesses >= 500_000, "{result:?}");
                assert_eq!(result.access.is_some_and(|ns| ns > 0.0), Tsc::get().is_ok());
            }
        }
    }

    #[test]
    fn split_entries_race_and_every_fix_prevents_it() {
        let [_, writer, ..] = machine::topology::allowed_cpus()[..] else {
            machine::untested::note("races of bounds", &"there is one CPU");
            return;
        };
        let wrong = |result: ModelResult, beyond| {
            if beyond { result.accesses - result.reported } else { result.reported }
        };
        for beyond in [false, true] {
            // On a busy machine the threads may not run at the same time for a while.
            let end = Instant::now() + Duration::from_secs(30);
            while wrong(result_of::<SplitEntry>(beyond, Some(writer)), beyond) == 0 {
                assert!(Instant::now() < end, "no race seen, beyond {beyond}");
            }
            for result in [
                result_of::<Locked>(beyond, Some(writer)),
                result_of::<AtomicEntry<Compare>>(beyond, Some(writer)),
                result_of::<AtomicEntry<Vector>>(beyond, Some(writer)),
            ] {
                assert_eq!(wrong(result, beyond), 0, "{result:?}");
            }
        }
    }
}
