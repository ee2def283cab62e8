//! The write-then-checked-read ceiling: the rate of a ring whose two sides do not disturb each other.
//!
//! Writer and reader alternate on the same slots with the same function and the same check. The
//! writer writes a batch of frames into slots that the other core read last; then the reader reads
//! and checks them, as the other core left them. Each batch is timed separately on each side, so no
//! side waits, polls, publishes, or shares memory bandwidth with the other. A ring lets both sides work
//! concurrently and at best takes as long per frame as the slower of the two: the ceiling is
//! `length / max(write, read)`.
//!
//! The number of frames per batch determines in which cache level the data is between the sides, as
//! the fill level does in a ring. So batches of one frame up to all slots are tried, and the best is
//! the ceiling.
//!
//! It is not a strict bound. The first frames of each batch find the other side's caches as it left
//! them when it stopped, while the sides of a ring never stop: on Zen 5 rings of 4 to 16 MiB that publish
//! halves were up to 1.05 times as fast between near cores.

use std::time::Duration;

use lab::sample::Failure;
use machine::tsc::{self, Tsc};

use super::TransferParams;
use super::frame::Source;
use super::reader::{FrameCounts, Reader};
use super::shared::{SharedFrames, spin};
use super::transfer::{CpuPair, TransferOutcome, deadline};
use super::writer::{NoFaults, Writer};
use crate::functions::CopyFn;

/// Untimed batches of either side at first.
const WARM_UP: usize = 3;
/// Minimum batches for a median.
const MIN_BATCHES: usize = 5;
/// Maximum batches of one size, which bounds the record.
const MAX_BATCHES: usize = 1 << 14;
/// Minimum bytes per batch: shorter batches measure the timer.
const MIN_BYTES: usize = 16 << 10;

/// Times per frame for one batch size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchTiming {
    /// Frames per batch.
    pub batch: usize,
    /// Median time to write a frame, in ticks.
    pub write: f64,
    /// Median time to read and check a frame, in ticks.
    pub read: f64,
}

impl BatchTiming {
    /// Returns the ticks per frame if both sides work concurrently without slowing each other down.
    pub fn slower(&self) -> f64 {
        self.write.max(self.read)
    }
}

/// Results of all batches.
#[derive(Debug, Clone)]
pub struct Ceiling {
    /// Every batch size that was tried.
    pub tried: Vec<BatchTiming>,
    /// Counts of the reader.
    pub outcome: TransferOutcome,
}

impl Ceiling {
    /// Returns the batch size with the least time per frame.
    pub fn best(&self) -> Option<BatchTiming> {
        self.tried.iter().copied().min_by(|a, b| a.slower().total_cmp(&b.slower()))
    }
}

/// Returns the batch sizes: powers of two up to all slots, at least [`MIN_BYTES`] long.
fn sizes(params: &TransferParams) -> Vec<usize> {
    let powers = (0..).map(|power| 1 << power).take_while(|batch| *batch <= params.slots);
    let mut sizes: Vec<usize> = powers.filter(|batch| batch * params.length >= MIN_BYTES).collect();
    if sizes.is_empty() {
        sizes.push(params.slots);
    }
    sizes
}

/// Alternates writing and reading until the budget is spent.
///
/// # Errors
/// Returns an error if either side could not start or end.
pub fn ceiling(
    shared: &mut SharedFrames,
    params: &TransferParams,
    copy: CopyFn,
    pair: CpuPair,
    budget: Duration,
) -> Result<Ceiling, Failure> {
    let tsc = Tsc::get()?;
    let source = Source::new(params.length)?;
    let expected = source.expected();
    let deadline = deadline(budget)?;
    shared.clear();
    let shared: &SharedFrames = shared;
    let reader = Reader { shared, params, expected, deadline };
    let mut faults = NoFaults;
    let mut writer =
        Writer { shared, params, source: &source, copy, faults: &mut faults, deadline };
    let sizes = sizes(params);
    let share = tsc.ticks(budget) / sizes.len() as u64;
    let write = || {
        let mut index = 0;
        let tried: Option<Vec<BatchTiming>> = sizes
            .iter()
            .map(|batch| batches(&mut writer, &mut index, *batch, share, tsc))
            .collect();
        shared.control().last.set(index);
        shared.control().batch.set(0);
        pass_batch(shared);
        Some((tried?, index))
    };
    // SAFETY: the reader only accesses existing memory.
    let (tried, sent) =
        unsafe { pair.run(shared, params.bytes(), || read_batches(&reader, tsc), write) }?;
    Ok(Ceiling { tried, outcome: TransferOutcome::of(shared, sent) })
}

fn pass_batch(shared: &SharedFrames) {
    let passed = &shared.control().passed;
    passed.set(passed.get() + 1);
}

/// Runs the writer's batches of one size, each followed by the reader's.
fn batches(
    writer: &mut Writer<'_, NoFaults>,
    index: &mut u64,
    batch: usize,
    ticks: u64,
    tsc: &Tsc,
) -> Option<BatchTiming> {
    let control = writer.shared.control();
    let (mut writes, mut reads) =
        (Vec::with_capacity(MAX_BATCHES), Vec::with_capacity(MAX_BATCHES));
    control.batch.set(batch as u64);
    let mut frame = writer.prepare(*index);
    let end = tsc::start().saturating_add(ticks);
    for number in 0..MAX_BATCHES + WARM_UP {
        let start = tsc::start();
        for _ in 0..batch {
            let next = writer.prepare(*index + 1);
            writer.put(*index, frame);
            frame = next;
            *index += 1;
        }
        let now = tsc::stop();
        pass_batch(writer.shared);
        if !spin(writer.deadline, || control.passed.get().is_multiple_of(2)) {
            return None;
        }
        if number >= WARM_UP {
            writes.push((now - start).saturating_sub(tsc.overhead));
            reads.push(control.read_ticks.get());
        }
        if writes.len() >= MIN_BATCHES && now > end {
            break;
        }
    }
    let each = |ticks: &mut [u64]| super::median(ticks).map(|ticks| ticks / batch as f64);
    Some(BatchTiming { batch, write: each(&mut writes)?, read: each(&mut reads)? })
}

/// Runs the reader's batches until one of no frames; false if the deadline passes first.
fn read_batches(reader: &Reader<'_>, tsc: &Tsc) -> bool {
    let control = reader.shared.control();
    let mut counts = FrameCounts::default();
    let mut index = 0;
    loop {
        if !spin(reader.deadline, || !control.passed.get().is_multiple_of(2)) {
            return false;
        }
        let batch = control.batch.get();
        if batch == 0 {
            counts.publish(reader.shared, control.last.get());
            return true;
        }
        let start = tsc::start();
        for _ in 0..batch {
            reader.take(index, &mut counts);
            index += 1;
        }
        let elapsed = tsc::stop() - start;
        control.read_ticks.set(elapsed.saturating_sub(tsc.overhead));
        pass_batch(reader.shared);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Check, Publish, TimingMode};
    use super::*;

    #[test]
    fn batches_are_long_enough_to_be_timed() {
        let params = |length, slots| TransferParams {
            length,
            slots,
            check: Check::All,
            usage: TimingMode::Throughput,
            publish: Publish::Each,
        };
        assert_eq!(sizes(&params(65536, 4)), [1, 2, 4]);
        assert_eq!(sizes(&params(4096, 16)), [4, 8, 16]);
        assert_eq!(sizes(&params(64, 4)), [4]);
    }
}
