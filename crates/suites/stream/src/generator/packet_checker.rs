//! Verification of echoed packets.

use lab::factor::LevelType;

use super::burst::mark;
use super::times::Times;
use crate::nic::layout::FLIT;
use crate::wire::PacketRef;
use crate::wire::packet;
use crate::wire::vector::prefetch;

/// Offset of the byte of each packet to which the echo adds 1: the last byte of the shortest frame.
pub const TOUCHED: usize = 59;
/// Change of the word that contains this byte.
pub(crate) const TOUCH: u64 = 1 << 56;

/// How much of each packet is verified. Its identity, and so count and order, is always verified.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, LevelType, clap::ValueEnum)]
pub enum Check {
    /// Nothing else.
    None,
    /// The length, and the word with the byte that the application modifies.
    #[default]
    OneWord,
    /// Every byte.
    All,
}

/// What the application changes in each packet before it sends it back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Modification {
    /// Nothing.
    None,
    /// It adds 1 to the byte at [`TOUCHED`].
    #[default]
    Byte,
    /// It exchanges the Ethernet addresses, which contain the mark and the timestamp.
    Addresses,
}

/// Offset of the word with the byte that the application modifies.
pub(crate) const WORD: usize = 52;
/// Length of the mark and timestamp at the start of a packet, in bytes.
const MARKED: usize = 12;

/// Prefetch distance for scattered packets, whose addresses no hardware prefetcher predicts.
const AHEAD: usize = 16;

/// The levels of [`Check`] as const parameters; each includes those before it.
pub(super) const NONE: u8 = Check::None as u8;
pub(super) const ONE_WORD: u8 = Check::OneWord as u8;
pub(super) const ALL: u8 = Check::All as u8;

/// Expected contents of a packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected {
    pub(super) word: u64,
    pub(super) source: *const u8,
    pub(super) sequence: u32,
    /// Index of the sequence's next packet.
    pub(super) next: u32,
    pub(super) length: u16,
    /// Total length in the IPv4 header.
    pub(super) total_length: u16,
    /// Length rounded up to flits, in bytes.
    pub(super) step: u16,
}

/// Counts of verified packets.
#[derive(Default)]
pub(super) struct CheckCounts {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) corrupted: u64,
    pub(super) late: u64,
}

/// Identity of the packet that follows unless packets are lost.
#[derive(Debug, Clone, Copy)]
pub(super) struct Next {
    index: u32,
    number: u32,
}

/// A verification loop's state, which it keeps in registers.
pub(super) struct PacketChecker<'a> {
    pub(super) expected: &'a [Expected],
    pub(super) sequences: &'a mut [u32],
    pub(super) touch: u64,
    pub(super) times: Option<&'a mut Times>,
    pub(super) counts: CheckCounts,
}

impl PacketChecker<'_> {
    /// Verifies any packet. Returns the identity of the packet that should follow.
    ///
    /// # Safety
    /// `packet` has `length` bytes, and `length` is that of a valid frame.
    #[inline(always)]
    pub(super) unsafe fn any<const CHECK: u8, const TIMED: bool, const SWAPPED: bool>(
        &mut self,
        packet: *const u8,
        length: usize,
    ) -> Option<Next> {
        // SAFETY: the words are within the shortest frame, and the packet has `length` bytes.
        let (mark, word) = unsafe {
            packet::read_later_lines(packet, length);
            (read_mark::<SWAPPED>(packet), read_word(packet))
        };
        // Read once: indices derive from it, and the sender may change it concurrently.
        let mark = packet::once(mark);
        self.counts.packets += 1;
        self.counts.bytes += length as u64;
        let Some(expected) = self.expected.get((mark >> 32) as usize) else {
            std::hint::cold_path();
            self.counts.corrupted += 1;
            return None;
        };
        // SAFETY: there is a number for each sequence of an expected packet.
        let sequence = unsafe { self.sequences.get_unchecked_mut(expected.sequence as usize) };
        if (mark as u32).wrapping_sub(*sequence) < 1 << 31 {
            // Skipped packets are lost or late.
            *sequence = (mark as u32).wrapping_add(1);
        } else {
            std::hint::cold_path();
            self.counts.late += 1;
        }
        let next = Next { index: expected.next, number: *sequence };
        let mut is_intact = true;
        if CHECK >= ONE_WORD {
            is_intact = word == expected.word.wrapping_add(self.touch)
                && length == usize::from(expected.length);
        }
        if CHECK >= ALL {
            // SAFETY: the packet has `length` bytes, and the source too if the lengths agree; the generator keeps the
            // traffic.
            is_intact = is_intact && unsafe { same(packet, expected.source, length) };
        }
        if !is_intact {
            std::hint::cold_path();
            self.counts.corrupted += 1;
        }
        if TIMED && let Some(times) = &mut self.times {
            // SAFETY: the packet is a whole frame, which contains the timestamp.
            times.take(unsafe { read_stamp::<SWAPPED>(packet) });
        }
        Some(next)
    }

    /// Verifies packets as long as they are of one sequence, in order and intact. Each packet's contents are known before it
    /// is read, so that the CPU reads many at once. Returns the number of bytes in their flits.
    ///
    /// # Safety
    /// `start` has `all` bytes of whole flits.
    #[inline(always)]
    pub(super) unsafe fn following<const CHECK: u8, const TIMED: bool, const SWAPPED: bool>(
        &mut self,
        start: *const u8,
        all: usize,
        next: Option<Next>,
    ) -> usize {
        let Some(mut next) = next else { return 0 };
        let mut at = 0;
        loop {
            let expected = self.expected_of(next);
            if at + usize::from(expected.step) > all {
                break;
            }
            // SAFETY: the caller guarantees that the flits of the expected packet are within the memory.
            if !unsafe { self.is::<CHECK, TIMED, SWAPPED>(start.wrapping_add(at), next, &expected) }
            {
                break;
            }
            at += usize::from(expected.step);
            next.follow(&expected);
        }
        self.continue_with(next);
        at
    }

    /// Does the same as [`following`](Self::following) for scattered packets. Returns the remaining packets.
    ///
    /// # Safety
    /// Each packet has `bytes` bytes, and `bytes` is that of a valid frame.
    #[inline(always)]
    pub(super) unsafe fn following_scattered<
        'a,
        const CHECK: u8,
        const TIMED: bool,
        const SWAPPED: bool,
    >(
        &mut self,
        mut packets: &'a [PacketRef],
        next: Option<Next>,
    ) -> &'a [PacketRef] {
        let Some(mut next) = next else { return packets };
        while let [packet, rest @ ..] = packets {
            let expected = self.expected_of(next);
            // SAFETY: the caller guarantees the size, which is that of the expected packet.
            let as_expected = packet.bytes == u32::from(expected.length)
                && unsafe { self.is::<CHECK, TIMED, SWAPPED>(packet.start, next, &expected) };
            if !as_expected {
                break;
            }
            packets = rest;
            if let Some(later) = rest.get(AHEAD) {
                prefetch(later.start);
            }
            next.follow(&expected);
        }
        self.continue_with(next);
        packets
    }

    #[inline(always)]
    fn expected_of(&self, next: Next) -> Expected {
        // SAFETY: the constructor gave each packet a valid successor.
        unsafe { *self.expected.get_unchecked(next.index as usize) }
    }

    /// Sets the number with which the packet's sequence continues.
    #[inline(always)]
    fn continue_with(&mut self, next: Next) {
        let sequence = self.expected_of(next).sequence;
        // SAFETY: there is a number for each sequence of an expected packet.
        unsafe { *self.sequences.get_unchecked_mut(sequence as usize) = next.number };
    }

    /// Returns whether a packet is the expected one and intact, and counts it if so.
    ///
    /// # Safety
    /// `packet` has as many bytes as expected.
    #[inline(always)]
    unsafe fn is<const CHECK: u8, const TIMED: bool, const SWAPPED: bool>(
        &mut self,
        packet: *const u8,
        next: Next,
        expected: &Expected,
    ) -> bool {
        // SAFETY: the words are within the shortest frame.
        let (found, word, total_length) = unsafe {
            (read_mark::<SWAPPED>(packet), read_word(packet), packet::total_length(packet))
        };
        if found != mark(next.index, next.number)
            || total_length != expected.total_length
            || CHECK >= ONE_WORD && word != expected.word.wrapping_add(self.touch)
        {
            return false;
        }
        let length = usize::from(expected.length);
        // SAFETY: packet and source have `length` bytes.
        unsafe {
            if CHECK >= ALL && !same(packet, expected.source, length) {
                return false;
            }
            if CHECK < ALL {
                packet::read_later_lines(packet, length);
            }
        }
        if TIMED && let Some(times) = &mut self.times {
            // SAFETY: the packet is a whole frame, which contains the timestamp.
            times.take(unsafe { read_stamp::<SWAPPED>(packet) });
        }
        self.counts.packets += 1;
        self.counts.bytes += length as u64;
        true
    }
}

impl Next {
    #[inline(always)]
    fn follow(&mut self, expected: &Expected) {
        *self = Self { index: expected.next, number: self.number.wrapping_add(1) };
    }
}

/// Length of an Ethernet address, in bytes.
const ADDRESS: usize = 6;

/// # Safety
/// `packet` points to a frame.
#[inline(always)]
unsafe fn read_mark<const SWAPPED: bool>(packet: *const u8) -> u64 {
    // SAFETY: the caller guarantees that the frame contains it.
    unsafe {
        if !SWAPPED {
            return packet.cast::<u64>().read_unaligned();
        }
        let first = packet.add(ADDRESS).cast::<u64>().read_unaligned();
        let last = packet.cast::<u16>().read_unaligned();
        first << 16 >> 16 | u64::from(last) << (8 * ADDRESS)
    }
}

/// # Safety
/// The requirements of [`read_mark`] apply.
#[inline(always)]
unsafe fn read_stamp<const SWAPPED: bool>(packet: *const u8) -> u32 {
    let offset = if SWAPPED { size_of::<u64>() - ADDRESS } else { size_of::<u64>() };
    // SAFETY: the caller guarantees that the frame contains it.
    unsafe { packet.add(offset).cast::<u32>().read_unaligned() }
}

/// # Safety
/// The requirements of [`read_mark`] apply.
#[inline(always)]
unsafe fn read_word(packet: *const u8) -> u64 {
    // SAFETY: the caller guarantees that the frame contains it.
    unsafe { packet.add(WORD).cast::<u64>().read_unaligned() }
}

/// Returns whether two packets agree except for the mark and the word of the modified byte.
///
/// # Safety
/// Both have `length` bytes, at least 60.
unsafe fn same(packet: *const u8, source: *const u8, length: usize) -> bool {
    // SAFETY: the caller guarantees the length of both.
    let (packet, source) = unsafe {
        (std::slice::from_raw_parts(packet, length), std::slice::from_raw_parts(source, length))
    };
    packet[MARKED..WORD] == source[MARKED..WORD] && packet[TOUCHED + 1..] == source[TOUCHED + 1..]
}

const _: () = assert!(TOUCHED < FLIT && WORD + 8 == TOUCHED + 1);
