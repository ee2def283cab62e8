//! The writing host: copies frames into the ring.

use machine::tsc;

use super::frame::{Prepared, Source};
use super::pool::{Pool, RECORDS, spin};
use super::{Setup, Use};
use crate::functions::CopyFn;

/// Chunks that are timed at the least.
const LEAST: u64 = 6;

/// What may go wrong on the way; a test plants its faults here.
pub trait Line {
    /// The sequence number that the frame of a place gets. Those of two places in a row must not
    /// differ by a multiple of three, for their frames would be the same memory.
    #[inline(always)]
    fn sequence(&mut self, place: u64) -> u64 {
        place
    }

    /// A look at the frame of a place in its slot, before it is published.
    ///
    /// # Safety
    /// `frame` points to the frame's bytes, which nobody else reads or writes meanwhile.
    #[inline(always)]
    unsafe fn pass(&mut self, place: u64, frame: *mut u8) {
        let _ = (place, frame);
    }
}

/// The line on which nothing goes wrong.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faithful;

impl Line for Faithful {}

/// The writer's side of one transfer.
#[derive(Debug)]
pub(super) struct Writer<'a, L> {
    pub(super) pool: &'a Pool,
    pub(super) setup: &'a Setup,
    pub(super) source: &'a Source,
    pub(super) copy: CopyFn,
    pub(super) line: &'a mut L,
    pub(super) deadline: u64,
}

impl<L: Line> Writer<'_, L> {
    /// Prepares the frame of a place, which is apart from that of the place before.
    #[inline(always)]
    pub(super) fn prepare(&mut self, place: u64) -> Prepared {
        self.source.prepare(self.line.sequence(place))
    }

    /// Puts the frame of a place into its slot.
    #[inline(always)]
    pub(super) fn put(&mut self, place: u64, frame: Prepared) {
        let slot = self.pool.slots().wrapping_add(self.setup.slot(place));
        // SAFETY: slot and frame have the length and lie in different mappings; the reader is done
        // with the slot.
        unsafe {
            (self.copy)(slot, frame.start(), self.setup.length);
            self.line.pass(place, slot);
        }
    }

    /// Sends frames for so many ticks; how many it sent, or none where the deadline passes first. With
    /// one frame in flight, `trips` takes the ticks from each to the next.
    pub(super) fn run(&mut self, ticks: u64, trips: &mut Vec<u64>) -> Option<u64> {
        let sent = match self.setup.usage {
            Use::Throughput => self.stream(ticks),
            Use::Latency => self.one_by_one(ticks, trips),
        }?;
        self.pool.control().last.set(sent);
        Some(sent)
    }

    /// Sends as fast as slots come free, publishing by batches; whole chunks, enough for a median.
    fn stream(&mut self, ticks: u64) -> Option<u64> {
        let control = self.pool.control();
        let (batch, chunk, slots) =
            (self.setup.batch(), self.setup.chunk(), self.setup.slots as u64);
        let least = self.setup.warm_up().next_multiple_of(chunk) + LEAST * chunk;
        let most = least + chunk * RECORDS as u64;
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
            if head >= most || (head >= least && head % chunk == 0 && tsc::start() > end) {
                return Some(head);
            }
        }
    }

    /// Sends a frame, and the next once the reader has done with it.
    fn one_by_one(&mut self, ticks: u64, trips: &mut Vec<u64>) -> Option<u64> {
        let control = self.pool.control();
        let most = self.setup.warm_up() + RECORDS as u64;
        let mut head = 0;
        let mut frame = self.prepare(head);
        let mut last = tsc::start();
        let end = last + ticks;
        trips.reserve(RECORDS);
        loop {
            let stamp = tsc::start();
            if head > self.setup.warm_up() {
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
            if head >= most || (stamp > end && head >= self.setup.warm_up() + 64) {
                return Some(head);
            }
        }
    }
}
