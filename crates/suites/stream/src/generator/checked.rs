//! Counting and verification of returned packets.

use super::burst::Position;
use super::packet_checker::{
    ALL, Check, CheckCounts, Expectation, Expected, NONE, ONE_WORD, PacketChecker, TOUCH, WORD,
};
use super::times::{Numbering, Times};
use super::trial::{CounterSnapshot, Report, Sequences, Trial};
use crate::nic::layout::FLIT;
use crate::wire::mark::{ADDRESSES, MarkPosition, PAYLOAD};
use crate::wire::packet::{self, Walk};
use crate::wire::traffic::{Traffic, WIRE_OVERHEAD, WORD_BYTES};
use crate::wire::{PacketRef, TxCount};

/// Returns the size on the wire of packets with `bytes` bytes together.
fn on_wire(bytes: u64, packets: u64) -> u64 {
    bytes + packets * u64::from(WIRE_OVERHEAD)
}

/// Verification state of a trial.
#[derive(Default)]
pub(super) struct Checked {
    expected: Vec<Expected>,
    /// The trial's expectation to which the contents of `expected` belong.
    expectation: Option<Expectation>,
    marks: MarkPosition,
    /// Offset of the word of each packet that is compared.
    word: usize,
    /// Next expected number of each sequence.
    sequences: Vec<u32>,
    check: Check,
    received: u64,
    bytes: u64,
    corrupted: u64,
    late: u64,
    missing: u64,
    times: Option<Times>,
    walk: Walk,
}

impl Checked {
    pub(super) fn new(traffic: &Traffic, sequences: &Sequences) -> Self {
        let mut expected: Vec<_> = (0..traffic.len())
            .map(|index| {
                let image = traffic.bytes(index).as_ptr();
                let length = traffic.packets()[index].length;
                Expected {
                    word: 0,
                    image,
                    sequence: sequences.of_packet[index],
                    next: 0,
                    length,
                    // SAFETY: each packet in the traffic has at least one flit.
                    total_length: unsafe { packet::total_length(image) },
                    step: (packet::flits(usize::from(length)) * FLIT) as u16,
                }
            })
            .collect();
        // Backwards, so that each packet finds its successor in the sequence; the last one's successor is the first.
        let mut following = vec![0; sequences.count];
        for index in (0..expected.len()).rev().chain((0..expected.len()).rev()) {
            let known = &mut following[expected[index].sequence as usize];
            expected[index].next = std::mem::replace(known, index as u32);
        }
        let sequences = vec![0; sequences.count];
        Self { expected, marks: traffic.marks(), word: WORD, sequences, ..Self::default() }
    }

    /// Prepares a trial: does what takes long. `numbering` is that of the packets of the traffic.
    pub(super) fn prepare(
        &mut self,
        trial: &Trial,
        traffic: &Traffic,
        numbering: impl Iterator<Item = Numbering>,
    ) {
        self.check = trial.check;
        self.expect(trial.expectation, traffic);
        self.times = trial.times.then(|| Times::new(numbering.collect())).flatten();
    }

    /// Sets the expected contents of all packets.
    fn expect(&mut self, expectation: Expectation, traffic: &Traffic) {
        if self.expectation.replace(expectation) == Some(expectation) {
            return;
        }
        let (has_images, touch) = match expectation {
            Expectation::Same => (false, 0),
            Expectation::Byte => (false, TOUCH),
            Expectation::Images | Expectation::Answers => (true, 0),
            // Returned packets are not compared.
            Expectation::Nothing => return,
        };
        self.word = traffic.word().filter(|_| has_images).unwrap_or(WORD);
        for (index, expected) in self.expected.iter_mut().enumerate() {
            let image = if has_images { traffic.expected(index) } else { traffic.bytes(index) };
            let word = &image[self.word..][..WORD_BYTES];
            let word = word.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
            (expected.image, expected.word) = (image.as_ptr(), word.wrapping_add(touch));
        }
    }

    /// Resets all counts when the trial starts, at a time in ticks.
    pub(super) fn begin(&mut self, now: u64) {
        self.sequences.fill(0);
        (self.received, self.bytes, self.corrupted) = (0, 0, 0);
        (self.late, self.missing) = (0, 0);
        if let Some(times) = &mut self.times {
            times.begin(now);
        }
    }

    /// Ends an iteration at a position in the traffic, up to which packets were sent.
    #[inline(always)]
    pub(super) fn end_iteration(&mut self, now: u64, position: Position) {
        if let Some(times) = &mut self.times {
            times.advance(now, position);
        }
    }

    #[inline(always)]
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// Returns the progress on the received side.
    pub(super) fn snapshot(&self) -> CounterSnapshot {
        let (timed, ticks) = self.times.as_ref().map_or((0, 0), Times::total);
        CounterSnapshot {
            received: self.received,
            received_bytes: on_wire(self.bytes, self.received),
            corrupted: self.corrupted,
            late: self.late,
            timed,
            ticks,
            ..CounterSnapshot::default()
        }
    }

    /// Verifies contiguous packets.
    ///
    /// # Safety
    /// The requirements of [`Wire::on_transmit`](crate::wire::Wire::on_transmit) apply.
    #[inline(always)]
    pub(super) unsafe fn take(&mut self, start: *const u8, bytes: usize) -> TxCount {
        // SAFETY: the caller guarantees the same.
        unsafe {
            match self.marks {
                MarkPosition::Payload => self.take_marked::<PAYLOAD>(start, bytes),
                MarkPosition::Addresses => self.take_marked::<ADDRESSES>(start, bytes),
            }
        }
    }

    /// Verifies contiguous packets, by a specialised loop for each kind of check. The loops are separate functions,
    /// because the NIC calls them from several places.
    ///
    /// # Safety
    /// The requirements of [`Wire::on_transmit`](crate::wire::Wire::on_transmit) apply.
    #[inline(always)]
    unsafe fn take_marked<const AT: usize>(&mut self, start: *const u8, bytes: usize) -> TxCount {
        // SAFETY: the caller guarantees the same.
        unsafe {
            match (self.check, self.times.is_some()) {
                (Check::None, false) => self.check_packets::<NONE, false, AT>(start, bytes),
                (Check::OneWord, false) => self.check_packets::<ONE_WORD, false, AT>(start, bytes),
                (Check::All, false) => self.check_packets::<ALL, false, AT>(start, bytes),
                (Check::None, true) => self.check_packets::<NONE, true, AT>(start, bytes),
                (Check::OneWord, true) => self.check_packets::<ONE_WORD, true, AT>(start, bytes),
                (Check::All, true) => self.check_packets::<ALL, true, AT>(start, bytes),
            }
        }
    }

    /// Verifies scattered packets.
    ///
    /// # Safety
    /// The requirements of [`Wire::on_transmit_scattered`](crate::wire::Wire::on_transmit_scattered) apply.
    #[inline(always)]
    pub(super) unsafe fn take_scattered(&mut self, packets: &[PacketRef]) {
        // SAFETY: the caller guarantees the same.
        unsafe {
            match self.marks {
                MarkPosition::Payload => self.take_scattered_marked::<PAYLOAD>(packets),
                MarkPosition::Addresses => self.take_scattered_marked::<ADDRESSES>(packets),
            }
        }
    }

    #[inline(always)]
    unsafe fn take_scattered_marked<const AT: usize>(&mut self, packets: &[PacketRef]) {
        // SAFETY: the caller guarantees the same.
        unsafe {
            match (self.check, self.times.is_some()) {
                (Check::None, false) => self.check_scattered::<NONE, false, AT>(packets),
                (Check::OneWord, false) => self.check_scattered::<ONE_WORD, false, AT>(packets),
                (Check::All, false) => self.check_scattered::<ALL, false, AT>(packets),
                (Check::None, true) => self.check_scattered::<NONE, true, AT>(packets),
                (Check::OneWord, true) => self.check_scattered::<ONE_WORD, true, AT>(packets),
                (Check::All, true) => self.check_scattered::<ALL, true, AT>(packets),
            }
        }
    }

    #[inline(never)]
    unsafe fn check_packets<const CHECK: u8, const TIMED: bool, const AT: usize>(
        &mut self,
        start: *const u8,
        all: usize,
    ) -> TxCount {
        let (mut at, mut walk) = (0, self.walk);
        let mut checker = self.checker::<AT>();
        while at < all {
            let packet = start.wrapping_add(at);
            // SAFETY: the caller guarantees that a whole flit follows.
            let (length, step) = unsafe { walk.step(packet) };
            if at + step > all {
                std::hint::cold_path();
                break;
            }
            at += step;
            // SAFETY: all flits of the packet are in memory, and whole flits follow.
            unsafe {
                let next = checker.any::<CHECK, TIMED>(packet, length);
                let rest = start.wrapping_add(at);
                at += checker.following::<CHECK, TIMED>(rest, all - at, next);
            }
        }
        let counts = checker.counts;
        self.walk = walk;
        self.add(&counts);
        TxCount { packets: counts.packets, bytes: at }
    }

    #[inline(never)]
    unsafe fn check_scattered<const CHECK: u8, const TIMED: bool, const AT: usize>(
        &mut self,
        mut packets: &[PacketRef],
    ) {
        let mut checker = self.checker::<AT>();
        while let [packet, rest @ ..] = packets {
            // SAFETY: the caller guarantees the size of each packet.
            unsafe {
                let next = checker.any::<CHECK, TIMED>(packet.start, packet.bytes as usize);
                packets = checker.following_scattered::<CHECK, TIMED>(rest, next);
            }
        }
        let counts = checker.counts;
        self.add(&counts);
    }

    #[inline(always)]
    fn checker<const AT: usize>(&mut self) -> PacketChecker<'_, AT> {
        PacketChecker {
            expected: &self.expected,
            sequences: &mut self.sequences,
            word: self.word,
            accepts_misses: self.expectation == Some(Expectation::Answers),
            times: self.times.as_mut(),
            counts: CheckCounts::default(),
        }
    }

    #[inline(always)]
    fn add(&mut self, counts: &CheckCounts) {
        self.received += counts.packets;
        self.bytes += counts.bytes;
        self.corrupted += counts.corrupted;
        self.late += counts.late;
        self.missing += counts.missing;
    }

    pub(super) fn report(&mut self) -> Report {
        // An application that consumes all packets has no reason to send one.
        let is_unexpected = self.expectation == Some(Expectation::Nothing);
        Report {
            received: self.received,
            corrupted: if is_unexpected { self.received } else { self.corrupted },
            late: self.late,
            missing: (self.check != Check::None).then_some(self.missing),
            received_bytes: on_wire(self.bytes, self.received),
            bytes: self.bytes,
            times: self.times.take().map(Times::end),
            ..Report::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::trial::sequences;
    use super::*;
    use crate::wire::Mark;
    use crate::wire::sample::{SampleTraffic, Sizes};
    use crate::wire::traffic::CacheLine;

    /// Returns the late packets and the packets received if those with these indices and numbers return in this order.
    fn late(traffic: &Traffic, packets: &[(u32, u32)]) -> (u64, u64) {
        let mut checked = Checked::new(traffic, &sequences(traffic));
        let trial = Trial { expectation: Expectation::Same, ..Trial::default() };
        checked.prepare(&trial, traffic, std::iter::empty());
        checked.begin(0);
        let mut lines: Vec<CacheLine> = Vec::new();
        for (index, number) in packets {
            let mut line = traffic.lines(*index as usize)[0];
            let mark = Mark { index: *index, number: *number, stamp: 5 };
            mark.put(traffic.marks(), &mut line.0);
            lines.push(line);
        }
        // SAFETY: the lines are whole flits of this test.
        let taken = unsafe { checked.take(lines.as_ptr().cast(), lines.len() * FLIT) };
        assert_eq!((taken.packets, checked.corrupted), (packets.len() as u64, 0));
        (checked.late, checked.received)
    }

    #[test]
    fn order_is_verified_within_each_sequence() {
        let sample =
            SampleTraffic { packets: 4, size: Sizes::One(64), sources: 1, destinations: 2 };
        let flows = sample.traffic().unwrap();
        // Packets 0 and 2 are of one flow, 1 and 3 of another.
        assert_eq!(late(&flows, &[(0, 0), (1, 0), (2, 1), (3, 1), (0, 2)]), (0, 5));
        assert_eq!(late(&flows, &[(0, 0), (2, 1), (1, 0), (3, 1)]), (0, 4), "two pipes");
        assert_eq!(late(&flows, &[(2, 1), (0, 0)]), (1, 2), "overtaken");
        assert_eq!(late(&flows, &[(0, 0), (0, 0)]), (1, 2), "a duplicate");
        let pipes = || sample.traffic().unwrap();
        let one = pipes().with_sequences(vec![0; 4]);
        assert_eq!(late(&one, &[(0, 0), (1, 1), (2, 2), (3, 3), (0, 4)]), (0, 5));
        assert_eq!(late(&one, &[(0, 0), (2, 2), (1, 1), (3, 3)]), (1, 4), "overtaken");
        assert_eq!(late(&one, &[(0, 0), (3, 3), (1, 5)]), (0, 3), "packets of one pipe are lost");
        // One flow in turn over two pipes, each of which returns its packets in order.
        let sample = SampleTraffic { packets: 1, destinations: 1, ..sample };
        let two = sample.traffic().unwrap().for_round_robin(2).unwrap();
        assert_eq!(late(&two, &[(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]), (0, 5));
        assert_eq!(late(&two, &[(0, 1), (1, 0), (0, 0)]), (1, 3), "overtaken within a pipe");
        assert_eq!(late(&two, &[(0, 0), (1, 0), (1, 0)]), (1, 3), "a duplicate");
    }
}
