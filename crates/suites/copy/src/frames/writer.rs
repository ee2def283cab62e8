//! The writer of a transfer: copies frames into the ring.

use machine::tsc;

use super::frame::{Prepared, Source};
use super::shared::{RECORDS, SharedFrames, spin};
use super::{TimingMode, TransferParams};
use crate::functions::CopyFn;

/// Minimum timed chunks.
const MIN_CHUNKS: u64 = 6;

/// Faults to inject into a transfer, for tests.
pub trait FaultInjector {
    /// Returns the sequence number of frame `index`. The numbers of consecutive frames must not differ
    /// by a multiple of three, because the frames would be the same memory.
    #[inline(always)]
    fn sequence(&mut self, index: u64) -> u64 {
        index
    }

    /// Accesses a frame in its slot before it is published.
    ///
    /// # Safety
    /// `frame` points to the frame's bytes, which no other thread or process accesses.
    #[inline(always)]
    unsafe fn pass(&mut self, index: u64, frame: *mut u8) {
        let _ = (index, frame);
    }
}

/// A transfer without faults.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoFaults;

impl FaultInjector for NoFaults {}

/// The writer of one transfer.
#[derive(Debug)]
pub(super) struct Writer<'a, L> {
    pub(super) shared: &'a SharedFrames,
    pub(super) params: &'a TransferParams,
    pub(super) source: &'a Source,
    pub(super) copy: CopyFn,
    pub(super) faults: &'a mut L,
    pub(super) deadline: u64,
}

impl<L: FaultInjector> Writer<'_, L> {
    /// Prepares frame `index`, in other memory than the preceding frame.
    #[inline(always)]
    pub(super) fn prepare(&mut self, index: u64) -> Prepared {
        self.source.prepare(self.faults.sequence(index))
    }

    /// Copies frame `index` into its slot.
    #[inline(always)]
    pub(super) fn put(&mut self, index: u64, frame: Prepared) {
        let slot = self.shared.slots().wrapping_add(self.params.slot(index));
        // SAFETY: slot and frame have this length and are in different mappings; the reader has freed
        // the slot.
        unsafe {
            (self.copy)(slot, frame.start(), self.params.length);
            self.faults.pass(index, slot);
        }
    }

    /// Sends frames for `ticks` ticks. Returns the number sent, or `None` if the deadline passes
    /// first. With one frame in flight, `trips` receives the ticks from each frame to the next.
    pub(super) fn run(&mut self, ticks: u64, trips: &mut Vec<u64>) -> Option<u64> {
        let sent = match self.params.usage {
            TimingMode::Throughput => self.stream(ticks),
            TimingMode::Latency => self.one_by_one(ticks, trips),
        }?;
        self.shared.control().last.set(sent);
        Some(sent)
    }

    /// Sends as fast as slots become free, published in batches; whole chunks, enough for a median.
    fn stream(&mut self, ticks: u64) -> Option<u64> {
        let control = self.shared.control();
        let (batch, chunk, slots) =
            (self.params.batch(), self.params.chunk(), self.params.slots as u64);
        let min = self.params.warm_up().next_multiple_of(chunk) + MIN_CHUNKS * chunk;
        let max = min + chunk * RECORDS as u64;
        let (mut head, mut tail) = (0, 0);
        let mut frame = self.prepare(head);
        let end = tsc::start().saturating_add(ticks);
        loop {
            for _ in 0..batch {
                if head - tail == slots {
                    let freed = spin(self.deadline, || {
                        tail = control.tail.get();
                        head - tail < slots
                    });
                    if !freed {
                        return None;
                    }
                }
                let next = self.prepare(head + 1);
                self.put(head, frame);
                frame = next;
                head += 1;
            }
            control.head.set(head);
            if head >= max || (head >= min && head % chunk == 0 && tsc::start() > end) {
                return Some(head);
            }
        }
    }

    /// Sends one frame at a time, each after the reader has freed the previous one.
    fn one_by_one(&mut self, ticks: u64, trips: &mut Vec<u64>) -> Option<u64> {
        let control = self.shared.control();
        let max = self.params.warm_up() + RECORDS as u64;
        let mut head = 0;
        let mut frame = self.prepare(head);
        let mut last = tsc::start();
        let end = last + ticks;
        trips.reserve(RECORDS);
        loop {
            let stamp = tsc::start();
            if head > self.params.warm_up() {
                trips.push(stamp - last);
            }
            last = stamp;
            frame.stamp(stamp);
            self.put(head, frame);
            head += 1;
            control.head.set(head);
            frame = self.prepare(head);
            if !spin(self.deadline, || control.tail.get() == head) {
                return None;
            }
            if head >= max || (stamp > end && head >= self.params.warm_up() + 64) {
                return Some(head);
            }
        }
    }
}
