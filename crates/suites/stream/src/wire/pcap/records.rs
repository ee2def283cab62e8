//! The records of a packet file of any format.

use pcap_file::pcap::PcapParser;
use pcap_file::pcapng::PcapNgParser;
use pcap_file::{Endianness, PcapError};

use super::{Reason, Refused};

/// Magic numbers of classic files: either byte order, in microseconds and in nanoseconds.
const CLASSIC: [[u8; 4]; 4] = [
    [0xa1, 0xb2, 0xc3, 0xd4],
    [0xd4, 0xc3, 0xb2, 0xa1],
    [0xa1, 0xb2, 0x3c, 0x4d],
    [0x4d, 0x3c, 0xb2, 0xa1],
];

/// Magic number of pcapng files, the same in both byte orders.
const BLOCKS: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// Byte-order magic of pcapng files, after the first block's type and length.
const ORDERS: [[u8; 4]; 2] = [[0x1a, 0x2b, 0x3c, 0x4d], [0x4d, 0x3c, 0x2b, 0x1a]];

/// Bytes that identify a file's format.
pub(super) const HEAD: u64 = 12;

/// Checks the format of a file by its first [`HEAD`] bytes. A shorter file passes if it starts like one.
pub(super) fn check_head(bytes: &[u8]) -> Result<(), Reason> {
    let begins = |at: usize, magic: &[u8; 4]| {
        let bytes = bytes.get(at..).unwrap_or_default();
        magic.starts_with(&bytes[..bytes.len().min(magic.len())])
    };
    let is_blocks = begins(0, &BLOCKS) && ORDERS.iter().any(|order| begins(8, order));
    let is_known = is_blocks || CLASSIC.iter().any(|magic| begins(0, magic));
    if is_known { Ok(()) } else { Err(Reason::Magic) }
}

/// Type of the pcapng block of a packet.
const ENHANCED_PACKET: u32 = 6;

/// Types of obsolete packet blocks: one has no captured length.
const OLD_PACKETS: [u32; 2] = [2, 3];

/// A packet of a file.
pub(super) struct Record<'a> {
    pub(super) frame: &'a [u8],
    /// Captured and original length, in bytes.
    pub(super) captured: u32,
    pub(super) original: u32,
    /// Number of the link type.
    pub(super) link: u32,
}

/// Iterator over the records of a file. It ends after an error.
pub(super) struct Records<'a> {
    left: &'a [u8],
    format: Format,
}

enum Format {
    Classic(PcapParser),
    Blocks(Box<PcapNgParser>),
}

impl<'a> Records<'a> {
    /// Reads the file's header.
    pub(super) fn of(bytes: &'a [u8]) -> Result<Self, Refused> {
        let refuse = |error| (None, unreadable(error));
        check_head(bytes).map_err(|reason| (None, reason))?;
        if BLOCKS.starts_with(&bytes[..bytes.len().min(BLOCKS.len())]) {
            let (left, parser) = PcapNgParser::new(bytes).map_err(refuse)?;
            return Ok(Self { left, format: Format::Blocks(Box::new(parser)) });
        }
        let (left, parser) = PcapParser::new(bytes).map_err(refuse)?;
        Ok(Self { left, format: Format::Classic(parser) })
    }
}

/// Converts an error of the crate.
fn unreadable(error: PcapError) -> Reason {
    match error {
        PcapError::IncompleteBuffer => Reason::Cut,
        other => Reason::Form(other.to_string()),
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, Reason>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = match &mut self.format {
            Format::Classic(parser) => classic(parser, &mut self.left),
            Format::Blocks(parser) => enhanced(parser, &mut self.left),
        };
        if !matches!(record, Some(Ok(_))) {
            self.left = &[];
        }
        record
    }
}

/// Returns the part of `all` before `rest`.
fn read<'a>(all: &'a [u8], rest: &[u8]) -> &'a [u8] {
    all.split_at(all.len().saturating_sub(rest.len())).0
}

/// Returns the last `count` bytes.
fn last(bytes: &[u8], count: usize) -> &[u8] {
    bytes.split_at(bytes.len().saturating_sub(count)).1
}

/// Returns the next record of a classic file.
fn classic<'a>(parser: &PcapParser, left: &mut &'a [u8]) -> Option<Result<Record<'a>, Reason>> {
    if left.is_empty() {
        return None;
    }
    let Ok((rest, raw)) = parser.next_raw_packet(left) else {
        return Some(Err(Reason::Cut));
    };
    let frame = last(read(left, rest), raw.data.len());
    *left = rest;
    let link = parser.header().datalink.into();
    Some(Ok(Record { frame, captured: raw.incl_len, original: raw.orig_len, link }))
}

/// Returns the next packet of a pcapng file, skipping other blocks.
fn enhanced<'a>(
    parser: &mut PcapNgParser,
    left: &mut &'a [u8],
) -> Option<Result<Record<'a>, Reason>> {
    while !left.is_empty() {
        let (rest, block) = match parser.next_raw_block(left) {
            Ok(next) => next,
            Err(error) => return Some(Err(unreadable(error))),
        };
        // A block ends with its length, 4 B.
        let block_bytes = read(left, rest);
        let (block_bytes, _) = block_bytes.split_at(block_bytes.len().saturating_sub(4));
        let body = last(block_bytes, block.body.len());
        *left = rest;
        if block.type_ == ENHANCED_PACKET {
            let record = packet_of(parser, body);
            return Some(record.ok_or_else(|| {
                Reason::Form("its block is too short, or names no interface".to_owned())
            }));
        }
        if OLD_PACKETS.contains(&block.type_) {
            return Some(Err(Reason::Form(format!("in a block of type {}", block.type_))));
        }
    }
    None
}

/// Parses the body of a packet block: interface, two words of time, captured and original length, in bytes.
fn packet_of<'a>(parser: &PcapNgParser, body: &'a [u8]) -> Option<Record<'a>> {
    let word = |index: usize| {
        let bytes = *body.as_chunks().0.get(index)?;
        Some(match parser.section().endianness {
            Endianness::Big => u32::from_be_bytes(bytes),
            Endianness::Little => u32::from_le_bytes(bytes),
        })
    };
    let interface = parser.interfaces().get(word(0)? as usize)?;
    let (captured, original) = (word(3)?, word(4)?);
    let frame = body.get(20..)?.get(..captured as usize)?;
    Some(Record { frame, captured, original, link: interface.linktype.into() })
}
