//! The reading host: takes frames from the ring, checks them, and says what it found.
//!
//! It runs in a forked child of a process that may have threads, so it only touches memory made
//! before and makes system calls.

use std::sync::atomic::Ordering::Relaxed;

use machine::tsc;

use super::frame::{Check, Expected, Header};
use super::pool::{Pool, RECORDS, UNKNOWN, spin};
use super::{Setup, Use};

/// What the reader has seen so far.
#[derive(Debug, Default)]
pub(super) struct Tally {
    next: u64,
    received: u64,
    lost: u64,
    torn: u64,
    repeated: u64,
    records: usize,
    backwards: bool,
}

impl Tally {
    /// Takes a frame's own account of itself.
    #[inline(always)]
    fn frame(&mut self, header: &Header, whole: bool) {
        self.received += 1;
        if !whole {
            // Its sequence may be what was damaged: it is taken for the frame that was due.
            self.torn += 1;
            self.next += 1;
        } else if header.sequence >= self.next {
            self.lost += header.sequence - self.next;
            self.next = header.sequence + 1;
        } else {
            self.repeated += 1;
        }
    }

    /// Counts what should still have come, and tells all.
    pub(super) fn tell(mut self, pool: &Pool, sent: u64) {
        self.lost += sent.saturating_sub(self.next);
        let found = &pool.control().found;
        found.received.store(self.received, Relaxed);
        found.lost.store(self.lost, Relaxed);
        found.torn.store(self.torn, Relaxed);
        found.repeated.store(self.repeated, Relaxed);
        found.records.store(self.records as u64, Relaxed);
        found.backwards.store(u32::from(self.backwards), Relaxed);
    }

    #[inline(always)]
    fn record(&mut self, pool: &Pool, ticks: u64) {
        if self.records < RECORDS {
            pool.records()[self.records].store(ticks, Relaxed);
            self.records += 1;
        }
    }
}

/// The reader's side of one transfer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a> {
    pub(super) pool: &'a Pool,
    pub(super) setup: &'a Setup,
    pub(super) expected: Expected,
    pub(super) deadline: u64,
}

impl Reader<'_> {
    /// Reads and checks the frame of one place in the sequence of slots.
    #[inline(always)]
    pub(super) fn take(&self, place: u64, tally: &mut Tally) -> u64 {
        if self.setup.check == Check::None {
            tally.received += 1;
            tally.next += 1;
            return 0;
        }
        let slot = self.pool.slots().wrapping_add(self.setup.slot(place));
        // SAFETY: the slot lies in the pool and is aligned. The writer has published it and leaves
        // it alone until the reader says that it is done.
        let (header, whole) = unsafe { self.expected.read(slot, self.setup.check) };
        tally.frame(&header, whole);
        header.stamp
    }

    /// Takes frames until the writer has no more; false where the deadline passes first.
    pub(super) fn run(&self) -> bool {
        let mut tally = Tally::default();
        let ended = match self.setup.usage {
            Use::Throughput => self.stream(&mut tally),
            Use::Latency => self.one_by_one(&mut tally),
        };
        let sent = self.pool.control().last.get();
        tally.tell(self.pool, if ended { sent } else { 0 });
        ended
    }

    /// Waits for a frame beyond `tail`; how many there are then, or none once all have come.
    #[inline(always)]
    fn arrived(&self, tail: u64) -> Option<u64> {
        let control = self.pool.control();
        let mut head = control.head.get();
        let came = spin(self.deadline, || {
            head = control.head.get();
            head != tail || control.last.get() == tail
        });
        (came && head != tail).then_some(head)
    }

    /// Takes frames as they come, and records how long each chunk of them took.
    fn stream(&self, tally: &mut Tally) -> bool {
        let control = self.pool.control();
        let (batch, chunk) = (self.setup.batch(), self.setup.chunk());
        let (mut tail, mut told, mut mark) = (0, 0, chunk);
        let mut begun = 0;
        while let Some(head) = self.arrived(tail) {
            while tail < head {
                self.take(tail, tally);
                tail += 1;
                if tail - told >= batch || tail == head {
                    control.tail.set(tail);
                    told = tail;
                }
                if tail == mark {
                    let now = tsc::start();
                    if begun != 0 && tail > self.setup.warm_up() {
                        tally.record(self.pool, now - begun);
                    }
                    (begun, mark) = (now, mark + chunk);
                }
            }
        }
        control.last.get() != UNKNOWN && tail == control.last.get()
    }

    /// Takes one frame at a time, and records how long ago its writer began to send it.
    fn one_by_one(&self, tally: &mut Tally) -> bool {
        let control = self.pool.control();
        let mut tail = 0;
        while self.arrived(tail).is_some() {
            let stamp = self.take(tail, tally);
            let now = tsc::stop();
            tail += 1;
            control.tail.set(tail);
            if tail > self.setup.warm_up() && stamp != 0 {
                tally.backwards |= now < stamp;
                tally.record(self.pool, now.saturating_sub(stamp));
            }
        }
        control.last.get() != UNKNOWN && tail == control.last.get()
    }
}
