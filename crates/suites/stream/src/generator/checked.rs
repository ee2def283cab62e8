//! What comes back is counted, put in order, and compared with what was sent.

use hdrhistogram::Histogram;

use super::trial::{Flows, Report, Trial};
use crate::nic::layout::FLIT;
use crate::nic::ticks;
use crate::wire::Leaving;
use crate::wire::traffic::Traffic;

/// The byte of each packet to which the echo adds 1: the last of the shortest frame.
pub const TOUCHED: usize = 59;
/// Where the word lies that holds it.
const WORD: usize = 52;
/// What adding 1 to the byte adds to the word.
const TOUCH: u64 = 1 << 56;
/// Bytes at the front of a packet that say which it is.
const MARKED: usize = 12;
/// Packets sent together for which the time is read once when they come back.
const TIMED_TOGETHER: u64 = 16;
/// The longest round trip that is told from longer ones, ticks.
const LONGEST: u64 = u32::MAX as u64;

/// What of each packet that comes back is compared with what was sent. Which packet it is, and so count
/// and order, is always looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Check {
    /// Nothing more.
    None,
    /// The word that holds the byte that the application changes, and the length.
    #[default]
    OneWord,
    /// Every byte.
    All,
}

/// What is known of a packet before it comes back.
#[derive(Debug, Clone, Copy)]
struct Expected {
    word: u64,
    flow: u32,
    length: u32,
    source: *const u8,
}

/// What came back.
#[derive(Default)]
pub(super) struct Checked {
    expected: Vec<Expected>,
    /// The sequence number with which each flow goes on.
    sequences: Vec<u32>,
    check: Check,
    touch: u64,
    received: u64,
    bytes: u64,
    corrupted: u64,
    late: u64,
    times: Option<Times>,
}

impl Checked {
    pub(super) fn new(traffic: &Traffic, flows: &Flows) -> Self {
        let word = |index| {
            let bytes = &traffic.bytes(index)[WORD..WORD + 8];
            bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
        };
        let expected = (0..traffic.len()).map(|index| Expected {
            word: word(index),
            flow: flows.of_packet[index],
            length: u32::from(traffic.packets()[index].length),
            source: traffic.lines(index).as_ptr().cast(),
        });
        Self { expected: expected.collect(), sequences: vec![0; flows.count], ..Self::default() }
    }

    pub(super) fn begin(&mut self, trial: &Trial) {
        self.sequences.fill(0);
        self.check = trial.check;
        self.touch = if trial.touched { TOUCH } else { 0 };
        (self.received, self.bytes, self.corrupted, self.late) = (0, 0, 0, 0);
        self.times = trial.times.then(Times::new).flatten();
    }

    #[inline(always)]
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// Takes packets that come back together.
    #[inline(always)]
    pub(super) fn leaving(&mut self) -> Leavers<'_> {
        Leavers { received: 0, bytes: 0, corrupted: 0, late: 0, checked: self }
    }

    pub(super) fn report(&mut self) -> Report {
        Report {
            received: self.received,
            corrupted: self.corrupted,
            late: self.late,
            bytes: self.bytes,
            times: self.times.take().map(Times::end),
            ..Report::default()
        }
    }
}

/// Packets that come back together.
pub struct Leavers<'a> {
    received: u64,
    bytes: u64,
    corrupted: u64,
    late: u64,
    checked: &'a mut Checked,
}

impl Leaving for Leavers<'_> {
    #[inline(always)]
    unsafe fn leave(&mut self, packet: *const u8, length: usize) {
        // SAFETY: all of these lie in the first flit.
        let (mark, stamp, word) = unsafe {
            (
                packet.cast::<u64>().read(),
                packet.add(8).cast::<u32>().read(),
                packet.add(WORD).cast::<u64>().read_unaligned(),
            )
        };
        self.received += 1;
        self.bytes += length as u64;
        let checked = &mut *self.checked;
        let Some(expected) = checked.expected.get((mark >> 32) as usize) else {
            self.corrupted += 1;
            return;
        };
        let sequence = &mut checked.sequences[expected.flow as usize];
        let ahead = (mark as u32).wrapping_sub(*sequence);
        if ahead < 1 << 31 {
            // Those between, where there are any, are lost, or late.
            *sequence = (mark as u32).wrapping_add(1);
        } else {
            self.late += 1;
        }
        let sound = checked.check == Check::None
            || (word == expected.word.wrapping_add(checked.touch)
                && length == expected.length as usize
                // SAFETY: the packet has so many bytes by the caller's word; the template has as many,
                // and the traffic that it lies in is held by the generator.
                && (checked.check == Check::OneWord
                    || unsafe { same(packet, expected.source, length) }));
        if !sound {
            self.corrupted += 1;
        }
        if let Some(times) = &mut checked.times {
            times.take(stamp);
        }
    }

    #[inline(always)]
    fn finish(self) {
        let Self { received, bytes, corrupted, late, checked } = self;
        checked.received += received;
        checked.bytes += bytes;
        checked.corrupted += corrupted;
        checked.late += late;
    }
}

/// Whether all but the mark and the touched word is the same.
///
/// # Safety
/// Both have so many bytes, 60 at least, and lie at whole flits, zero after their ends.
unsafe fn same(packet: *const u8, source: *const u8, length: usize) -> bool {
    // SAFETY: by the caller's word.
    let (packet, source) = unsafe {
        (std::slice::from_raw_parts(packet, length), std::slice::from_raw_parts(source, length))
    };
    packet[MARKED..WORD] == source[MARKED..WORD] && packet[TOUCHED + 1..] == source[TOUCHED + 1..]
}

/// Round-trip times. Packets that were sent together come back together: for each lot the time is read
/// once.
struct Times {
    histogram: Histogram<u64>,
    stamp: u32,
    taken: u64,
    trip: u64,
}

impl Times {
    fn new() -> Option<Self> {
        let histogram = Histogram::new_with_bounds(1, LONGEST, 3).ok()?;
        Some(Self { histogram, stamp: 0, taken: 0, trip: 0 })
    }

    #[inline(always)]
    fn take(&mut self, stamp: u32) {
        if stamp != self.stamp || self.taken == TIMED_TOGETHER || self.taken == 0 {
            self.write();
            self.stamp = stamp;
            self.trip = u64::from((ticks() as u32).wrapping_sub(stamp));
        }
        self.taken += 1;
    }

    fn write(&mut self) {
        if self.taken > 0 {
            self.histogram.saturating_record_n(self.trip.max(1), self.taken);
        }
        self.taken = 0;
    }

    fn end(mut self) -> Histogram<u64> {
        self.write();
        self.histogram
    }
}

const _: () = assert!(TOUCHED < FLIT && WORD + 8 == TOUCHED + 1);
