//! Files of packets. What cannot be replayed as it was captured is refused, never mended or left out.

// What a file says is no size until it is checked: this crate is compiled without overflow checks.
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
use super::traffic::{Filling, Traffic, lines_of};

mod records;
#[cfg(test)]
mod tests;

use records::{Record, Records};

/// Why a file of packets was refused: where, why, and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{}{}: {reason}", path.display(), packet.map(|n| format!(": packet {n}")).unwrap_or_default())]
pub struct PcapError {
    /// The file.
    pub path: PathBuf,
    /// The packet, counted from 1; none where it is the file itself.
    pub packet: Option<u64>,
    /// What is wrong, and the remedy.
    pub reason: Reason,
}

/// What is wrong with a file of packets, and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Reason {
    /// The system does not let it be read.
    #[error("it cannot be read ({0}): {fix}", fix = fix(.0))]
    Unreadable(io::Error),
    /// It holds more bytes than are read.
    #[error("it holds more than {}: cut it, e.g. editcap -c 1000000 IN OUT", quantity::format_bytes(*.0))]
    Large(u64),
    /// The system does not let it be written.
    #[error("it cannot be written ({0}): {fix}", fix = remedy(.0))]
    Unwritable(io::Error),
    /// It is another kind of file.
    #[error("it does not begin as a pcap or pcapng file does: give one, as tcpdump -w writes it")]
    Magic,
    /// The link is not Ethernet, or its frames hold the check sequence.
    #[error("its link type is {0}, not Ethernet, 1: capture on an Ethernet interface")]
    LinkType(u32),
    /// The file ends inside its head, a packet, or a block.
    #[error("it is cut off by the file's end: copy or capture the file again")]
    Cut,
    /// The capture kept a part only.
    #[error("{captured} of its {original} B were captured: capture whole packets (tcpdump -s 0)")]
    Snapped {
        /// Bytes in the file.
        captured: u32,
        /// Bytes that it had.
        original: u32,
    },
    /// The file says that more was captured than there was.
    #[error("{captured} B were captured of {original}, which cannot be: capture the file again")]
    Swollen {
        /// Bytes in the file.
        captured: u32,
        /// Bytes that it had.
        original: u32,
    },
    /// A pcapng file that is not as the format says, or is of an old form.
    #[error("{0}: write it as classic pcap (editcap -F pcap IN OUT), or capture it again")]
    Form(String),
    /// The frame cannot be replayed.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// There is nothing in it.
    #[error("it holds no packets: capture some, or make a sample")]
    Empty,
    /// There is no memory for its packets.
    #[error(transparent)]
    Memory(#[from] SysError),
}

/// Bytes of a file at most: it is read as a whole.
const LARGEST: u64 = 1 << 30;

/// What helps if a file cannot be read.
fn fix(why: &io::Error) -> &'static str {
    match why.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => "name a file that is there",
        ErrorKind::PermissionDenied => "name a file that you may read",
        ErrorKind::IsADirectory => "name a file in it",
        ErrorKind::OutOfMemory => "free memory, or cut the file, e.g. editcap -c 1000000 IN OUT",
        _ => "copy it to another place, or name another file",
    }
}

/// A reason, and the packet that it is about.
type Refused = (Option<u64>, Reason);

impl PcapError {
    /// Whether the file is wrong, and not the system that it is read or written on.
    pub fn is_usage(&self) -> bool {
        !matches!(self.reason, Reason::Memory(_) | Reason::Unwritable(_))
    }
}

/// Reads a file: classic pcap of either byte order, in microseconds or nanoseconds, or pcapng. Times are
/// not kept.
///
/// # Errors
/// The first thing for which the file cannot be replayed: see [`Reason`] and [`FrameError`].
pub fn read(path: &Path) -> Result<Traffic, PcapError> {
    let refuse = |(packet, reason)| PcapError { path: path.to_path_buf(), packet, reason };
    let most = (machine::memory::available() / 4).min(LARGEST);
    let bytes = File::open(path).map_err(Reason::Unreadable).and_then(|file| load(file, most));
    decode(&bytes.map_err(|reason| refuse((None, reason)))?).map_err(refuse)
}

/// Reads a file of `most` bytes or fewer, and of another kind of file only its beginning.
fn load(mut file: impl Read, most: u64) -> Result<Vec<u8>, Reason> {
    let mut bytes = Vec::new();
    let head = file.by_ref().take(records::HEAD).read_to_end(&mut bytes);
    head.map_err(Reason::Unreadable)?;
    records::check_head(&bytes)?;
    let rest =
        file.take(most.saturating_add(1).saturating_sub(records::HEAD)).read_to_end(&mut bytes);
    rest.map_err(Reason::Unreadable)?;
    if bytes.len() as u64 > most { Err(Reason::Large(most)) } else { Ok(bytes) }
}

/// Writes the packets as classic pcap, little-endian, in microseconds; all times are zero.
///
/// # Errors
/// Where the system refuses to write.
pub fn write(path: &Path, traffic: &Traffic) -> Result<(), PcapError> {
    let written = Output::create(path).and_then(|mut file| {
        encode(&mut file, traffic)?;
        file.finish()
    });
    let refuse =
        |why| PcapError { path: path.to_path_buf(), packet: None, reason: Reason::Unwritable(why) };
    written.map_err(refuse)
}

/// The packets of a file's bytes.
fn decode(bytes: &[u8]) -> Result<Traffic, Refused> {
    let mut heads = Vec::new();
    for (number, record) in (1..).zip(Records::of(bytes)?) {
        let frame = whole(record).map_err(|reason| (Some(number), reason))?;
        let head = frame::read(frame).map_err(|fault| (Some(number), fault.into()))?;
        heads.push((frame, head));
    }
    if heads.is_empty() {
        return Err((None, Reason::Empty));
    }
    // No frame that was read is longer than 1514 B.
    let lines = heads.iter().map(|(frame, _)| lines_of(frame.len() as u16)).sum();
    let mut filling = Filling::of(lines).map_err(|refusal| (None, refusal.into()))?;
    heads.into_iter().for_each(|(frame, head)| filling.push(frame, head));
    Ok(filling.finish())
}

/// The frame of a record that holds all of it.
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

/// Writes the packets as a file's bytes.
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

/// What the system said, as the crate wraps it.
fn system(error: pcap_file::PcapError) -> io::Error {
    match error {
        pcap_file::PcapError::IoError(why) => why,
        other => io::Error::other(other),
    }
}
