//! Looks at packets that come back together.

use lab::factor::LevelType;

use super::burst::mark;
use super::times::Times;
use crate::nic::layout::FLIT;
use crate::wire::PacketRef;
use crate::wire::packet;
use crate::wire::vector::prefetch;

/// The byte of each packet to which the echo adds 1: the last of the shortest frame.
pub const TOUCHED: usize = 59;
/// What adding 1 to the byte adds to the word.
pub(crate) const TOUCH: u64 = 1 << 56;

/// What of each packet that comes back is compared with what was sent. Which packet it is, and so count
/// and order, is always looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, LevelType)]
pub enum Check {
    /// Nothing more.
    None,
    /// The word that holds the byte that the application changes, and the length.
    #[default]
    OneWord,
    /// Every byte.
    All,
}

/// Where the word lies that holds the byte that the application touches.
pub(crate) const WORD: usize = 52;
/// Bytes at the front of a packet that say which it is.
const MARKED: usize = 12;

/// How many packets further on those that lie apart are fetched: no processor guesses where they are.
const AHEAD: usize = 16;

/// The ways to check, as the loops know them: each does what those before it do.
pub(super) const NONE: u8 = Check::None as u8;
pub(super) const ONE_WORD: u8 = Check::OneWord as u8;
pub(super) const ALL: u8 = Check::All as u8;

/// What is known of a packet before it comes back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected {
    pub(super) word: u64,
    pub(super) source: *const u8,
    pub(super) flow: u32,
    /// The packet of the flow that comes after it.
    pub(super) next: u32,
    pub(super) length: u16,
    /// Its length as its header has it.
    pub(super) total_length: u16,
    /// The bytes of its flits.
    pub(super) step: u16,
}

/// What was seen of them.
#[derive(Default)]
pub(super) struct CheckCounts {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) corrupted: u64,
    pub(super) late: u64,
}

/// Which packet comes next where none is lost.
#[derive(Debug, Clone, Copy)]
pub(super) struct Next {
    index: u32,
    number: u32,
}

/// A look at packets: what a loop keeps in registers.
pub(super) struct PacketChecker<'a> {
    pub(super) expected: &'a [Expected],
    pub(super) sequences: &'a mut [u32],
    pub(super) touch: u64,
    pub(super) times: Option<&'a mut Times>,
    pub(super) seen: CheckCounts,
}

impl PacketChecker<'_> {
    /// Looks at a packet, whichever it is; which one follows.
    ///
    /// # Safety
    /// It has so many bytes, as many as a frame may have.
    #[inline(always)]
    pub(super) unsafe fn any<const CHECK: u8, const TIMED: bool>(
        &mut self,
        packet: *const u8,
        length: usize,
    ) -> Option<Next> {
        // SAFETY: the words lie in the shortest frame.
        let (mark, word) = unsafe { (read_mark(packet), read_word(packet)) };
        // Indices are made of it, and its program may write there meanwhile.
        let mark = packet::once(mark);
        self.seen.packets += 1;
        self.seen.bytes += length as u64;
        let Some(expected) = self.expected.get((mark >> 32) as usize) else {
            std::hint::cold_path();
            self.seen.corrupted += 1;
            return None;
        };
        // SAFETY: there are as many sequences as there are flows.
        let sequence = unsafe { self.sequences.get_unchecked_mut(expected.flow as usize) };
        if (mark as u32).wrapping_sub(*sequence) < 1 << 31 {
            // Those between, where there are any, are lost, or late.
            *sequence = (mark as u32).wrapping_add(1);
        } else {
            std::hint::cold_path();
            self.seen.late += 1;
        }
        let next = Next { index: expected.next, number: *sequence };
        let mut sound = true;
        if CHECK >= ONE_WORD {
            sound = word == expected.word.wrapping_add(self.touch)
                && length == usize::from(expected.length);
        }
        if CHECK >= ALL {
            // SAFETY: the packet has so many bytes, and where the lengths agree the template has as many;
            // the traffic that it lies in is held by the generator.
            sound = sound && unsafe { same(packet, expected.source, length) };
        }
        if !sound {
            std::hint::cold_path();
            self.seen.corrupted += 1;
        }
        if TIMED && let Some(times) = &mut self.times {
            // SAFETY: as above.
            times.take(unsafe { read_stamp(packet) });
        }
        Some(next)
    }

    /// Looks at packets as long as they are those of one flow, in order and sound: what each must be is
    /// known before it is read, so that the processor reads many at once. Gives the bytes of their flits.
    ///
    /// # Safety
    /// There are so many bytes of whole flits.
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
            // SAFETY: so many flits lie there, by the caller's word.
            if !unsafe { self.is::<CHECK, TIMED>(start.wrapping_add(at), next, &expected) } {
                break;
            }
            at += usize::from(expected.step);
            next.follow(&expected);
        }
        self.goes_on_with(next);
        at
    }

    /// The same for packets that lie apart; gives those that are others.
    ///
    /// # Safety
    /// Each has so many bytes, as many as a frame may have.
    #[inline(always)]
    pub(super) unsafe fn following_scattered<'a, const CHECK: u8, const TIMED: bool>(
        &mut self,
        mut packets: &'a [PacketRef],
        next: Option<Next>,
    ) -> &'a [PacketRef] {
        let Some(mut next) = next else { return packets };
        while let [packet, rest @ ..] = packets {
            let expected = self.expected_of(next);
            // SAFETY: it has so many bytes, by the caller's word.
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
        self.goes_on_with(next);
        packets
    }

    #[inline(always)]
    fn expected_of(&self, next: Next) -> Expected {
        // SAFETY: whoever made them gave each packet one that follows.
        unsafe { *self.expected.get_unchecked(next.index as usize) }
    }

    /// Its flow goes on with this packet.
    #[inline(always)]
    fn goes_on_with(&mut self, next: Next) {
        let flow = self.expected_of(next).flow;
        // SAFETY: there are as many sequences as there are flows.
        unsafe { *self.sequences.get_unchecked_mut(flow as usize) = next.number };
    }

    /// Whether a packet is that one, and sound; then it has been seen.
    ///
    /// # Safety
    /// It has so many bytes as are expected.
    #[inline(always)]
    unsafe fn is<const CHECK: u8, const TIMED: bool>(
        &mut self,
        packet: *const u8,
        next: Next,
        expected: &Expected,
    ) -> bool {
        // SAFETY: the words lie in the shortest frame.
        let (found, word, total_length) =
            unsafe { (read_mark(packet), read_word(packet), packet::total_length(packet)) };
        if found != mark(next.index, next.number)
            || total_length != expected.total_length
            || CHECK >= ONE_WORD && word != expected.word.wrapping_add(self.touch)
        {
            return false;
        }
        let length = usize::from(expected.length);
        // SAFETY: the packet and the template have so many bytes.
        if CHECK >= ALL && unsafe { !same(packet, expected.source, length) } {
            return false;
        }
        if TIMED && let Some(times) = &mut self.times {
            // SAFETY: as above.
            times.take(unsafe { read_stamp(packet) });
        }
        self.seen.packets += 1;
        self.seen.bytes += length as u64;
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
/// `packet` points to a frame.
#[inline(always)]
unsafe fn read_mark(packet: *const u8) -> u64 {
    // SAFETY: by the caller's word.
    unsafe { packet.cast::<u64>().read_unaligned() }
}

/// # Safety
/// As for [`read_mark`].
#[inline(always)]
unsafe fn read_stamp(packet: *const u8) -> u32 {
    // SAFETY: by the caller's word.
    unsafe { packet.add(8).cast::<u32>().read_unaligned() }
}

/// # Safety
/// As for [`read_mark`].
#[inline(always)]
unsafe fn read_word(packet: *const u8) -> u64 {
    // SAFETY: by the caller's word.
    unsafe { packet.add(WORD).cast::<u64>().read_unaligned() }
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
