//! The plain copy with which frames are compared: the same frames into the same slots by one core,
//! without a reader.

use std::time::Duration;

use lab::sample::Failure;
use machine::pin::pin_to;
use machine::tsc::{self, Tsc};

use super::TransferParams;
use super::frame::Source;
use super::reader::{FrameCounts, Reader};
use super::shared::{RECORDS, SharedFrames};
use super::transfer::{TransferOutcome, deadline};
use super::writer::{NoFaults, Writer};
use crate::functions::CopyFn;

/// Minimum timed chunks.
const MIN_CHUNKS: usize = 6;

/// Times of chunks of copies, and the check of the bytes.
#[derive(Debug, Clone)]
pub struct PlainCopy {
    /// Median time to copy a frame, in ticks.
    pub frame: f64,
    /// Counts of a reader after the last copies.
    pub outcome: TransferOutcome,
}

/// Copies frames into the slots until the budget is spent, then clears every slot, fills it again
/// and checks it.
///
/// # Errors
/// Returns an error if the CPU is not allowed or no chunk was timed.
pub fn plain_copy(
    shared: &mut SharedFrames,
    params: &TransferParams,
    copy: CopyFn,
    cpu: usize,
    budget: Duration,
) -> Result<PlainCopy, Failure> {
    let tsc = Tsc::get()?;
    let source = Source::new(params.length)?;
    let (expected, deadline) = (source.expected(), deadline(budget)?);
    pin_to(cpu)?;
    shared.clear();
    let shared: &SharedFrames = shared;
    let mut faults = NoFaults;
    let mut writer =
        Writer { shared, params, source: &source, copy, faults: &mut faults, deadline };
    let mut copy_frames = |from: u64, count: u64| {
        for index in from..from + count {
            let frame = writer.prepare(index);
            writer.put(index, frame);
        }
        from + count
    };
    let chunk = params.chunk();
    let mut index = copy_frames(0, params.warm_up());
    let mut ticks = Vec::with_capacity(RECORDS);
    let end = tsc::start().saturating_add(tsc.ticks(budget));
    while ticks.len() < RECORDS {
        let start = tsc::start();
        index = copy_frames(index, chunk);
        let now = tsc::stop();
        ticks.push((now - start).saturating_sub(tsc.overhead));
        if ticks.len() >= MIN_CHUNKS && now > end {
            break;
        }
    }
    let frame = super::median(&mut ticks).ok_or_else(|| Failure::failed("no chunk was timed"))?;
    // SAFETY: the slots are this many bytes of memory, which no other thread or process accesses.
    unsafe { shared.slots().write_bytes(0, params.bytes()) };
    let slots = copy_frames(0, params.slots as u64);
    let reader = Reader { shared, params, expected, deadline };
    let mut counts = FrameCounts::default();
    (0..slots).for_each(|index| {
        reader.take(index, &mut counts);
    });
    counts.publish(shared, slots);
    let outcome = TransferOutcome::of(shared, slots);
    Ok(PlainCopy { frame: frame / chunk as f64, outcome })
}

#[cfg(test)]
mod tests {
    use super::super::{Check, Publish, TimingMode};
    use super::*;

    #[test]
    fn every_slot_is_checked() {
        let params = TransferParams {
            length: 4096,
            slots: 16,
            check: Check::All,
            usage: TimingMode::Throughput,
            publish: Publish::Each,
        };
        let mut shared = SharedFrames::new(params.bytes()).unwrap();
        let cpu = machine::topology::allowed_cpus()[0];
        let mut copied = |copy: CopyFn| {
            plain_copy(&mut shared, &params, copy, cpu, Duration::from_millis(1)).unwrap()
        };
        let glibc = crate::functions::find("glibc").unwrap();
        let whole = copied(glibc.pointer());
        assert_eq!((whole.outcome.sent, whole.outcome.check()), (16, Ok(())));
        assert!(whole.frame > 0.0);
        unsafe extern "C" fn nothing(_: *mut u8, _: *const u8, _: usize) {}
        assert!(copied(nothing).outcome.check().is_err());
    }
}
