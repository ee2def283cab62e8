//! What comes back is counted, put in order, and compared with what was sent.

use super::times::Times;
use super::trial::{Flows, Report, Trial};
use crate::nic::layout::FLIT;
use crate::wire::packet::Walk;
use crate::wire::traffic::Traffic;
use crate::wire::{Left, Span};

/// The byte of each packet to which the echo adds 1: the last of the shortest frame.
pub const TOUCHED: usize = 59;
/// Where the word lies that holds it.
const WORD: usize = 52;
/// What adding 1 to the byte adds to the word.
const TOUCH: u64 = 1 << 56;
/// Bytes at the front of a packet that say which it is.
const MARKED: usize = 12;

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

/// The ways to check, as the loops know them: each does what those before it do.
const NONE: u8 = Check::None as u8;
const ONE_WORD: u8 = Check::OneWord as u8;
const ALL: u8 = Check::All as u8;

/// What is known of a packet before it comes back.
#[derive(Debug, Clone, Copy)]
struct Expected {
    word: u64,
    flow: u32,
    length: u32,
    source: *const u8,
}

/// What was seen of packets that came back together.
#[derive(Default)]
struct Seen {
    packets: u64,
    bytes: u64,
    corrupted: u64,
    late: u64,
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
    walk: Walk,
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

    /// Makes ready for a trial: what takes long.
    pub(super) fn prepare(&mut self, trial: &Trial) {
        self.check = trial.check;
        self.touch = if trial.touched { TOUCH } else { 0 };
        self.times = trial.times.then(Times::new).flatten();
    }

    /// Begins the trial: nothing has come yet.
    pub(super) fn begin(&mut self) {
        self.sequences.fill(0);
        (self.received, self.bytes, self.corrupted, self.late) = (0, 0, 0, 0);
        if let Some(times) = &mut self.times {
            times.begin();
        }
    }

    #[inline(always)]
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// Takes packets that come back together; each way of looking at them has a loop of its own.
    ///
    /// # Safety
    /// As for [`Wire::leave`](crate::wire::Wire::leave).
    #[inline(always)]
    pub(super) unsafe fn take(&mut self, start: *const u8, bytes: usize) -> Left {
        // SAFETY: by the caller's word.
        unsafe {
            match (self.check, self.times.is_some()) {
                (Check::None, false) => self.look::<NONE, false>(start, bytes),
                (Check::OneWord, false) => self.look::<ONE_WORD, false>(start, bytes),
                (Check::All, false) => self.look::<ALL, false>(start, bytes),
                (Check::None, true) => self.look::<NONE, true>(start, bytes),
                (Check::OneWord, true) => self.look::<ONE_WORD, true>(start, bytes),
                (Check::All, true) => self.look::<ALL, true>(start, bytes),
            }
        }
    }

    /// The same for packets that lie apart.
    ///
    /// # Safety
    /// As for [`Wire::leave_apart`](crate::wire::Wire::leave_apart).
    #[inline(always)]
    pub(super) unsafe fn take_apart(&mut self, packets: &[Span]) {
        // SAFETY: by the caller's word.
        unsafe {
            match (self.check, self.times.is_some()) {
                (Check::None, false) => self.look_apart::<NONE, false>(packets),
                (Check::OneWord, false) => self.look_apart::<ONE_WORD, false>(packets),
                (Check::All, false) => self.look_apart::<ALL, false>(packets),
                (Check::None, true) => self.look_apart::<NONE, true>(packets),
                (Check::OneWord, true) => self.look_apart::<ONE_WORD, true>(packets),
                (Check::All, true) => self.look_apart::<ALL, true>(packets),
            }
        }
    }

    #[inline(always)]
    unsafe fn look<const CHECK: u8, const TIMED: bool>(
        &mut self,
        start: *const u8,
        all: usize,
    ) -> Left {
        let (mut at, mut walk) = (0, self.walk);
        let mut look = self.begin_look();
        while at < all {
            let packet = start.wrapping_add(at);
            // SAFETY: a whole flit, by the caller's word.
            let (length, step) = unsafe { walk.step(packet) };
            if at + step > all {
                std::hint::cold_path();
                break;
            }
            at += step;
            // SAFETY: all of its flits are here.
            unsafe { look.at::<CHECK, TIMED>(packet, length) };
        }
        let seen = look.seen;
        self.walk = walk;
        self.count(&seen);
        Left { packets: seen.packets, bytes: at }
    }

    #[inline(always)]
    unsafe fn look_apart<const CHECK: u8, const TIMED: bool>(&mut self, packets: &[Span]) {
        let mut look = self.begin_look();
        for packet in packets {
            // SAFETY: by the caller's word.
            unsafe { look.at::<CHECK, TIMED>(packet.start, packet.bytes as usize) };
        }
        let seen = look.seen;
        self.count(&seen);
    }

    #[inline(always)]
    fn begin_look(&mut self) -> Look<'_> {
        Look {
            expected: &self.expected,
            sequences: &mut self.sequences,
            touch: self.touch,
            times: self.times.as_mut(),
            seen: Seen::default(),
        }
    }

    #[inline(always)]
    fn count(&mut self, seen: &Seen) {
        self.received += seen.packets;
        self.bytes += seen.bytes;
        self.corrupted += seen.corrupted;
        self.late += seen.late;
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

/// A look at packets that come back together: what a loop keeps in registers.
struct Look<'a> {
    expected: &'a [Expected],
    sequences: &'a mut [u32],
    touch: u64,
    times: Option<&'a mut Times>,
    seen: Seen,
}

impl Look<'_> {
    /// Looks at one packet.
    ///
    /// # Safety
    /// It has so many bytes, as many as a frame may have.
    #[inline(always)]
    unsafe fn at<const CHECK: u8, const TIMED: bool>(&mut self, packet: *const u8, length: usize) {
        let seen = &mut self.seen;
        // SAFETY: the words lie in the shortest frame.
        let (mark, stamp, word) = unsafe {
            (
                packet.cast::<u64>().read_unaligned(),
                packet.add(8).cast::<u32>().read_unaligned(),
                packet.add(WORD).cast::<u64>().read_unaligned(),
            )
        };
        seen.packets += 1;
        seen.bytes += length as u64;
        let Some(expected) = self.expected.get((mark >> 32) as usize) else {
            std::hint::cold_path();
            seen.corrupted += 1;
            return;
        };
        // SAFETY: `Checked::new` made as many sequences as there are flows.
        let sequence = unsafe { self.sequences.get_unchecked_mut(expected.flow as usize) };
        if (mark as u32).wrapping_sub(*sequence) < 1 << 31 {
            // Those between, where there are any, are lost, or late.
            *sequence = (mark as u32).wrapping_add(1);
        } else {
            std::hint::cold_path();
            seen.late += 1;
        }
        let mut sound = true;
        if CHECK >= ONE_WORD {
            sound = word == expected.word.wrapping_add(self.touch)
                && length == expected.length as usize;
        }
        if CHECK >= ALL {
            // SAFETY: the packet has so many bytes, and where the lengths agree the template has as many;
            // the traffic that it lies in is held by the generator.
            sound = sound && unsafe { same(packet, expected.source, length) };
        }
        if !sound {
            std::hint::cold_path();
            seen.corrupted += 1;
        }
        if TIMED && let Some(times) = &mut self.times {
            times.take(stamp);
        }
    }
}

/// Whether all but the mark and the touched word is the same.
///
/// # Safety
/// Both have so many bytes, 60 at least.
unsafe fn same(packet: *const u8, source: *const u8, length: usize) -> bool {
    // SAFETY: by the caller's word.
    let (packet, source) = unsafe {
        (std::slice::from_raw_parts(packet, length), std::slice::from_raw_parts(source, length))
    };
    packet[MARKED..WORD] == source[MARKED..WORD] && packet[TOUCHED + 1..] == source[TOUCHED + 1..]
}

const _: () = assert!(TOUCHED < FLIT && WORD + 8 == TOUCHED + 1);
