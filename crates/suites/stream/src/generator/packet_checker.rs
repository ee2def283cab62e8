//! Verification of returned packets.

use lab::factor::LevelType;

use super::answers;
use super::times::Times;
use crate::nic::layout::FLIT;
use crate::wire::PacketRef;
use crate::wire::mark::{self, identity, is_balanced, read_identity, read_stamp};
use crate::wire::packet;
use crate::wire::traffic::WORD_BYTES;
use crate::wire::vector::prefetch;

/// Offset of the byte of each packet to which the echo adds 1: the last one before a mark in the payload.
pub const TOUCHED: usize = mark::PAYLOAD - 1;
/// Offset of the word with this byte.
pub(crate) const WORD: usize = mark::PAYLOAD - WORD_BYTES;
/// Change of the word.
pub(crate) const TOUCH: u64 = 1 << 56;

/// How much of each packet is verified. Its identity, and so count and order, is always verified.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, LevelType, clap::ValueEnum)]
pub enum Check {
    /// Nothing else.
    None,
    /// The length, and a word that the application modifies.
    #[default]
    OneWord,
    /// Every byte.
    All,
}

/// Packets that the application returns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Expectation {
    /// Each packet, unchanged.
    #[value(name = "none")]
    Same,
    /// Each packet with 1 added to one byte of its payload. Its checksum remains, and so is wrong.
    #[default]
    Byte,
    /// The [image](crate::wire::traffic::Traffic::with_expected) of each packet.
    #[value(skip)]
    Images,
    /// The image of each packet, which answers requests to the key-value store; or an answer that states that a value is
    /// missing, which is counted.
    #[value(skip)]
    Answers,
    /// Nothing: the application consumes all packets.
    #[value(skip)]
    Nothing,
}

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
    pub(super) image: *const u8,
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
    pub(super) missing: u64,
}

/// Identity of the packet that follows unless packets are lost.
#[derive(Debug, Clone, Copy)]
pub(super) struct Next {
    index: u32,
    number: u32,
}

/// A verification loop's state, which it keeps in registers. The packets have their marks at `AT`.
pub(super) struct PacketChecker<'a, const AT: usize> {
    pub(super) expected: &'a [Expected],
    pub(super) sequences: &'a mut [u32],
    /// Offset of the word that is compared.
    pub(super) word: usize,
    /// Whether answers of the key-value store may state that a value is missing.
    pub(super) accepts_misses: bool,
    pub(super) times: Option<&'a mut Times>,
    pub(super) counts: CheckCounts,
}

impl<const AT: usize> PacketChecker<'_, AT> {
    /// Verifies any packet. Returns the identity of the packet that should follow.
    ///
    /// # Safety
    /// `packet` has `length` bytes, and `length` is that of a valid frame.
    #[inline(always)]
    pub(super) unsafe fn any<const CHECK: u8, const TIMED: bool>(
        &mut self,
        packet: *const u8,
        length: usize,
    ) -> Option<Next> {
        // SAFETY: the mark is within the shortest frame, and the packet has `length` bytes.
        let found = unsafe {
            packet::read_later_lines(packet, length);
            read_identity::<AT>(packet)
        };
        // Read once: indices derive from it, and the sender may change it concurrently.
        let found = packet::once(found);
        let (index, number) = (found as u32, (found >> 32) as u32);
        self.counts.packets += 1;
        self.counts.bytes += length as u64;
        let Some(expected) = self.expected.get(index as usize) else {
            std::hint::cold_path();
            self.counts.corrupted += 1;
            return None;
        };
        // SAFETY: there is a number for each sequence of an expected packet.
        let sequence = unsafe { self.sequences.get_unchecked_mut(expected.sequence as usize) };
        if number.wrapping_sub(*sequence) < 1 << 31 {
            // Skipped packets are lost or late.
            *sequence = number.wrapping_add(1);
        } else {
            std::hint::cold_path();
            self.counts.late += 1;
        }
        let next = Next { index: expected.next, number: *sequence };
        // SAFETY: the packet has `length` bytes.
        if !unsafe { self.is_intact::<CHECK>(packet, length, expected) } {
            std::hint::cold_path();
            let answer = self.accepts_misses.then(|| {
                // SAFETY: the packet has `length` bytes, and the image those of the packet that is expected.
                unsafe { answers::missing::<AT>(packet, length, expected) }
            });
            match answer.flatten() {
                Some(missing) => self.counts.missing += missing,
                None => self.counts.corrupted += 1,
            }
        }
        if TIMED && let Some(times) = &mut self.times {
            // SAFETY: the packet is a whole frame, which contains the mark.
            times.take(index, number, unsafe { read_stamp::<AT>(packet) });
        }
        Some(next)
    }

    /// Returns whether a packet is as expected, but for its mark.
    ///
    /// # Safety
    /// `packet` has `length` bytes.
    #[inline(always)]
    unsafe fn is_intact<const CHECK: u8>(
        &self,
        packet: *const u8,
        length: usize,
        expected: &Expected,
    ) -> bool {
        if CHECK < ONE_WORD {
            return true;
        }
        // SAFETY: packet and image have `length` bytes if the lengths agree, and the word is within the expected packet.
        length == usize::from(expected.length)
            && unsafe {
                read_word(packet, self.word) == expected.word
                    && (CHECK < ALL || same::<AT>(packet, expected.image, length, self.word))
            }
    }

    /// Verifies packets as long as they are of one sequence, in order and intact. Each packet's contents are known before it
    /// is read, so that the CPU reads many at once. Returns the number of bytes in their flits.
    ///
    /// # Safety
    /// `start` has `all` bytes of whole flits.
    #[inline(always)]
    pub(super) unsafe fn following<const CHECK: u8, const TIMED: bool>(
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
            if !unsafe { self.is::<CHECK, TIMED>(start.wrapping_add(at), next, &expected) } {
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
    pub(super) unsafe fn following_scattered<'a, const CHECK: u8, const TIMED: bool>(
        &mut self,
        mut packets: &'a [PacketRef],
        next: Option<Next>,
    ) -> &'a [PacketRef] {
        let Some(mut next) = next else { return packets };
        while let [packet, rest @ ..] = packets {
            let expected = self.expected_of(next);
            // SAFETY: the caller guarantees the size, which is that of the expected packet.
            let as_expected = packet.bytes == u32::from(expected.length)
                && unsafe { self.is::<CHECK, TIMED>(packet.start, next, &expected) };
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
    unsafe fn is<const CHECK: u8, const TIMED: bool>(
        &mut self,
        packet: *const u8,
        next: Next,
        expected: &Expected,
    ) -> bool {
        // SAFETY: all are within the expected packet.
        let (found, total_length) =
            unsafe { (read_identity::<AT>(packet), packet::total_length(packet)) };
        if found != identity(next.index, next.number) || total_length != expected.total_length {
            return false;
        }
        let length = usize::from(expected.length);
        // SAFETY: packet and image have `length` bytes, in which the word is.
        unsafe {
            if CHECK >= ONE_WORD && read_word(packet, self.word) != expected.word {
                return false;
            }
            if CHECK >= ALL && !same::<AT>(packet, expected.image, length, self.word) {
                return false;
            }
            if CHECK < ALL {
                packet::read_later_lines(packet, length);
            }
            if TIMED && let Some(times) = &mut self.times {
                times.take(next.index, next.number, read_stamp::<AT>(packet));
            }
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

/// # Safety
/// `packet` has a word at this offset.
#[inline(always)]
unsafe fn read_word(packet: *const u8, at: usize) -> u64 {
    // SAFETY: guaranteed by the caller.
    unsafe { packet.add(at).cast::<u64>().read_unaligned() }
}

/// Returns whether a packet agrees with its image, except for the mark, which is balanced, and the word at an offset.
///
/// # Safety
/// Both have `length` bytes, and both mark and word are within these.
unsafe fn same<const AT: usize>(
    packet: *const u8,
    image: *const u8,
    length: usize,
    word: usize,
) -> bool {
    // SAFETY: the caller guarantees the length of both.
    let (packet, image) = unsafe {
        (std::slice::from_raw_parts(packet, length), std::slice::from_raw_parts(image, length))
    };
    let (mark, word) = (AT..AT + mark::length(AT), word..word + WORD_BYTES);
    let (first, second) = if mark.start < word.start { (mark, word) } else { (word, mark) };
    is_balanced::<AT>(packet)
        && packet[..first.start] == image[..first.start]
        && packet[first.end..second.start] == image[first.end..second.start]
        && packet[second.end..] == image[second.end..]
}

const _: () = assert!(TOUCHED < FLIT && WORD + WORD_BYTES == TOUCHED + 1);
