//! Packet files. A file that cannot be replayed exactly as captured is refused, not repaired or filtered.

// Values in a file are unchecked sizes, and this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lab::quantity;
use machine::SysError;
use machine::file::{Output, remedy};
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::{DataLink, Endianness};

use super::frame::{self, FrameError};
use super::mark::MarkPosition;
use super::traffic::{Traffic, TrafficBuilder, lines_of};

mod records;
#[cfg(test)]
mod tests;

use records::{Record, Records};

/// Why a packet file was refused: file, packet, cause and fix.
#[derive(Debug, thiserror::Error)]
#[error("{}{}: {reason}", path.display(), packet.map(|n| format!(": packet {n}")).unwrap_or_default())]
pub struct PcapError {
    /// The file.
    pub path: PathBuf,
    /// Number of the packet, from 1; `None` if the error concerns the whole file.
    pub packet: Option<u64>,
    /// Cause and fix.
    pub reason: Reason,
}

/// Cause and fix of a [`PcapError`].
#[derive(Debug, thiserror::Error)]
pub enum Reason {
    /// The file cannot be read.
    #[error("cannot be read ({0}); {fix}", fix = fix(.0))]
    Unreadable(io::Error),
    /// The file exceeds the size limit.
    #[error("larger than {}; cut it, e.g. editcap -c 1000000 IN OUT", quantity::format_bytes(*.0))]
    Large(u64),
    /// The file cannot be written.
    #[error("cannot be written ({0}); {fix}", fix = remedy(.0))]
    Unwritable(io::Error),
    /// The file is not a packet file.
    #[error("not a pcap or pcapng file; use one, e.g. as written by tcpdump -w")]
    Magic,
    /// The link type is not Ethernet, or its frames contain the check sequence.
    #[error("link type {0} instead of Ethernet, 1; capture on an Ethernet interface")]
    LinkType(u32),
    /// The file ends inside its header, a packet, or a block.
    #[error("cut off by the end of the file; copy or capture the file again")]
    Cut,
    /// The packet was captured in part.
    #[error("{captured} of {original} B were captured; capture whole packets (tcpdump -s 0)")]
    Snapped {
        /// Captured length, in bytes.
        captured: u32,
        /// Original length, in bytes.
        original: u32,
    },
    /// The captured length exceeds the original length.
    #[error("{captured} B were captured of only {original} B; capture the file again")]
    Swollen {
        /// Captured length, in bytes.
        captured: u32,
        /// Original length, in bytes.
        original: u32,
    },
    /// A pcapng file that is invalid or of an old format.
    #[error("{0}; convert the file to classic pcap (editcap -F pcap IN OUT), or capture it again")]
    Form(String),
    /// The frame cannot be replayed.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The file contains no packets.
    #[error("no packets; capture some, or generate sample traffic")]
    Empty,
    /// Memory for the packets is exhausted.
    #[error(transparent)]
    Memory(#[from] SysError),
}

/// Size limit of a file, which is read as a whole, in bytes.
const MAX_FILE: u64 = 1 << 30;

/// Returns the fix if a file cannot be read.
fn fix(why: &io::Error) -> &'static str {
    match why.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => "name an existing file",
        ErrorKind::PermissionDenied => "name a readable file",
        ErrorKind::IsADirectory => "name a file in it",
        ErrorKind::OutOfMemory => "free memory, or cut the file, e.g. editcap -c 1000000 IN OUT",
        _ => "copy it to another place, or name another file",
    }
}

/// A cause, and the number of the packet that it concerns.
type Refused = (Option<u64>, Reason);

impl PcapError {
    /// Returns whether the file is wrong, rather than the system.
    pub fn is_usage(&self) -> bool {
        !matches!(self.reason, Reason::Memory(_) | Reason::Unwritable(_))
    }
}

/// Reads a file: classic pcap of either byte order, in microseconds or nanoseconds, or pcapng. Times are ignored.
///
/// # Errors
/// Returns the first reason why the file cannot be replayed: see [`Reason`] and [`FrameError`].
pub fn read(path: &Path) -> Result<Traffic, PcapError> {
    let refuse = |(packet, reason)| PcapError { path: path.to_path_buf(), packet, reason };
    let max = (machine::proc::available_memory() / 4).min(MAX_FILE);
    let bytes = File::open(path).map_err(Reason::Unreadable).and_then(|file| load(file, max));
    decode(&bytes.map_err(|reason| refuse((None, reason)))?).map_err(refuse)
}

/// Reads a file of at most `max` bytes. Reads only the start of files that are not packet files.
fn load(mut file: impl Read, max: u64) -> Result<Vec<u8>, Reason> {
    let mut bytes = Vec::new();
    let head = file.by_ref().take(records::HEAD).read_to_end(&mut bytes);
    head.map_err(Reason::Unreadable)?;
    records::check_head(&bytes)?;
    let rest =
        file.take(max.saturating_add(1).saturating_sub(records::HEAD)).read_to_end(&mut bytes);
    rest.map_err(Reason::Unreadable)?;
    if bytes.len() as u64 > max { Err(Reason::Large(max)) } else { Ok(bytes) }
}

/// Writes the packets as classic pcap, little-endian, in microseconds, with all times zero.
///
/// # Errors
/// Returns why the file cannot be written.
pub fn write(path: &Path, traffic: &Traffic) -> Result<(), PcapError> {
    let written = Output::create(path).and_then(|mut file| {
        encode(&mut file, traffic)?;
        file.finish()
    });
    let refuse =
        |why| PcapError { path: path.to_path_buf(), packet: None, reason: Reason::Unwritable(why) };
    written.map_err(refuse)
}

/// Decodes the contents of a file.
fn decode(bytes: &[u8]) -> Result<Traffic, Refused> {
    let mut heads = Vec::new();
    for (number, record) in (1..).zip(Records::of(bytes)?) {
        let frame = whole(record).map_err(|reason| (Some(number), reason))?;
        let head = frame::read(frame).map_err(|error| (Some(number), error.into()))?;
        heads.push((frame, head));
    }
    if heads.is_empty() {
        return Err((None, Reason::Empty));
    }
    // Frames are at most 1514 B long.
    let lines = heads.iter().map(|(frame, _)| lines_of(frame.len() as u16)).sum();
    // Everything from the IPv4 header on is sent as in the file.
    let builder = TrafficBuilder::new(lines, MarkPosition::Addresses);
    let mut builder = builder.map_err(|error| (None, error.into()))?;
    heads.into_iter().for_each(|(frame, head)| builder.push(frame, head));
    Ok(builder.finish())
}

/// Returns the frame of a record that was captured whole.
fn whole(record: Result<Record<'_>, Reason>) -> Result<&[u8], Reason> {
    let Record { frame, captured, original, link } = record?;
    if link != u32::from(DataLink::ETHERNET) {
        return Err(Reason::LinkType(link));
    }
    match captured.cmp(&original) {
        std::cmp::Ordering::Less => Err(Reason::Snapped { captured, original }),
        std::cmp::Ordering::Greater => Err(Reason::Swollen { captured, original }),
        std::cmp::Ordering::Equal => Ok(frame),
    }
}

/// Encodes the packets as a file.
fn encode(to: &mut impl Write, traffic: &Traffic) -> io::Result<()> {
    let header = PcapHeader { endianness: Endianness::Little, ..PcapHeader::default() };
    let mut writer = PcapWriter::with_header(to, header).map_err(system)?;
    for index in 0..traffic.len() {
        let frame = traffic.bytes(index);
        let packet = PcapPacket::new(Duration::ZERO, frame.len() as u32, frame);
        writer.write_packet(&packet).map_err(system)?;
    }
    Ok(())
}

/// Returns the system's error that the crate wraps.
fn system(error: pcap_file::PcapError) -> io::Error {
    match error {
        pcap_file::PcapError::IoError(why) => why,
        other => io::Error::other(other),
    }
}
