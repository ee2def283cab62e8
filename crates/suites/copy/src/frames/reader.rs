//! The reader of a transfer: takes frames from the ring, checks them, and reports counts.
//!
//! It runs in a forked child of a process that may have threads, so it only accesses existing memory
//! and makes system calls.

use std::sync::atomic::Ordering::Relaxed;

use machine::tsc;

use super::frame::{Check, Expected, Header};
use super::shared::{RECORDS, SharedFrames, UNKNOWN, spin};
use super::{TimingMode, TransferParams};

/// Counts of received frames by their sequence numbers.
#[derive(Debug, Default)]
pub(crate) struct SequenceCounts {
    /// Sequence number of the next frame.
    next: u64,
    pub(crate) received: u64,
    lost: u64,
    pub(crate) torn: u64,
    pub(crate) repeated: u64,
}

impl SequenceCounts {
    /// Starts to count frames from a sequence number.
    pub(crate) fn starting(next: u64) -> Self {
        Self { next, ..Self::default() }
    }

    /// Counts a frame that is not checked.
    #[inline(always)]
    fn add_unchecked(&mut self) {
        self.received += 1;
        self.next += 1;
    }

    /// Counts a frame by its header.
    #[inline(always)]
    pub(crate) fn add(&mut self, header: &Header, whole: bool) {
        self.received += 1;
        if !whole {
            // A torn header's sequence number is unreliable: count it as the expected frame.
            self.torn += 1;
            self.next += 1;
        } else if header.sequence >= self.next {
            self.lost += header.sequence - self.next;
            self.next = header.sequence + 1;
        } else {
            self.repeated += 1;
        }
    }

    /// Returns the number of lost frames, including those that are missing before the sequence number `end`.
    pub(crate) fn lost_before(&self, end: u64) -> u64 {
        self.lost + end.saturating_sub(self.next)
    }
}

/// Counts of the reader.
#[derive(Debug, Default)]
pub(super) struct FrameCounts {
    frames: SequenceCounts,
    records: usize,
    backwards: bool,
}

impl FrameCounts {
    /// Counts the missing frames at the end, and publishes the results.
    pub(super) fn publish(self, shared: &SharedFrames, sent: u64) {
        let found = &shared.control().found;
        found.received.store(self.frames.received, Relaxed);
        found.lost.store(self.frames.lost_before(sent), Relaxed);
        found.torn.store(self.frames.torn, Relaxed);
        found.repeated.store(self.frames.repeated, Relaxed);
        found.records.store(self.records as u64, Relaxed);
        found.backwards.store(u32::from(self.backwards), Relaxed);
    }

    #[inline(always)]
    fn record(&mut self, shared: &SharedFrames, ticks: u64) {
        if self.records < RECORDS {
            shared.records()[self.records].store(ticks, Relaxed);
            self.records += 1;
        }
    }
}

/// The reader of one transfer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a> {
    pub(super) shared: &'a SharedFrames,
    pub(super) params: &'a TransferParams,
    pub(super) expected: Expected,
    pub(super) deadline: u64,
}

impl Reader<'_> {
    /// Reads and checks frame `index` of the transfer, and returns its timestamp.
    #[inline(always)]
    pub(super) fn take(&self, index: u64, counts: &mut FrameCounts) -> u64 {
        if self.params.check == Check::None {
            counts.frames.add_unchecked();
            return 0;
        }
        let slot = self.shared.slots().wrapping_add(self.params.slot(index));
        // SAFETY: the slot is in the mapping and aligned. The writer has published it and does not
        // access it until the reader frees it.
        let (header, whole) = unsafe { self.expected.read(slot, self.params.check) };
        counts.frames.add(&header, whole);
        header.stamp
    }

    /// Takes frames until the writer sends no more; false if the deadline passes first.
    pub(super) fn run(&self) -> bool {
        let mut counts = FrameCounts::default();
        let done = match self.params.usage {
            TimingMode::Throughput => self.stream(&mut counts),
            TimingMode::Latency => self.one_by_one(&mut counts),
        };
        let sent = self.shared.control().last.get();
        counts.publish(self.shared, if done { sent } else { 0 });
        done
    }

    /// Waits for a frame beyond `tail`. Returns the number published, or `None` after the last one.
    #[inline(always)]
    fn arrived(&self, tail: u64) -> Option<u64> {
        let control = self.shared.control();
        let mut head = control.head.get();
        let has_changed = spin(self.deadline, || {
            head = control.head.get();
            head != tail || control.last.get() == tail
        });
        (has_changed && head != tail).then_some(head)
    }

    /// Takes frames as they arrive, and records the time of each chunk.
    fn stream(&self, counts: &mut FrameCounts) -> bool {
        let control = self.shared.control();
        let (batch, chunk) = (self.params.batch(), self.params.chunk());
        let (mut tail, mut freed, mut mark) = (0, 0, chunk);
        let mut start = 0;
        while let Some(head) = self.arrived(tail) {
            while tail < head {
                self.take(tail, counts);
                tail += 1;
                if tail - freed >= batch || tail == head {
                    control.tail.set(tail);
                    freed = tail;
                }
                if tail == mark {
                    let now = tsc::start();
                    if start != 0 && tail > self.params.warm_up() {
                        counts.record(self.shared, now - start);
                    }
                    (start, mark) = (now, mark + chunk);
                }
            }
        }
        control.last.get() != UNKNOWN && tail == control.last.get()
    }

    /// Takes one frame at a time, and records the time since the writer's timestamp.
    fn one_by_one(&self, counts: &mut FrameCounts) -> bool {
        let control = self.shared.control();
        let mut tail = 0;
        while self.arrived(tail).is_some() {
            let stamp = self.take(tail, counts);
            let now = tsc::stop();
            tail += 1;
            control.tail.set(tail);
            if tail > self.params.warm_up() && stamp != 0 {
                counts.backwards |= now < stamp;
                counts.record(self.shared, now.saturating_sub(stamp));
            }
        }
        control.last.get() != UNKNOWN && tail == control.last.get()
    }
}
