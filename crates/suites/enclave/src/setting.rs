//! What a point asks for.

use lab::point::{Level, Point};
use lab::sample::Failure;

use crate::conf::Conf;
use crate::limits::{self, Limit};

/// The enclave and the threads of a point, and how much they do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The kind of enclave.
    pub kind: String,
    /// Its allocator.
    pub allocator: String,
    /// NumHeapPages.
    pub heap: u64,
    /// NumStackPages.
    pub stack: u64,
    /// NumTCS.
    pub tcs: u64,
    /// Debug.
    pub debug: bool,
    /// Host threads.
    pub threads: u64,
    /// Allocations a thread.
    pub num_allocations: u64,
    /// Sizes are below this, bytes.
    pub max_size: u64,
    /// Whether pages are written.
    pub touch: bool,
}

impl Setting {
    /// What a point asks for; what it leaves out is as in the seed.
    ///
    /// # Errors
    /// Refuses a level that is not a number or beyond its limits.
    pub fn of(point: &Point) -> Result<Self, Failure> {
        let threads = count(point, "threads", limits::THREADS, 1)?;
        let word = |factor: &str, otherwise: &str| {
            let level = point.get(factor).map_or(otherwise, Level::as_str);
            level.to_owned()
        };
        let max_size = match point.get("max_size") {
            Some(level) => lab::quantity::bytes(level.as_str())
                .map_err(|why| why.to_string())
                .and_then(|bytes| limits::SIZE.check("max_size", bytes))
                .map_err(Failure::failed)?,
            None => 16 << 10,
        };
        let conf = Conf::default();
        Ok(Self {
            kind: word("kind", "simulate"),
            allocator: word("allocator", "dlmalloc"),
            heap: count(point, "heap", limits::HEAP, conf.heap_pages as u64)?,
            stack: count(point, "stack", limits::STACK, conf.stack_pages as u64)?,
            // Unless a point says otherwise no thread is refused.
            tcs: count(point, "tcs", limits::TCS, threads.max(conf.tcs as u64))?,
            debug: word("debug", "no") == "yes",
            threads,
            num_allocations: count(point, "num_allocations", limits::ALLOCATIONS, 100_000)?,
            max_size,
            touch: word("touch", "no") == "yes",
        })
    }

    /// The seed of one thread's generator: the same for every point of a round, so that all do the
    /// same work.
    pub fn seed(round: u32, thread: u64) -> u64 {
        // The step of splitmix64, whose finaliser spreads neighbouring numbers.
        let mut state = (u64::from(round) << 32 | (thread + 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        state = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ state >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        state ^ state >> 31
    }
}

/// The count of a factor, or another if the point has none.
///
/// # Errors
/// Refuses a level that is not a number or beyond its limits.
pub fn count(point: &Point, factor: &str, limit: Limit, otherwise: u64) -> Result<u64, Failure> {
    let Some(level) = point.get(factor) else { return Ok(otherwise) };
    limit.read(factor, level.as_str()).map_err(Failure::failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_as_in_the_seed() {
        let setting = Setting::of(&Point::default()).unwrap();
        assert_eq!((setting.heap, setting.stack, setting.tcs), (4096, 16, 8));
        assert_eq!((setting.num_allocations, setting.max_size), (100_000, 16 << 10));
        assert_eq!((setting.kind.as_str(), setting.touch), ("simulate", false));
    }

    #[test]
    fn a_point_says_what_differs() {
        let point = Point::from([
            ("threads", "32"),
            ("max_size", "64 B"),
            ("touch", "yes"),
            ("allocator", "talc"),
            ("debug", "yes"),
        ]);
        let setting = Setting::of(&point).unwrap();
        assert_eq!((setting.threads, setting.tcs, setting.max_size), (32, 32, 64));
        assert!(setting.touch && setting.debug && setting.allocator == "talc");
        assert_eq!(Setting::of(&point.with("tcs", "4")).unwrap().tcs, 4);
    }

    /// Sizes whose product with a page wraps around are among them.
    #[test]
    fn a_count_beyond_its_limit_is_refused_by_its_name() {
        let limited = [
            ("threads", limits::THREADS),
            ("heap", limits::HEAP),
            ("stack", limits::STACK),
            ("tcs", limits::TCS),
            ("num_allocations", limits::ALLOCATIONS),
        ];
        for (factor, limit) in limited {
            let of = |level: &str| Setting::of(&Point::default().with(factor, level));
            assert!(of(&limit.largest.to_string()).is_ok(), "{factor}");
            let beyond = (limit.largest + 1).to_string();
            let wrong =
                ["0", "4503599627370497", "4503599627374592", "18446744073709551616", "x", &beyond];
            for level in wrong {
                let why = of(level).unwrap_err().to_string();
                assert!(why.contains(factor) && !why.contains('\n'), "{factor}={level}: {why}");
            }
        }
        for size in ["0 B", "2 TiB", "many"] {
            assert!(Setting::of(&Point::default().with("max_size", size)).is_err(), "{size}");
        }
    }

    #[test]
    fn every_thread_of_every_round_has_a_seed_of_its_own() {
        let seeds: std::collections::BTreeSet<u64> = (0..100)
            .flat_map(|round| (0..64).map(move |thread| Setting::seed(round, thread)))
            .collect();
        assert_eq!(seeds.len(), 6400);
        assert!(!seeds.contains(&0));
    }
}
