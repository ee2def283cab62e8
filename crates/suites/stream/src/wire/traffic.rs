//! Traffic: packets in memory, ready to be replayed.

// Values in a file are unchecked sizes, and this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::collections::BTreeSet;
use std::io;
use std::net::Ipv4Addr;

use machine::SysError;
use machine::mapping::Mapping;

use super::frame::{self, ETHERNET, IPV4, UDP};
use super::mark::MarkPosition;
use super::packet::Flow;

/// Size of a cache line, to which packets are aligned, in bytes.
pub const CACHE_LINE: usize = 64;

/// Additional size of a frame on the wire over that in memory, in bytes: 4 of check sequence, 8 of preamble and 12 of
/// gap.
pub const WIRE_OVERHEAD: u32 = 4 + 8 + 12;

/// Maximum number of packets: thousands for each pipe of the NIC.
pub(crate) const MAX_PACKETS: usize = 1 << 24;

/// One cache line of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct CacheLine(pub [u8; CACHE_LINE]);

/// A packet's location, and the header fields by which the NIC finds its pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// Number of cache lines before it.
    pub offset: u32,
    /// Length without the check sequence, padded to at least 60, in bytes.
    pub length: u16,
    /// The flow.
    pub flow: Flow,
    /// Whether it is TCP with SYN set, which the NIC looks up by its destination only.
    pub syn: bool,
}

impl Packet {
    /// Returns the size on the wire with check sequence, preamble and gap, in bytes.
    pub fn wire_bytes(&self) -> u32 {
        u32::from(self.length) + WIRE_OVERHEAD
    }
}

/// Packets in contiguous memory, each starting on a cache line and followed by zeros.
#[derive(Debug)]
pub struct Traffic {
    memory: Mapping,
    packets: Vec<Packet>,
    marks: MarkPosition,
    sequences: Option<Vec<u32>>,
    images: Option<Images>,
}

/// Packets that an application returns for those of a traffic.
#[derive(Debug)]
struct Images {
    /// The images, each at the offset of its packet.
    memory: Mapping,
    /// See [`Traffic::word`].
    word: usize,
}

impl Traffic {
    /// Returns the packets in sending order.
    pub fn packets(&self) -> &[Packet] {
        &self.packets
    }

    /// Returns the number of packets, at least one.
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Returns false: there is no empty traffic.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Returns a packet's bytes without the check sequence.
    ///
    /// # Panics
    /// Panics if there is no such packet.
    pub fn bytes(&self, index: usize) -> &[u8] {
        let packet = &self.packets[index];
        // SAFETY: `TrafficBuilder::push` checked that the packet is inside the mapping, which is no longer written.
        unsafe { bytes_in(&self.memory, packet) }
    }

    /// Returns what an application is expected to return for a packet, in any bytes but those of the mark: its image, or the
    /// packet itself if there are no [images](Self::with_expected).
    ///
    /// # Panics
    /// Panics if there is no such packet.
    pub fn expected(&self, index: usize) -> &[u8] {
        let Some(images) = &self.images else { return self.bytes(index) };
        // SAFETY: the mapping of the images is as large as that of the packets, and no longer written.
        unsafe { bytes_in(&images.memory, &self.packets[index]) }
    }

    /// Returns the offset of the 8 bytes of each packet by which an image is recognised without comparing the others; `None`
    /// if there are no images.
    pub fn word(&self) -> Option<usize> {
        self.images.as_ref().map(|images| images.word)
    }

    /// Returns the flows of the images; none if there are no images.
    pub fn returning_flows(&self) -> Vec<Flow> {
        let images = (0..self.len()).filter(|_| self.images.is_some());
        let heads = images.filter_map(|index| frame::read(self.expected(index)).ok());
        heads.map(|head| head.flow).collect()
    }

    /// Returns where the packets have their marks.
    pub fn marks(&self) -> MarkPosition {
        self.marks
    }

    /// Returns a packet's cache lines, zero after its bytes.
    ///
    /// # Panics
    /// Panics if there is no such packet.
    pub fn lines(&self, index: usize) -> &[CacheLine] {
        let packet = &self.packets[index];
        // SAFETY: the mapping is page-aligned, `TrafficBuilder::push` checked that the lines are inside it, and it is no
        // longer written.
        unsafe {
            std::slice::from_raw_parts(line_in(&self.memory, packet), lines_of(packet.length))
        }
    }

    /// Returns a packet's size on the wire with check sequence, preamble and gap, in bytes.
    ///
    /// # Panics
    /// Panics if there is no such packet.
    pub fn wire_bytes(&self, index: usize) -> u32 {
        self.packets[index].wire_bytes()
    }

    /// Returns the size of all packets on the wire, in bytes.
    pub fn total_wire_bytes(&self) -> u64 {
        self.packets.iter().map(|packet| u64::from(packet.wire_bytes())).sum()
    }

    /// Sets what an application is expected to return: `reference` does its work on a copy of each packet, without mark.
    /// `word` is the offset of 8 bytes that the application changes.
    ///
    /// # Errors
    /// Returns an error if memory is exhausted.
    ///
    /// # Panics
    /// Panics if a packet is too short for the word, or the word overlaps the mark.
    pub fn with_expected(
        self,
        word: usize,
        mut reference: impl FnMut(&mut [u8]),
    ) -> Result<Self, SysError> {
        let end = word.saturating_add(WORD_BYTES);
        let mark = self.marks.offset();
        let is_apart = end <= mark || word >= mark.saturating_add(self.marks.length());
        let is_within = self.packets.iter().all(|packet| end <= usize::from(packet.length));
        assert!(is_apart && is_within, "no word at {word}");
        let memory = allocate(self.memory.len(), "images of packets")?;
        let mut next = 0;
        for packet in &self.packets {
            // A packet that is repeated shares its bytes.
            if packet.offset < next {
                continue;
            }
            next = packet.offset.saturating_add(lines_of(packet.length) as u32);
            // SAFETY: the mappings have the same size; the new one is used here only.
            let image = unsafe {
                let start = line_in(&memory, packet).cast_mut().cast::<u8>();
                let length = usize::from(packet.length);
                start.copy_from_nonoverlapping(line_in(&self.memory, packet).cast(), length);
                std::slice::from_raw_parts_mut(start, length)
            };
            reference(image);
        }
        Ok(Self { images: Some(Images { memory, word }), ..self })
    }

    /// Sets the sequence of each packet, counted from 0: packets of a sequence are expected to return in the order in which
    /// they are sent. Without it each flow is a sequence.
    ///
    /// # Panics
    /// Panics unless there is one number per packet.
    #[must_use]
    pub fn with_sequences(self, sequences: Vec<u32>) -> Self {
        assert_eq!(sequences.len(), self.len(), "one sequence per packet");
        Self { sequences: Some(sequences), ..self }
    }

    /// Repeats the traffic until packets that are distributed round-robin over `pipes` pipes reach the same pipe in every round,
    /// and makes those of each pipe a sequence. `None` if it would be too many packets.
    pub fn for_round_robin(mut self, pipes: u32) -> Option<Self> {
        let (len, pipes) = (self.len(), pipes.max(1));
        let (mut divisor, mut rest) = (len, pipes as usize);
        while let Some(next) = divisor.checked_rem(rest) {
            (divisor, rest) = (rest, next);
        }
        let times = (pipes as usize).checked_div(divisor)?;
        let packets = len.checked_mul(times).filter(|packets| *packets <= MAX_PACKETS)?;
        // The copies share their bytes.
        self.packets = self.packets.repeat(times);
        let sequences = (0..pipes).cycle().take(packets).collect();
        Some(self.with_sequences(sequences))
    }

    /// Returns the sequence of each packet, or `None` if each flow is one.
    pub(crate) fn sequences(&self) -> Option<&[u32]> {
        self.sequences.as_deref()
    }

    /// Returns the number of packets, replayed from the first one, whose size on the wire is closest to `bytes`.
    pub fn packets_of(&self, bytes: u64) -> u64 {
        let (all, round) = (self.len() as u64, self.total_wire_bytes());
        let rounds = bytes.checked_div(round).unwrap_or(0);
        let mut left = bytes.saturating_sub(rounds.saturating_mul(round));
        let mut packets = rounds.saturating_mul(all);
        for packet in &self.packets {
            let each = u64::from(packet.wire_bytes());
            if left < each.div_ceil(2) {
                break;
            }
            packets = packets.saturating_add(1);
            left = left.saturating_sub(each);
        }
        packets
    }

    /// Returns the distinct destination addresses in ascending order.
    pub fn destinations(&self) -> Vec<Ipv4Addr> {
        let each: BTreeSet<_> = self.packets.iter().map(|packet| packet.flow.destination).collect();
        each.into_iter().collect()
    }
}

/// Number of bytes by which an image is recognised.
pub(crate) const WORD_BYTES: usize = size_of::<u64>();

/// Returns the first line of a packet in a mapping.
fn line_in(memory: &Mapping, packet: &Packet) -> *const CacheLine {
    memory.as_ptr().cast::<CacheLine>().wrapping_add(packet.offset as usize)
}

/// Returns the bytes of a packet in a mapping.
///
/// # Safety
/// The packet is inside the mapping, which is no longer written.
unsafe fn bytes_in<'a>(memory: &'a Mapping, packet: &Packet) -> &'a [u8] {
    let (first, length) = (line_in(memory, packet).cast(), usize::from(packet.length));
    // SAFETY: guaranteed by the caller.
    unsafe { std::slice::from_raw_parts(first, length) }
}

/// Allocates memory for packets.
///
/// # Errors
/// Returns an error if more than half of the free memory would be needed.
fn allocate(bytes: usize, what: &str) -> Result<Mapping, SysError> {
    let free = machine::proc::available_memory();
    // The kernel would overcommit, and kill some process once all of it is used.
    if bytes as u64 > free / 2 {
        return Err(SysError {
            attempt: format!("allocate {bytes} B for {what}"),
            source: io::Error::new(io::ErrorKind::OutOfMemory, format!("{free} B are free")),
            remedy: "use fewer packets".into(),
        });
    }
    Mapping::anonymous(bytes)
}

/// Returns the number of cache lines of a packet.
pub(crate) fn lines_of(length: u16) -> usize {
    usize::from(length.max(frame::MIN_LENGTH)).div_ceil(CACHE_LINE)
}

/// Builder of traffic in memory of a given size.
pub(crate) struct TrafficBuilder {
    memory: Mapping,
    filled: usize,
    packets: Vec<Packet>,
    marks: MarkPosition,
}

impl TrafficBuilder {
    /// Allocates memory for `lines` cache lines of packets with their marks at a position.
    ///
    /// # Errors
    /// Returns an error if `lines` is 0 or does not fit 32 bits, or memory is exhausted.
    pub(crate) fn new(lines: usize, marks: MarkPosition) -> Result<Self, SysError> {
        if u32::try_from(lines).is_err() {
            return Err(SysError {
                attempt: format!("allocate {lines} cache lines for packets"),
                source: io::Error::new(io::ErrorKind::InvalidInput, "the maximum is 2^32 - 1"),
                remedy: "use fewer packets".into(),
            });
        }
        let memory = allocate(lines.saturating_mul(CACHE_LINE), "packets")?;
        Ok(Self { memory, filled: 0, packets: Vec::new(), marks })
    }

    /// Appends a frame.
    ///
    /// # Panics
    /// Panics if the memory is too small, the frame too long, or the mark's place in the payload not zero.
    pub(crate) fn push(&mut self, bytes: &[u8], head: frame::Head) {
        assert!(bytes.len() <= usize::from(frame::MAX_LENGTH), "a frame of {} B", bytes.len());
        assert!(self.marks != MarkPosition::Payload || has_space(bytes), "no space for a mark");
        let length = (bytes.len() as u16).max(frame::MIN_LENGTH);
        let end = self.filled.saturating_add(lines_of(length));
        assert!(end <= self.memory.len() / CACHE_LINE, "more lines than allocated");
        let to =
            self.memory.as_mut_ptr().cast::<CacheLine>().wrapping_add(self.filled).cast::<u8>();
        // SAFETY: the bytes are inside the mapping, which only this builder uses; the memory after them is zero.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        // There are fewer than 2^32 lines.
        let offset = self.filled as u32;
        self.packets.push(Packet { offset, length, flow: head.flow, syn: head.syn });
        self.filled = end;
    }

    /// Returns the traffic, all of whose pages are present.
    pub(crate) fn finish(self) -> Traffic {
        let Self { memory, packets, marks, .. } = self;
        Traffic { memory, packets, marks, sequences: None, images: None }
    }
}

/// Returns whether a frame has zeros in its UDP payload in place of a mark. So its checksum is right with any mark.
fn has_space(frame: &[u8]) -> bool {
    let start = MarkPosition::Payload.offset();
    let end = start.saturating_add(MarkPosition::Payload.length());
    let stated = |at: usize| frame.get(at..).and_then(|bytes| bytes.first_chunk::<2>());
    let datagram = stated(ETHERNET.saturating_add(IPV4).saturating_add(4));
    let datagram = datagram.map_or(0, |length| usize::from(u16::from_be_bytes(*length)));
    let is_udp = frame.get(ETHERNET) == Some(&0x45) && frame.get(23) == Some(&UDP);
    let is_zero = frame.get(start..end).is_some_and(|mark| mark.iter().all(|byte| *byte == 0));
    is_udp && is_zero && datagram.saturating_add(ETHERNET).saturating_add(IPV4) >= end
}
