//! `copy/frames`: two processes pass frames through shared memory, as ESCAPE's two hosts do.
//!
//! The writer copies each frame into a slot of a ring in a memfd; the reader, another process on
//! another CPU, checks it there. With `pass = ceiling` the same two cores write and read the same
//! slots alternately instead, so that neither disturbs the other: see [`ceiling`](mod@ceiling). With
//! `pass = copy` one core copies the frames into the slots without a reader: the plain memory copy from
//! which ESCAPE expected a higher rate.

pub mod ceiling;
mod digest;
mod frame;
pub mod plain_copy;
mod probe;
mod reader;
mod shared;
mod transfer;
mod writer;

use std::collections::BTreeMap;
use std::time::Duration;

use lab::factor::{LevelType, Levels};
use lab::method::{Method, Params, Probe};
use lab::metric::Metric;
use lab::sample::Failure;

use ceiling::ceiling;
pub use ceiling::{BatchTiming, Ceiling};
pub use frame::{Check, Expected, Header, MAX_LENGTH, MIN_LENGTH, Prepared, Source};
pub(crate) use reader::SequenceCounts;
pub(crate) use shared::Cell;
pub use shared::SharedFrames;
pub use transfer::{CpuPair, TransferOutcome, transfer};
pub use writer::{FaultInjector, NoFaults};

pub use crate::levels::TimingMode;
use crate::{functions, levels, metrics};

/// Maximum bytes of all slots.
const MAX_SLOT_BYTES: usize = 1 << 30;
/// Minimum bytes of a chunk, so that a timer step is a small part of its time.
pub(crate) const CHUNK: usize = 256 << 10;
/// Bytes that are published together if frames are short.
const BATCH: usize = 2 << 10;
/// Maximum bytes that are published together with `publish = half`: more than the second-level cache
/// of a core, so that frames pass through the last-level cache.
const MAX_HALF: usize = 4 << 20;

/// How frames pass between the processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
enum Pass {
    /// Through the ring.
    Frames,
    /// By alternate writing and reading of the same slots.
    Ceiling,
    /// Not at all: one core copies the frames into the same slots.
    Copy,
}

/// How many frames are published and freed together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub enum Publish {
    /// Each frame, or a batch of short ones.
    Each,
    /// Half of the ring.
    Half,
}

/// Params of `frames`.
#[derive(Debug, Clone, Params)]
pub(crate) struct FrameParams {
    /// bytes of a frame: a multiple of 64 B
    #[factor(default = "64 KiB", levels = Levels::Bytes(MIN_LENGTH as u64, MAX_LENGTH as u64))]
    length: usize,
    /// copy function: one of the suite, or PATH.so:SYMBOL
    #[factor(default = "glibc", levels = Levels::Checked(levels::suite_function))]
    function: String,
    /// slots of the ring, one frame each: a power of two
    #[factor(default = "16", levels = Levels::Checked(|text| slots_of(text).map(|slots| slots.to_string())))]
    slots: usize,
    /// what the reader checks of a frame: none, header (sequence, length, both ends) or all
    #[factor(default = "all")]
    check: Check,
    /// throughput (frames back to back) or latency (one frame in flight)
    #[factor(name = "use", default = "throughput")]
    usage: TimingMode,
    /// what is published and freed together: each frame (short ones in batches of 2 KiB), or half of the ring, up to 4 MiB
    #[factor(default = "each")]
    publish: Publish,
    /// frames (through the ring) or ceiling (alternate writing and reading of the same slots)
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
    Metric::time(
        "latency_p99",
        "from before a frame is copied until it is checked, 99th percentile of the sample",
    ),
    Metric::count("frames", "frames sent"),
    Metric::count("lost", "frames that did not arrive; must be 0"),
    Metric::count("torn", "frames that arrived incomplete; must be 0"),
    Metric::count("repeated", "frames that arrived again, or late; must be 0"),
    Metric::time(
        "write_time",
        "ceiling: time to write a frame into a slot that the other core read last",
    ),
    Metric::time("read_time", "ceiling: time to read and check a frame that the other core wrote"),
];

pub(crate) fn slots_of(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(slots) if slots.is_power_of_two() && slots <= 1 << 20 => Ok(slots),
        _ => Err(format!("'{text}' is not a power of two up to 1048576")),
    }
}

/// Parameters of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferParams {
    /// Bytes of a frame: a multiple of 64.
    pub length: usize,
    /// Slots of the ring: a power of two.
    pub slots: usize,
    /// Check by the reader.
    pub check: Check,
    /// Throughput or latency.
    pub usage: TimingMode,
    /// Frames published and freed together.
    pub publish: Publish,
}

impl TransferParams {
    /// Checks that the levels of a point fit together.
    ///
    /// # Errors
    /// Returns `unavailable` with the conflict.
    pub(crate) fn new(params: &FrameParams) -> Result<Self, Failure> {
        let conflict =
            |why: String| Failure::unavailable(why, "choose other levels: `tollgate list`");
        let FrameParams { length, slots, check, usage, publish, pass, .. } = *params;
        if !length.is_multiple_of(MIN_LENGTH) {
            return Err(conflict(format!(
                "{length} B is not a frame length; use 64 B to 64 MiB in multiples of 64 B"
            )));
        }
        if slots.saturating_mul(length) > MAX_SLOT_BYTES {
            return Err(conflict(format!("{slots} slots of {length} B exceed 1 GiB")));
        }
        if usage == TimingMode::Latency && check == Check::None {
            return Err(conflict("use = latency needs a reader that reads the timestamp".into()));
        }
        if publish == Publish::Half && (pass, usage) != (Pass::Frames, TimingMode::Throughput) {
            return Err(conflict("publish = half needs pass = frames and use = throughput".into()));
        }
        Ok(Self { length, slots, check, usage, publish })
    }

    /// Returns the bytes of all slots.
    pub fn bytes(&self) -> usize {
        self.slots * self.length
    }

    /// Returns the offset of the slot of frame `index`, in bytes.
    #[inline(always)]
    fn slot(&self, index: u64) -> usize {
        (index as usize & (self.slots - 1)) * self.length
    }

    /// Returns how many frames are published or freed together.
    ///
    /// With single frames the sides follow each other closely: every line is fetched from, or invalidated
    /// in, the other core's second-level cache while that core uses it. With halves each side works on
    /// lines that the other core has already evicted to the last-level cache. If the cores share that
    /// cache, a frame of 64 KiB takes 0.7 times as long on Zen 5; otherwise 1.2 to 1.4 times.
    fn batch(&self) -> u64 {
        let batch = match self.publish {
            // Short frames: at most a quarter of the ring, so that neither side waits for the other's batch.
            Publish::Each => (BATCH / self.length).min(self.slots / 4),
            Publish::Half => (MAX_HALF / self.length).min(self.slots / 2),
        };
        batch.max(1) as u64
    }

    /// Returns how many frames are timed together: enough for the timer, and several batches, so that
    /// one irregular batch does not determine a rate. No more than that: a side that loses its CPU
    /// then spoils few chunks, and the median is unaffected.
    fn chunk(&self) -> u64 {
        ((CHUNK / self.length) as u64).max(4 * self.batch()).next_multiple_of(self.batch())
    }

    /// Returns the number of frames before timing starts, until caches and branch predictors are warm.
    fn warm_up(&self) -> u64 {
        (self.slots * 2) as u64
    }
}

/// Returns the median, or `None` of an empty slice. Sorts the slice.
pub(crate) fn median(ticks: &mut [u64]) -> Option<f64> {
    ticks.sort_unstable();
    let middle = ticks.get(ticks.len() / 2)?;
    let below = ticks.get((ticks.len() - 1) / 2)?;
    Some((middle + below) as f64 / 2.0)
}

/// The method `frames`: passes frames between two processes.
pub(crate) struct Frames;

impl Method for Frames {
    type Params = FrameParams;

    fn name(&self) -> &'static str {
        "frames"
    }

    fn how(&self) -> &'static str {
        "Two processes on two CPUs pass frames through a ring in shared memory; the rate is that of the \
         median chunk of frames after a warm-up, and a latency the median from a frame's stamp to its check. \
         The reader checks frames as the factor check states, and a lost, torn or repeated frame fails the \
         sample."
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn available(&self, params: &FrameParams) -> Result<(), Failure> {
        TransferParams::new(params)?;
        CpuPair::choose(&machine::topology::allowed_cpus())?;
        functions::check(&params.function)
    }

    /// Includes preparation: the shared memory, and warm-up frames for twice its slots.
    fn expected(&self, params: &FrameParams, budget: Duration) -> Duration {
        let bytes = TransferParams::new(params).map_or(0, |params| params.bytes());
        // Shared memory fills at about 2 GB/s page by page, and frames pass at about 5 GB/s.
        let prepared = bytes as f64 * (1.0 / 2e9 + 2.0 / 5e9);
        budget + Duration::from_millis(5) + Duration::from_secs_f64(prepared)
    }

    fn timed_modules(&self) -> &'static [&'static str] {
        &["copy::functions"]
    }

    fn code(&self, params: &FrameParams, _: &BTreeMap<String, String>) -> Option<String> {
        functions::shared_object(&params.function).map(str::to_owned)
    }

    fn probe(&self) -> Result<Box<dyn Probe<FrameParams>>, Failure> {
        Ok(Box::new(probe::FrameProbe::default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_follow_from_the_ring_and_the_length() {
        let batch = |length, slots, publish| {
            let (check, usage) = (Check::All, TimingMode::Throughput);
            let params = TransferParams { length, slots, check, usage, publish };
            assert!(params.batch() <= slots as u64);
            assert!(params.chunk().is_multiple_of(params.batch()));
            (params.batch(), params.chunk())
        };
        assert_eq!(batch(64, 16, Publish::Each), (4, 4096));
        assert_eq!(batch(64, 256, Publish::Each), (32, 4096));
        assert_eq!(batch(64 << 10, 128, Publish::Each), (1, 4));
        assert_eq!(batch(64 << 10, 1, Publish::Half), (1, 4));
        assert_eq!(batch(64 << 10, 16, Publish::Half), (8, 32));
        assert_eq!(batch(64 << 10, 128, Publish::Half), (64, 256));
        assert_eq!(batch(64 << 10, 1024, Publish::Half), (64, 256));
        assert_eq!(batch(8 << 20, 4, Publish::Half), (1, 4));
    }
}
