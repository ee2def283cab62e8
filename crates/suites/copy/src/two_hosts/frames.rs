//! `copy/two-host-frames`: passes frames from one host to the other through a ring in their common memory.
//!
//! The reader verifies every byte of every frame. The numbers of a sample's frames begin at its random number, so a frame
//! that an earlier sample left is not taken for one of this sample.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lab::factor::Levels;
use lab::measure::{Context, Measurement};
use lab::method::{Method, Params, Probe};
use lab::metric::{Better, Metric};
use lab::sample::Failure;
use machine::mapping::PAGE;
use machine::tsc;

use super::memory::{CommonMemory, SharedMemory};
use super::side::Side;
use crate::frames::{
    CHUNK, Check, MIN_LENGTH, SequenceCounts, Source, TransferOutcome, median, slots_of,
};
use crate::functions::{self, CopyFn};
use crate::levels;
use crate::metrics::{CHECKED, THROUGHPUT};

/// Maximum bytes of all slots, with the control cells at most ESCAPE's 256 MiB.
const MAX_SLOT_BYTES: usize = 64 << 20;
/// Minimum number of timed chunks.
const MIN_CHUNKS: u64 = 6;
/// Maximum number of frames of a sample.
const MAX_FRAMES: u64 = 1 << 20;
/// Number of frames of a slow copy.
const SLOW_FRAMES: u64 = 1;

/// Params of `two-host-frames`.
#[derive(Debug, Params)]
pub(crate) struct TwoHostFrameParams {
    /// memory of both hosts: device, pci-bar, dax, file
    #[factor(default = "device")]
    memory: CommonMemory,
    /// bytes of a frame: a multiple of 64 B
    #[factor(default = "64 KiB", levels = Levels::Bytes(MIN_LENGTH as u64, MAX_SLOT_BYTES as u64))]
    length: usize,
    /// copy function of the writer: one of the suite, or PATH.so:SYMBOL
    #[factor(default = "glibc", levels = Levels::Checked(levels::suite_function))]
    function: String,
    /// slots of the ring, one frame each: a power of two
    #[factor(default = "16", levels = Levels::Checked(|text| slots_of(text).map(|slots| slots.to_string())))]
    slots: usize,
}

impl TwoHostFrameParams {
    fn slot(&self, index: u64) -> usize {
        (index as usize & (self.slots - 1)) * self.length
    }

    /// Returns the number of frames that are timed together.
    fn chunk(&self) -> u64 {
        (CHUNK / self.length).max(4) as u64
    }

    /// Returns the number of frames before timing starts.
    fn warm_up(&self) -> u64 {
        (2 * self.slots as u64).next_multiple_of(self.chunk())
    }
}

const METRICS: &[Metric] = &[
    Metric::new(
        THROUGHPUT,
        "B/s",
        Better::Higher,
        "bytes of frames that the reader verified per second",
    ),
    Metric::new(CHECKED, "B", Better::Neither, "bytes of frames that the reader verified"),
    Metric::count("frames", "frames sent"),
    Metric::count("lost", "frames that did not arrive; must be 0"),
    Metric::count("torn", "frames that arrived incomplete; must be 0"),
    Metric::count("repeated", "frames that arrived again, or late; must be 0"),
];

/// The method `two-host-frames`.
pub(crate) struct TwoHostFrames;

impl Method for TwoHostFrames {
    type Params = TwoHostFrameParams;

    fn name(&self) -> &'static str {
        "two-host-frames"
    }

    fn how(&self) -> &'static str {
        "One host writes frames to a ring in the common memory; if both hosts have a clock, the rate is that \
         of the reader's median chunk of frames. The reader verifies every byte, and a lost, torn or repeated \
         frame fails the sample."
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn available(&self, params: &TwoHostFrameParams) -> Result<(), Failure> {
        let TwoHostFrameParams { memory, length, function, slots } = params;
        let conflict = |why| Failure::unavailable(why, "choose other levels: `tollgate list`");
        if !length.is_multiple_of(MIN_LENGTH) {
            return Err(conflict(format!("{length} B is not a multiple of {MIN_LENGTH} B")));
        }
        if slots.saturating_mul(*length) > MAX_SLOT_BYTES {
            return Err(conflict(format!("{slots} slots of {length} B exceed 64 MiB")));
        }
        memory.available()?;
        functions::check(function)
    }

    fn expected(&self, _: &TwoHostFrameParams, budget: Duration) -> Duration {
        budget + Duration::from_millis(100)
    }

    fn timed_modules(&self) -> &'static [&'static str] {
        &["copy::functions", "copy::two_hosts"]
    }

    fn code(&self, params: &TwoHostFrameParams, _: &BTreeMap<String, String>) -> Option<String> {
        functions::shared_object(&params.function).map(str::to_owned)
    }

    fn probe(&self) -> Result<Box<dyn Probe<TwoHostFrameParams>>, Failure> {
        Ok(Box::new(measure))
    }
}

// As a function of its own it has a name in listings of the timed code.
#[inline(never)]
fn measure(context: &mut Context, params: &TwoHostFrameParams) -> Result<Measurement, Failure> {
    TwoHostFrames.available(params)?;
    let (bytes, function) = (params.slots * params.length, functions::find(&params.function)?);
    // SAFETY: the memory has as many bytes of data, and the reader starts later.
    let prepare = |memory: &SharedMemory| unsafe { memory.data().write_bytes(0, bytes) };
    let mut side = Side::meet(context, params.memory, (PAGE + bytes, params.length), prepare)?;
    let measurement = match side.is_writer {
        true => write(&mut side, params, function.pointer()),
        false => read(&mut side, params),
    }?;
    if side.is_writer {
        function.record();
    }
    Ok(side.describe(measurement))
}

fn write(
    side: &mut Side,
    params: &TwoHostFrameParams,
    function: CopyFn,
) -> Result<Measurement, Failure> {
    let (source, first, slots) = (Source::new(params.length)?, side.number, params.slots as u64);
    let min = match side.pause {
        Some(_) => SLOW_FRAMES,
        None => params.warm_up() + (MIN_CHUNKS + 1) * params.chunk(),
    };
    let (start, mut sent) = (Instant::now(), 0);
    loop {
        let frame = source.prepare(first + sent);
        side.wait("a free slot", |control| sent.saturating_sub(control.tail.get()) < slots)?;
        let slot = side.data().wrapping_add(params.slot(sent));
        // SAFETY: slot and frame have this length; the reader has freed the slot.
        unsafe { side.copy(function, slot, frame.start(), params.length) }?;
        sent += 1;
        side.control().head.set(sent);
        // Without a clock the number of frames must not be a rate in disguise.
        let is_untimed = side.pause.is_some() || side.tsc.is_none();
        let is_enough = sent >= min && (is_untimed || start.elapsed() >= side.budget());
        if is_enough || sent == MAX_FRAMES {
            break;
        }
    }
    side.control().last.set(sent);
    side.wait("the last free slot", |control| control.tail.get() == sent)?;
    Ok(Measurement::default().value("frames", sent as f64))
}

fn read(side: &mut Side, params: &TwoHostFrameParams) -> Result<Measurement, Failure> {
    let expected = Source::new(params.length)?.expected();
    let mut counts = SequenceCounts::starting(side.number);
    let (mut tail, mut start, mut chunks) = (0, 0, Vec::new());
    loop {
        let mut head = tail;
        side.wait("a frame", |control| {
            head = control.head.get();
            head != tail || control.last.get() == tail
        })?;
        // The writer publishes the last frame before the total.
        if head == tail {
            break;
        }
        if !(tail..=tail + params.slots as u64).contains(&head) {
            let why = format!("the writer published {head} frames after {tail} were read");
            return Err(Failure::check(why));
        }
        while tail < head {
            let slot = side.data().wrapping_add(params.slot(tail));
            // SAFETY: the slot is in the data and aligned, and the writer waits until this side frees it.
            let (header, is_whole) = unsafe { expected.read(slot, Check::All) };
            counts.add(&header, is_whole);
            tail += 1;
            side.control().tail.set(tail);
            if tail.is_multiple_of(params.chunk()) && side.tsc.is_some() {
                let now = tsc::start();
                if tail > params.warm_up() {
                    chunks.push(now - start);
                }
                start = now;
            }
        }
    }
    let outcome = outcome(&counts, side.number, side.control().last.get());
    outcome.check()?;
    let measurement = Measurement::default()
        .value(CHECKED, (tail * params.length as u64) as f64)
        .value("lost", outcome.lost as f64)
        .value("torn", outcome.torn as f64)
        .value("repeated", outcome.repeated as f64);
    Ok(match (side.tsc, median(&mut chunks)) {
        (Some(tsc), Some(ticks)) if ticks > 0.0 => {
            let bytes = (params.chunk() * params.length as u64) as f64;
            measurement.value(THROUGHPUT, bytes * tsc.hertz / ticks)
        }
        _ => measurement,
    })
}

/// Returns the results after `sent` frames, the first of which has the number `first`.
fn outcome(counts: &SequenceCounts, first: u64, sent: u64) -> TransferOutcome {
    TransferOutcome {
        sent,
        received: counts.received,
        lost: counts.lost_before(first + sent),
        torn: counts.torn,
        repeated: counts.repeated,
        backwards: false,
        ticks: Vec::new(),
        trips: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::Header;

    #[test]
    fn lost_torn_and_repeated_frames_are_counted() {
        let header = |sequence| Header { sequence, length: 64, stamp: 0, first: 0 };
        let counts = |frames: &[(u64, bool)]| {
            let mut counts = SequenceCounts::starting(100);
            frames.iter().for_each(|(number, is_whole)| counts.add(&header(*number), *is_whole));
            let outcome = outcome(&counts, 100, 4);
            let TransferOutcome { lost, torn, repeated, .. } = outcome;
            assert_eq!(outcome.check().is_ok(), [lost, torn, repeated] == [0; 3]);
            [lost, torn, repeated]
        };
        let whole = |numbers: [u64; 4]| numbers.map(|number| (number, true));
        assert_eq!(counts(&whole([100, 101, 102, 103])), [0, 0, 0]);
        assert_eq!(counts(&whole([100, 100, 102, 103])), [1, 0, 1]);
        assert_eq!(counts(&whole([100, 101, 102, 7])), [1, 0, 1]);
        let torn = [(100, true), (55, false), (102, true), (103, true)];
        assert_eq!(counts(&torn), [0, 1, 0]);
    }
}
