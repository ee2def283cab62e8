//! Where in a packet the lengths stand, and the next packet in a pipe.

use std::net::Ipv4Addr;
use std::ops::Range;

/// Size of a flit, the unit in which the NIC transfers packets, in bytes.
pub const FLIT: usize = 64;
/// Bytes of an Ethernet header.
pub const ETHERNET: usize = 14;
/// Bytes of the shortest frame, without the check sequence.
pub const MIN_LENGTH: usize = 60;
/// Bytes of the longest frame, without the check sequence.
pub const MAX_LENGTH: usize = 1514;
/// Where the IPv4 total length stands.
pub(crate) const TOTAL_LENGTH: Range<usize> = 16..18;

/// Bytes of a frame, without the check sequence, by its IPv4 header.
///
/// Another process may write there meanwhile, so it is read once, whatever is done with it.
///
/// # Safety
/// `packet` points to 18 readable bytes at an even address.
#[inline(always)]
pub unsafe fn length(packet: *const u8) -> usize {
    // SAFETY: by the caller's word.
    let total = unsafe { packet.add(TOTAL_LENGTH.start).cast::<u16>().read_volatile() };
    (u16::from_be(total) as usize + ETHERNET).max(MIN_LENGTH)
}

/// The IPv4 total length as it stands in a frame, the high byte first.
///
/// # Safety
/// `packet` points to 18 readable bytes.
#[inline(always)]
pub unsafe fn total_length(packet: *const u8) -> u16 {
    // SAFETY: by the caller's word.
    unsafe { packet.add(TOTAL_LENGTH.start).cast::<u16>().read_unaligned() }
}

/// A value that was read from memory which another process may write: it is not read again, whatever is done
/// with it.
#[inline(always)]
pub(crate) fn once(mut value: u64) -> u64 {
    // SAFETY: it does nothing; the compiler does not know that.
    unsafe {
        std::arch::asm!("/* {0} */", inout(reg) value, options(pure, nomem, nostack, preserves_flags));
    }
    value
}

/// The flits that so many bytes take.
#[inline(always)]
pub fn flits(length: usize) -> usize {
    length.div_ceil(FLIT)
}

/// Walks over packets that lie one after the other, each at a flit.
///
/// Where the next packet begins is known only once the length of this one has come from memory. Most
/// packets are as long as the one before: going on as if it were so, and looking afterwards, lets the
/// processor fetch many at once.
#[derive(Debug, Clone, Copy)]
pub struct Walk {
    like: usize,
    bytes: usize,
}

impl Default for Walk {
    fn default() -> Self {
        Self { like: MIN_LENGTH, bytes: FLIT }
    }
}

impl Walk {
    /// The length of a packet and the bytes of its flits.
    ///
    /// # Safety
    /// `packet` points to a whole flit.
    #[inline(always)]
    pub unsafe fn step(&mut self, packet: *const u8) -> (usize, usize) {
        // SAFETY: by the caller's word.
        let length = unsafe { length(packet) };
        if length != self.like {
            // A branch, which the processor guesses, and no conditional move, for which it would wait.
            std::hint::cold_path();
            self.like = length;
            self.bytes = flits(length) * FLIT;
        }
        (self.like, self.bytes)
    }
}

/// The five fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Flow {
    /// Where its packets come from.
    pub source: Ipv4Addr,
    /// Where they go.
    pub destination: Ipv4Addr,
    /// The port that they come from; 0 where the protocol has none.
    pub source_port: u16,
    /// The port that they go to; 0 where the protocol has none.
    pub destination_port: u16,
    /// The protocol's number: 6 is TCP, 17 UDP.
    pub protocol: u8,
}
