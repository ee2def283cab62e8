//! The seed's race with directory and tables in software.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lab::sample::Failure;
use lab::statistics::median;
use machine::pin::spawn_pinned;
use machine::tsc::{self, Tsc};

use super::store::{Bounds, Keeping, Pointers};

/// Bytes of an object.
const OBJECT: usize = 64;
/// Accesses between two looks at the clock, as far as whole passes go.
const GROUP: u64 = 1 << 14;

/// A race.
#[derive(Debug, Clone, Copy)]
pub(super) struct Race {
    /// Pointers in the array.
    pub(super) pointers: usize,
    /// Accesses, rounded up to whole groups of passes.
    pub(super) accesses: u64,
    /// Whether each access is beyond its object: by the size of one.
    pub(super) beyond: bool,
    /// The CPU of the thread that fills the array; none where the one that accesses does so itself.
    pub(super) other: Option<usize>,
}

/// What it did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Raced {
    /// Accesses made.
    pub(super) accesses: u64,
    /// Violations reported.
    pub(super) reported: u64,
    /// Times that the other thread filled the array meanwhile.
    pub(super) fills: u64,
    /// One access with its load and check, ns: median over groups.
    pub(super) access: f64,
}

/// Two objects side by side, and as much behind them.
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
    /// All pointers to the one object or to the other.
    fn fill<K: Keeping>(&self, second: bool) {
        let (pointer, bounds) = self.objects.pointer(second);
        for index in 0..self.pointers.count() {
            K::store(&self.pointers, index, pointer, bounds);
        }
    }

    /// Fills alternately until it is told to stop.
    fn keep_filling<K: Keeping>(&self) {
        while !self.stop.load(Ordering::Relaxed) {
            self.fill::<K>(true);
            self.fill::<K>(false);
            self.fills.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// One access by every pointer; how many were reported.
    #[inline(never)]
    fn pass<K: Keeping>(&self, offset: u64) -> u64 {
        let mut reported = 0_u64;
        for index in 0..self.pointers.count() {
            let (pointer, bounds) = K::load(&self.pointers, index);
            let address = pointer.wrapping_add(offset);
            reported = reported.wrapping_add(bounds.violated(address).into());
            // SAFETY: the pointers are to two objects, behind which as many bytes follow as the offset.
            black_box(unsafe { (address as *const u8).read_volatile() });
        }
        reported
    }
}

/// Runs a race.
///
/// # Errors
/// Where there is no memory or no other thread.
pub(super) fn run<K: Keeping + 'static>(race: &Race, tsc: &Tsc) -> Result<Raced, Failure> {
    let shared = Arc::new(Shared {
        pointers: Pointers::new(race.pointers)?,
        objects: Objects([0; 3 * OBJECT]),
        stop: AtomicBool::new(false),
        fills: AtomicU64::new(0),
    });
    shared.fill::<K>(false);
    let other = race.other.map(|cpu| {
        let shared = Arc::clone(&shared);
        spawn_pinned(cpu, move || shared.keep_filling::<K>())
    });
    let other = other.transpose()?;
    while other.is_some() && shared.fills.load(Ordering::Relaxed) == 0 {
        std::hint::spin_loop();
    }
    let raced = access::<K>(race, &shared, tsc);
    shared.stop.store(true, Ordering::Relaxed);
    match other.map(std::thread::JoinHandle::join) {
        Some(Err(_)) => Err(Failure::failed("the thread that fills the array panicked")),
        _ => Ok(raced),
    }
}

fn access<K: Keeping>(race: &Race, shared: &Shared, tsc: &Tsc) -> Raced {
    let offset = if race.beyond { OBJECT as u64 } else { 0 };
    let passes = GROUP.div_ceil(race.pointers as u64);
    let each = passes * race.pointers as u64;
    let groups = race.accesses.div_ceil(each);
    let fills = shared.fills.load(Ordering::Relaxed);
    let mut reported = 0_u64;
    let mut ticks = Vec::with_capacity(groups as usize);
    for group in 0..groups {
        if race.other.is_none() {
            shared.fill::<K>(group % 2 == 0);
        }
        let begin = tsc::start();
        for _ in 0..passes {
            reported = reported.wrapping_add(shared.pass::<K>(offset));
        }
        ticks.push(tsc::stop().saturating_sub(begin).saturating_sub(tsc.overhead) as f64);
    }
    Raced {
        accesses: groups * each,
        reported,
        fills: shared.fills.load(Ordering::Relaxed) - fills,
        access: tsc.nanoseconds(median(&ticks).unwrap_or(0.0)) / each as f64,
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::pair::{Compare, Vector};
    use super::super::store::{Apart, Locked, Together};
    use super::*;

    fn raced<K: Keeping + 'static>(beyond: bool, other: Option<usize>) -> Raced {
        let race = Race { pointers: 100, accesses: 500_000, beyond, other };
        run::<K>(&race, Tsc::get().unwrap()).unwrap()
    }

    #[test]
    fn alone_everything_is_judged_rightly() {
        for beyond in [false, true] {
            let all = [
                raced::<Apart>(beyond, None),
                raced::<Locked>(beyond, None),
                raced::<Together<Compare>>(beyond, None),
                raced::<Together<Vector>>(beyond, None),
            ];
            for one in all {
                assert_eq!(one.reported, if beyond { one.accesses } else { 0 }, "{one:?}");
                assert!(one.accesses >= 500_000 && one.access > 0.0, "{one:?}");
            }
        }
    }

    #[test]
    fn the_race_misleads_and_both_fixes_end_it() {
        let [_, other, ..] = machine::topology::allowed_cpus()[..] else {
            machine::untested::note("races of bounds", &"there is one CPU");
            return;
        };
        let wrong =
            |one: Raced, beyond| if beyond { one.accesses - one.reported } else { one.reported };
        for beyond in [false, true] {
            // A busy machine may part the threads for a while.
            let end = Instant::now() + Duration::from_secs(30);
            while wrong(raced::<Apart>(beyond, Some(other)), beyond) == 0 {
                assert!(Instant::now() < end, "no race seen, beyond {beyond}");
            }
            for one in [
                raced::<Locked>(beyond, Some(other)),
                raced::<Together<Compare>>(beyond, Some(other)),
                raced::<Together<Vector>>(beyond, Some(other)),
            ] {
                assert_eq!(wrong(one, beyond), 0, "{one:?}");
            }
        }
    }
}
