//! Counting and verification of echoed packets.

use super::packet_checker::{
    ALL, Check, CheckCounts, Expected, Modification, NONE, ONE_WORD, PacketChecker, TOUCH, WORD,
};
use super::times::Times;
use super::trial::{CounterSnapshot, Report, Sequences, Trial};
use crate::nic::layout::FLIT;
use crate::wire::packet::{self, Walk};
use crate::wire::traffic::{Traffic, WIRE_OVERHEAD};
use crate::wire::{PacketRef, TxCount};

/// Returns the size on the wire of packets with `bytes` bytes together.
fn on_wire(bytes: u64, packets: u64) -> u64 {
    bytes + packets * u64::from(WIRE_OVERHEAD)
}

/// Verification state of a trial.
#[derive(Default)]
pub(super) struct Checked {
    expected: Vec<Expected>,
    /// Next expected number of each sequence.
    sequences: Vec<u32>,
    check: Check,
    touch: u64,
    /// Whether the Ethernet addresses are exchanged.
    swapped: bool,
    received: u64,
    bytes: u64,
    corrupted: u64,
    late: u64,
    times: Option<Times>,
    walk: Walk,
}

impl Checked {
    pub(super) fn new(traffic: &Traffic, sequences: &Sequences) -> Self {
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
                    sequence: sequences.of_packet[index],
                    next: 0,
                    length,
                    // SAFETY: each packet in the traffic has at least one flit.
                    total_length: unsafe { packet::total_length(source) },
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
        Self { expected, sequences: vec![0; sequences.count], ..Self::default() }
    }

    /// Prepares a trial: does what takes long.
    pub(super) fn prepare(&mut self, trial: &Trial) {
        self.check = trial.check;
        self.touch = if trial.modification == Modification::Byte { TOUCH } else { 0 };
        self.swapped = trial.modification == Modification::Addresses;
        self.times = trial.times.then(Times::new).flatten();
    }

    /// Resets all counts when the trial starts.
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

    /// Verifies contiguous packets, with a specialised loop for each kind of check. The addresses of packets in pipes are
    /// not exchanged.
    ///
    /// # Safety
    /// The requirements of [`Wire::on_transmit`](crate::wire::Wire::on_transmit) apply.
    #[inline(always)]
    pub(super) unsafe fn take(&mut self, start: *const u8, bytes: usize) -> TxCount {
        // SAFETY: the caller guarantees the same.
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

    /// Verifies scattered packets.
    ///
    /// # Safety
    /// The requirements of [`Wire::on_transmit_scattered`](crate::wire::Wire::on_transmit_scattered) apply.
    #[inline(always)]
    pub(super) unsafe fn take_scattered(&mut self, packets: &[PacketRef]) {
        // SAFETY: the caller guarantees the same.
        unsafe {
            match self.swapped {
                false => self.take_scattered_as::<false>(packets),
                true => self.take_scattered_as::<true>(packets),
            }
        }
    }

    #[inline(always)]
    unsafe fn take_scattered_as<const SWAPPED: bool>(&mut self, packets: &[PacketRef]) {
        // SAFETY: the caller guarantees the same.
        unsafe {
            match (self.check, self.times.is_some()) {
                (Check::None, false) => self.check_scattered::<NONE, false, SWAPPED>(packets),
                (Check::OneWord, false) => {
                    self.check_scattered::<ONE_WORD, false, SWAPPED>(packets);
                }
                (Check::All, false) => self.check_scattered::<ALL, false, SWAPPED>(packets),
                (Check::None, true) => self.check_scattered::<NONE, true, SWAPPED>(packets),
                (Check::OneWord, true) => self.check_scattered::<ONE_WORD, true, SWAPPED>(packets),
                (Check::All, true) => self.check_scattered::<ALL, true, SWAPPED>(packets),
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
        let mut checker = self.checker();
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
                let next = checker.any::<CHECK, TIMED, false>(packet, length);
                let rest = start.wrapping_add(at);
                at += checker.following::<CHECK, TIMED, false>(rest, all - at, next);
            }
        }
        let counts = checker.counts;
        self.walk = walk;
        self.add(&counts);
        TxCount { packets: counts.packets, bytes: at }
    }

    #[inline(always)]
    unsafe fn check_scattered<const CHECK: u8, const TIMED: bool, const SWAPPED: bool>(
        &mut self,
        mut packets: &[PacketRef],
    ) {
        let mut checker = self.checker();
        while let [packet, rest @ ..] = packets {
            // SAFETY: the caller guarantees the size of each packet.
            unsafe {
                let bytes = packet.bytes as usize;
                let next = checker.any::<CHECK, TIMED, SWAPPED>(packet.start, bytes);
                packets = checker.following_scattered::<CHECK, TIMED, SWAPPED>(rest, next);
            }
        }
        let counts = checker.counts;
        self.add(&counts);
    }

    #[inline(always)]
    fn checker(&mut self) -> PacketChecker<'_> {
        PacketChecker {
            expected: &self.expected,
            sequences: &mut self.sequences,
            touch: self.touch,
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
    }

    pub(super) fn report(&mut self) -> Report {
        Report {
            received: self.received,
            corrupted: self.corrupted,
            late: self.late,
            received_bytes: on_wire(self.bytes, self.received),
            bytes: self.bytes,
            times: self.times.take().map(Times::end),
            ..Report::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::burst::mark;
    use super::super::trial::sequences;
    use super::*;
    use crate::wire::sample::{SampleTraffic, Sizes};
    use crate::wire::traffic::CacheLine;

    /// Returns the late packets and the packets received if those with these indices and numbers return in this order.
    fn late(traffic: &Traffic, packets: &[(u32, u32)]) -> (u64, u64) {
        let mut checked = Checked::new(traffic, &sequences(traffic));
        checked.prepare(&Trial { modification: Modification::None, ..Trial::default() });
        checked.begin();
        let mut lines: Vec<CacheLine> = Vec::new();
        for (index, number) in packets {
            let mut line = traffic.lines(*index as usize)[0];
            line.0[..8].copy_from_slice(&mark(*index, *number).to_le_bytes());
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
