//! Packets in memory: flows, lengths, and iteration over contiguous packets.

use std::net::Ipv4Addr;
use std::ops::Range;

/// Size of a flit, the unit in which the NIC transfers packets, in bytes.
pub const FLIT: usize = 64;
/// Length of an Ethernet header, in bytes.
pub const ETHERNET: usize = 14;
/// Length of the shortest frame without the check sequence, in bytes.
pub const MIN_LENGTH: usize = 60;
/// Length of the longest frame without the check sequence, in bytes.
pub const MAX_LENGTH: usize = 1514;
/// Offset of the IPv4 total length.
pub(crate) const TOTAL_LENGTH: Range<usize> = 16..18;

/// Returns the length of a frame without the check sequence, in bytes, from its IPv4 header.
///
/// Another process may change it concurrently, so it is read exactly once.
///
/// # Safety
/// `packet` points to 18 readable bytes at an even address.
#[inline(always)]
pub unsafe fn length(packet: *const u8) -> usize {
    // SAFETY: the caller guarantees that the bytes are readable.
    let total = unsafe { packet.add(TOTAL_LENGTH.start).cast::<u16>().read_volatile() };
    (u16::from_be(total) as usize + ETHERNET).max(MIN_LENGTH)
}

/// Returns the IPv4 total length of a frame in network byte order.
///
/// # Safety
/// `packet` points to 18 readable bytes.
#[inline(always)]
pub unsafe fn total_length(packet: *const u8) -> u16 {
    // SAFETY: the caller guarantees that the bytes are readable.
    unsafe { packet.add(TOTAL_LENGTH.start).cast::<u16>().read_unaligned() }
}

/// Returns a value read from memory that another process may change, such that the compiler cannot read it again.
#[inline(always)]
pub(crate) fn once(mut value: u64) -> u64 {
    // SAFETY: the empty assembly has no effect, which the compiler does not know.
    unsafe {
        std::arch::asm!("/* {0} */", inout(reg) value, options(pure, nomem, nostack, preserves_flags));
    }
    value
}

/// Returns the number of flits that `length` bytes need.
#[inline(always)]
pub fn flits(length: usize) -> usize {
    length.div_ceil(FLIT)
}

/// Calls `read` with an address in each cache line of a packet after that in which it starts. A NIC that sends a packet reads
/// them all, however little of it is verified.
#[inline(always)]
pub(crate) fn each_later_line(packet: *const u8, bytes: usize, mut read: impl FnMut(*const u8)) {
    let mut at = FLIT - packet.addr() % FLIT;
    while at < bytes {
        read(packet.wrapping_add(at));
        at += FLIT;
    }
}

/// Reads a byte of each of these lines.
///
/// # Safety
/// `packet` points to `bytes` readable bytes.
#[inline(always)]
pub(crate) unsafe fn read_later_lines(packet: *const u8, bytes: usize) {
    each_later_line(packet, bytes, |line| {
        // SAFETY: the address is within the packet. A volatile load is not removed.
        unsafe { line.read_volatile() };
    });
}

/// Iteration over contiguous packets, each aligned to a flit.
///
/// The start of the next packet depends on the length of this one, which must be read from memory. Most packets have the
/// length of the one before: speculating on that lets the CPU fetch many at once.
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
    /// Returns the length of a packet, and the same rounded up to flits, in bytes.
    ///
    /// # Safety
    /// `packet` points to a whole flit.
    #[inline(always)]
    pub unsafe fn step(&mut self, packet: *const u8) -> (usize, usize) {
        // SAFETY: the caller guarantees a whole flit.
        let length = unsafe { length(packet) };
        if length != self.like {
            // A branch, which is predicted; a conditional move would wait for the length.
            std::hint::cold_path();
            self.like = length;
            self.bytes = flits(length) * FLIT;
        }
        (self.like, self.bytes)
    }
}

/// A flow: the five fields that identify a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Flow {
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
    /// Source port; 0 if the protocol has no ports.
    pub source_port: u16,
    /// Destination port; 0 if the protocol has no ports.
    pub destination_port: u16,
    /// Protocol number, e.g. 6 for TCP and 17 for UDP.
    pub protocol: u8,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_after_the_first_is_visited_once() {
        for start in (0..=FLIT).map(|offset| 4096 + offset) {
            for bytes in 1..=MAX_LENGTH {
                let mut lines = Vec::new();
                let packet = std::ptr::without_provenance(start);
                each_later_line(packet, bytes, |line| {
                    assert!((start..start + bytes).contains(&line.addr()));
                    lines.push(line.addr() / FLIT);
                });
                let expected = start / FLIT + 1..=(start + bytes - 1) / FLIT;
                assert!(lines.into_iter().eq(expected), "{bytes} B at {start}");
            }
        }
    }
}
