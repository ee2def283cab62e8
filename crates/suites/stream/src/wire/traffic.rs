//! Packets that lie in memory, ready to be replayed.

// What a file says is no size until it is checked: this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::collections::BTreeSet;
use std::io;
use std::net::Ipv4Addr;

use machine::SysError;
use machine::mapping::Mapping;

use super::frame;
use super::packet::Flow;

/// Bytes of a line: what the NIC moves at a time, and where each packet begins.
pub const CACHE_LINE: usize = 64;

/// Bytes that a frame takes on the wire over what it takes in memory: 4 of check sequence, 8 of
/// preamble and 12 of gap.
pub const WIRE_OVERHEAD: u32 = 4 + 8 + 12;

/// One line of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct CacheLine(pub [u8; CACHE_LINE]);

/// Where a packet lies, and what the NIC reads of it to find its pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// Lines before it.
    pub offset: u32,
    /// Its bytes without the check sequence, padded to 60 at least.
    pub length: u16,
    /// Its five fields.
    pub flow: Flow,
    /// Whether it is TCP with SYN set, which the NIC looks up by its destination alone.
    pub syn: bool,
}

impl Packet {
    /// Bytes that it takes on the wire: check sequence, preamble and gap are counted.
    pub fn wire_bytes(&self) -> u32 {
        u32::from(self.length) + WIRE_OVERHEAD
    }
}

/// Packets in one span of memory, each on lines of its own, zero after its end.
#[derive(Debug)]
pub struct Traffic {
    memory: Mapping,
    packets: Vec<Packet>,
}

impl Traffic {
    /// The packets, in the order in which they are sent.
    pub fn packets(&self) -> &[Packet] {
        &self.packets
    }

    /// How many they are: one at least.
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Never: without packets nothing is made.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// A packet's bytes, the check sequence not among them.
    ///
    /// # Panics
    /// Where there is no such packet.
    pub fn bytes(&self, index: usize) -> &[u8] {
        let packet = &self.packets[index];
        let first = self.first_line(packet).cast();
        // SAFETY: as for `lines`, of whose bytes these are the first.
        unsafe { std::slice::from_raw_parts(first, usize::from(packet.length)) }
    }

    /// A packet's lines, zero after its bytes.
    ///
    /// # Panics
    /// Where there is no such packet.
    pub fn lines(&self, index: usize) -> &[CacheLine] {
        let packet = &self.packets[index];
        // SAFETY: the mapping begins at a page, `Filling::push` put this packet's lines inside it, and
        // nobody writes to it any more.
        unsafe { std::slice::from_raw_parts(self.first_line(packet), lines_of(packet.length)) }
    }

    /// Bytes that a packet takes on the wire: check sequence, preamble and gap are counted.
    ///
    /// # Panics
    /// Where there is no such packet.
    pub fn wire_bytes(&self, index: usize) -> u32 {
        self.packets[index].wire_bytes()
    }

    /// Bytes that all packets take on the wire.
    pub fn total_wire_bytes(&self) -> u64 {
        self.packets.iter().map(|packet| u64::from(packet.wire_bytes())).sum()
    }

    /// Where the packets go, each address once, in order.
    pub fn destinations(&self) -> Vec<Ipv4Addr> {
        let each: BTreeSet<_> = self.packets.iter().map(|packet| packet.flow.destination).collect();
        each.into_iter().collect()
    }

    fn first_line(&self, packet: &Packet) -> *const CacheLine {
        self.memory.as_ptr().cast::<CacheLine>().wrapping_add(packet.offset as usize)
    }
}

/// Lines of a packet of so many bytes.
pub(crate) fn lines_of(length: u16) -> usize {
    usize::from(length.max(frame::MIN_LENGTH)).div_ceil(CACHE_LINE)
}

/// Traffic that is being made, in memory whose size is known before.
pub(crate) struct Filling {
    memory: Mapping,
    filled: usize,
    packets: Vec<Packet>,
}

impl Filling {
    /// Memory for so many lines.
    ///
    /// # Errors
    /// More lines than a packet's place can say, none at all, or memory that the kernel cannot give.
    pub(crate) fn of(lines: usize) -> Result<Self, SysError> {
        if u32::try_from(lines).is_err() {
            return Err(SysError {
                attempt: format!("place packets on {lines} lines of 64 B"),
                source: io::Error::new(io::ErrorKind::InvalidInput, "2^32 and more have no number"),
                remedy: "ask for fewer packets".into(),
            });
        }
        let (bytes, free) = (lines.saturating_mul(CACHE_LINE), machine::memory::available());
        // The kernel would give it, and end some process once all of it is used.
        if bytes as u64 > free / 2 {
            return Err(SysError {
                attempt: format!("place packets in {bytes} B"),
                source: io::Error::new(io::ErrorKind::OutOfMemory, format!("{free} B are free")),
                remedy: "ask for fewer packets".into(),
            });
        }
        let memory = Mapping::anonymous(bytes)?;
        Ok(Self { memory, filled: 0, packets: Vec::new() })
    }

    /// Puts a frame behind the others.
    ///
    /// # Panics
    /// Where it does not fit what was asked for, or is longer than a frame may be.
    pub(crate) fn push(&mut self, bytes: &[u8], head: frame::Head) {
        assert!(bytes.len() <= usize::from(frame::MAX_LENGTH), "a frame of {} B", bytes.len());
        let length = (bytes.len() as u16).max(frame::MIN_LENGTH);
        let end = self.filled.saturating_add(lines_of(length));
        assert!(end <= self.memory.len() / CACHE_LINE, "more lines than were asked for");
        let to =
            self.memory.as_mut_ptr().cast::<CacheLine>().wrapping_add(self.filled).cast::<u8>();
        // SAFETY: the bytes lie inside the mapping, which nobody else has; new memory is zero after them.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        // There are fewer than 2^32 lines.
        let offset = self.filled as u32;
        self.packets.push(Packet { offset, length, flow: head.flow, syn: head.syn });
        self.filled = end;
    }

    /// The traffic. Each of its pages has been written and is there.
    pub(crate) fn finish(self) -> Traffic {
        Traffic { memory: self.memory, packets: self.packets }
    }
}
