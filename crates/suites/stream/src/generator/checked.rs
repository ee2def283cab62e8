//! What comes back is counted, put in order, and compared with what was sent.

use super::packet_checker::{
    ALL, Check, CheckCounts, Expected, NONE, ONE_WORD, PacketChecker, TOUCH, WORD,
};
use super::times::Times;
use super::trial::{Flows, Report, Trial};
use crate::nic::layout::FLIT;
use crate::wire::packet::{self, Walk};
use crate::wire::traffic::Traffic;
use crate::wire::{PacketRef, TxCount};

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
        let mut expected: Vec<_> = (0..traffic.len())
            .map(|index| {
                let source: *const u8 = traffic.lines(index).as_ptr().cast();
                let length = traffic.packets()[index].length;
                Expected {
                    word: word(index),
                    source,
                    flow: flows.of_packet[index],
                    next: 0,
                    length,
                    // SAFETY: each packet in the traffic has a whole flit at least.
                    total_length: unsafe { packet::total_length(source) },
                    step: (packet::flits(usize::from(length)) * FLIT) as u16,
                }
            })
            .collect();
        // Backwards, so that each finds the one behind it; the last of a flow, the first.
        let mut following = vec![0; flows.count];
        for index in (0..expected.len()).rev().chain((0..expected.len()).rev()) {
            let known = &mut following[expected[index].flow as usize];
            expected[index].next = std::mem::replace(known, index as u32);
        }
        Self { expected, sequences: vec![0; flows.count], ..Self::default() }
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

    pub(super) fn corrupted(&self) -> u64 {
        self.corrupted
    }

    /// Takes packets that come back together; each way of looking at them has a loop of its own.
    ///
    /// # Safety
    /// As for [`Wire::leave`](crate::wire::Wire::leave).
    #[inline(always)]
    pub(super) unsafe fn take(&mut self, start: *const u8, bytes: usize) -> TxCount {
        // SAFETY: by the caller's word.
        unsafe {
            match (self.check, self.times.is_some()) {
                (Check::None, false) => self.check_packets::<NONE, false>(start, bytes),
                (Check::OneWord, false) => self.check_packets::<ONE_WORD, false>(start, bytes),
                (Check::All, false) => self.check_packets::<ALL, false>(start, bytes),
                (Check::None, true) => self.check_packets::<NONE, true>(start, bytes),
                (Check::OneWord, true) => self.check_packets::<ONE_WORD, true>(start, bytes),
                (Check::All, true) => self.check_packets::<ALL, true>(start, bytes),
            }
        }
    }

    /// The same for packets that lie apart.
    ///
    /// # Safety
    /// As for [`Wire::on_transmit_scattered`](crate::wire::Wire::leave_apart).
    #[inline(always)]
    pub(super) unsafe fn take_scattered(&mut self, packets: &[PacketRef]) {
        // SAFETY: by the caller's word.
        unsafe {
            match (self.check, self.times.is_some()) {
                (Check::None, false) => self.check_scattered::<NONE, false>(packets),
                (Check::OneWord, false) => self.check_scattered::<ONE_WORD, false>(packets),
                (Check::All, false) => self.check_scattered::<ALL, false>(packets),
                (Check::None, true) => self.check_scattered::<NONE, true>(packets),
                (Check::OneWord, true) => self.check_scattered::<ONE_WORD, true>(packets),
                (Check::All, true) => self.check_scattered::<ALL, true>(packets),
            }
        }
    }

    #[inline(always)]
    unsafe fn check_packets<const CHECK: u8, const TIMED: bool>(
        &mut self,
        start: *const u8,
        all: usize,
    ) -> TxCount {
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
            // SAFETY: all of its flits are here, and whole flits follow.
            unsafe {
                let next = look.any::<CHECK, TIMED>(packet, length);
                at += look.following::<CHECK, TIMED>(start.wrapping_add(at), all - at, next);
            }
        }
        let seen = look.seen;
        self.walk = walk;
        self.count(&seen);
        TxCount { packets: seen.packets, bytes: at }
    }

    #[inline(always)]
    unsafe fn check_scattered<const CHECK: u8, const TIMED: bool>(
        &mut self,
        mut packets: &[PacketRef],
    ) {
        let mut look = self.begin_look();
        while let [packet, rest @ ..] = packets {
            // SAFETY: by the caller's word.
            unsafe {
                let next = look.any::<CHECK, TIMED>(packet.start, packet.bytes as usize);
                packets = look.following_scattered::<CHECK, TIMED>(rest, next);
            }
        }
        let seen = look.seen;
        self.count(&seen);
    }

    #[inline(always)]
    fn begin_look(&mut self) -> PacketChecker<'_> {
        PacketChecker {
            expected: &self.expected,
            sequences: &mut self.sequences,
            touch: self.touch,
            times: self.times.as_mut(),
            seen: CheckCounts::default(),
        }
    }

    #[inline(always)]
    fn count(&mut self, seen: &CheckCounts) {
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
