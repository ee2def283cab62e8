//! `copy/frames`: two processes pass frames through a shared pool, as the seed's two hosts do.
//!
//! The writer copies each frame into a slot of a ring in a memfd; the reader, another process on
//! another CPU, checks it there. With `pass = ceiling` the same two cores write and read the same
//! slots by turns instead, which bounds what the ring can reach: see [`ceiling`](mod@ceiling).

pub mod ceiling;
mod digest;
mod frame;
mod pair;
mod pool;
mod probe;
mod reader;
mod transfer;
mod writer;

use std::time::Duration;

use lab::factor::{LevelType, Levels};
use lab::method::{Method, Params, Probe};
use lab::metric::Metric;
use lab::sample::Failure;

use ceiling::ceiling;
pub use ceiling::{Ceiling, Turns};
pub use frame::{Check, Expected, Header, LONGEST, Prepared, SHORTEST, Source};
pub use pair::Pair;
pub use pool::Pool;
pub use transfer::{Outcome, transfer};
pub use writer::{Faithful, Line};

pub use crate::factors::Use;
use crate::{factors, functions, metrics};

/// The most bytes of slots.
const LARGEST: usize = 1 << 30;
/// Bytes that a chunk has at least, so that the timer's step is small beside it.
const CHUNK: usize = 256 << 10;
/// Bytes that are published together at least, where frames are short.
const BATCH: usize = 2 << 10;

/// What a transfer goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
enum Pass {
    /// The ring.
    Frames,
    /// The same writing and reading by turns.
    Ceiling,
}

/// Levels of `frames`.
#[derive(Debug, Clone, Params)]
pub(crate) struct FrameParams {
    /// bytes of a frame: a multiple of 64 B
    #[factor(default = "64 KiB", levels = Levels::Bytes(SHORTEST as u64, LONGEST as u64))]
    length: usize,
    /// what copies: a function of the suite, or PATH.so:SYMBOL
    #[factor(default = "glibc", levels = Levels::Checked(factors::suite_function))]
    function: String,
    /// frames that the ring holds: a power of two
    #[factor(default = "16", levels = Levels::Checked(|text| slots_of(text).map(|slots| slots.to_string())))]
    slots: usize,
    /// what the reader checks of a frame: none, header (sequence, length, both ends) or all
    #[factor(default = "all")]
    check: Check,
    /// throughput (frames back to back) or latency (one frame in flight)
    #[factor(name = "use", default = "throughput")]
    usage: Use,
    /// frames (through the ring) or ceiling (the same writing and reading by turns)
    #[factor(default = "frames")]
    pass: Pass,
}

const METRICS: &[Metric] = &[
    metrics::THROUGHPUT_METRIC,
    metrics::CHECKED_METRIC,
    Metric::time(
        "latency",
        "from before a frame is copied until the other process has checked it, median",
    ),
    Metric::time("latency_p99", "the same, 99th percentile inside the round"),
    Metric::count("frames", "frames sent"),
    Metric::count("lost", "frames that never came; must be 0"),
    Metric::count("torn", "frames that were not whole; must be 0"),
    Metric::count("repeated", "frames that came again, or late; must be 0"),
    Metric::time("write_time", "of the ceiling: to write a frame where the other core read last"),
    Metric::time(
        "read_time",
        "of the ceiling: to read and check a frame that the other core wrote",
    ),
];

fn slots_of(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(slots) if slots.is_power_of_two() && slots <= 1 << 20 => Ok(slots),
        _ => Err(format!("'{text}' is not a power of two up to 1048576")),
    }
}

/// What a transfer is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setup {
    /// Bytes of a frame: a multiple of 64.
    pub length: usize,
    /// Frames that the ring holds: a power of two.
    pub slots: usize,
    /// What the reader checks.
    pub check: Check,
    /// Throughput or latency.
    pub usage: Use,
}

impl Setup {
    /// Checks that the levels of a point fit together.
    ///
    /// # Errors
    /// Returns `unavailable` with the levels that do not.
    pub(crate) fn new(params: &FrameParams) -> Result<Self, Failure> {
        let wrong = |why: String| Failure::unavailable(why, "see `tollgate list` for the levels");
        let FrameParams { length, slots, check, usage, .. } = *params;
        if !length.is_multiple_of(SHORTEST) {
            return Err(wrong(format!(
                "a frame has 64 B to 64 MiB in whole lines, not {length} B"
            )));
        }
        if slots.saturating_mul(length) > LARGEST {
            return Err(wrong(format!("{slots} slots of {length} B are over 1 GiB")));
        }
        if usage == Use::Latency && check == Check::None {
            return Err(wrong("a reader that reads nothing sees no time stamp".into()));
        }
        Ok(Self { length, slots, check, usage })
    }

    /// Bytes of all slots.
    pub fn bytes(&self) -> usize {
        self.slots * self.length
    }

    /// Where the slot of a place begins, bytes.
    #[inline(always)]
    fn slot(&self, place: u64) -> usize {
        (place as usize & (self.slots - 1)) * self.length
    }

    /// Frames that are published or freed together: one where frames are long, and never more than
    /// a quarter of the ring, so that neither side waits for the other's batch.
    fn batch(&self) -> u64 {
        ((BATCH / self.length).min(self.slots / 4)).max(1) as u64
    }

    /// Frames that are timed together: enough for the timer, and several batches, so that one out of
    /// step does not pass for a rate. Few else: whoever loses its CPU for a while then spoils few of
    /// the chunks, and the median does not see it.
    fn chunk(&self) -> u64 {
        ((CHUNK / self.length) as u64).max(4 * self.batch()).next_multiple_of(self.batch())
    }

    /// Frames that are not counted: until caches and branches are as they will be.
    fn warm_up(&self) -> u64 {
        (self.slots * 2) as u64
    }
}

/// The median; none of nothing. Sorts.
fn median(ticks: &mut [u64]) -> Option<f64> {
    ticks.sort_unstable();
    let middle = ticks.get(ticks.len() / 2)?;
    let below = ticks.get((ticks.len() - 1) / 2)?;
    Some((middle + below) as f64 / 2.0)
}

/// Passes frames between two processes.
pub(crate) struct Frames;

impl Method for Frames {
    type Params = FrameParams;

    fn name(&self) -> &'static str {
        "frames"
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn available(&self, params: &FrameParams) -> Result<(), Failure> {
        Setup::new(params)?;
        Pair::of(&machine::topology::allowed_cpus())?;
        Ok(functions::check(&params.function)?)
    }

    /// With all that it prepares: the pool, and twice its slots to warm up.
    fn expected(&self, params: &FrameParams, budget: Duration) -> Duration {
        let bytes = Setup::new(params).map_or(0, |setup| setup.bytes());
        // A pool fills at some 2 GB/s page by page, and frames pass at some 5 GB/s.
        let prepared = bytes as f64 * (1.0 / 2e9 + 2.0 / 5e9);
        budget + Duration::from_millis(5) + Duration::from_secs_f64(prepared)
    }

    fn code(&self, params: &FrameParams) -> Option<String> {
        functions::shared_object(&params.function).map(str::to_owned)
    }

    fn probe(&self) -> Result<Box<dyn Probe<FrameParams>>, Failure> {
        Ok(probe::probe())
    }
}
