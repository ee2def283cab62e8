//! Packets: headers of Ethernet, IPv4, UDP and TCP.
//!
//! | packet | what the parser does |
//! | --- | --- |
//! | one VLAN tag | skips it |
//! | IPv4 options | skips them |
//! | padding after the IPv4 packet | ignores it |
//! | another protocol than UDP or TCP, e.g. ICMP | accepts it, with ports 0 |
//! | anything in [`Malformed`] | refuses it with that kind, which the application counts |
//! | a checksum | neither verifies nor changes it; an application can do both by [`checksum`] |

pub mod checksum;
pub mod malformed;
pub mod rewrite;

use std::ops::Range;

pub use malformed::{Malformed, MalformedCounts};

/// Length of an Ethernet header without tags, in bytes.
pub const ETHERNET: usize = 14;
/// Length of an IPv4 header without options, in bytes.
pub const IPV4: usize = 20;
/// Length of a UDP header, in bytes.
pub const UDP_HEADER: usize = 8;
/// Length of a TCP header without options, in bytes.
pub const TCP_HEADER: usize = 20;
/// Protocol number of TCP.
pub const TCP: u8 = 6;
/// Protocol number of UDP.
pub const UDP: u8 = 17;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_TAGS: [u16; 2] = [0x8100, 0x88a8];
/// Length of a VLAN tag, in bytes.
const TAG: usize = 4;
/// The more-fragments flag and the offset, but not the don't-fragment flag.
pub(crate) const FRAGMENT: u16 = 0x3fff;

/// Offsets of a packet's headers. All are within the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headers {
    /// Offset of the IPv4 header.
    pub ip: usize,
    /// Offset of the header after it.
    pub transport: usize,
    /// Offset of the first byte after the IPv4 packet.
    pub end: usize,
    /// Protocol number of the header after IPv4.
    pub protocol: u8,
    /// Offset of the payload of UDP or TCP; the header after IPv4 if it is another one.
    pub payload: usize,
    /// Offset of the first byte after the payload.
    pub payload_end: usize,
}

impl Headers {
    /// The headers of no packet.
    pub const NONE: Self =
        Self { ip: 0, transport: 0, end: 0, protocol: 0, payload: 0, payload_end: 0 };

    /// Parses a packet of UDP or TCP without tag and options, as most are; `None` if it is another or malformed one.
    ///
    /// The offsets are constants, so the code that uses them needs no checks. The result is that of [`parse`](Self::parse).
    #[inline(always)]
    pub fn plain(frame: &[u8]) -> Option<Self> {
        let head = frame.first_chunk::<54>()?;
        let total = usize::from(u16::from_be_bytes([head[16], head[17]]));
        let fragment = u16::from_be_bytes([head[20], head[21]]) & FRAGMENT;
        let is_ipv4 = head[12..15] == [8, 0, 0x45];
        let end = ETHERNET + total;
        if !is_ipv4 || fragment != 0 || end > frame.len() {
            return None;
        }
        let plain = |protocol, payload, payload_end| Self {
            ip: ETHERNET,
            transport: ETHERNET + IPV4,
            end,
            protocol,
            payload,
            payload_end,
        };
        match head[23] {
            UDP => {
                let length = usize::from(u16::from_be_bytes([head[38], head[39]]));
                let is_whole = length >= UDP_HEADER && IPV4 + length <= total;
                is_whole.then(|| plain(UDP, 42, 34 + length))
            }
            TCP => {
                let header = usize::from(head[46] >> 4) * 4;
                let is_whole = header >= TCP_HEADER && IPV4 + header <= total;
                is_whole.then(|| plain(TCP, 34 + header, end))
            }
            _ => None,
        }
    }

    /// Parses any packet. Reads nothing beyond it.
    ///
    /// # Errors
    /// Returns the first reason why the packet is refused.
    pub fn parse(frame: &[u8]) -> Result<Self, Malformed> {
        let ip = ip_offset(frame)?;
        let fixed: &[u8; IPV4] =
            frame.get(ip..).and_then(|bytes| bytes.first_chunk()).ok_or(Malformed::Short)?;
        let header = usize::from(fixed[0] & 15) * 4;
        if fixed[0] >> 4 != 4 || header < IPV4 {
            return Err(Malformed::IpHeader);
        }
        let total = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
        let (transport, end) = (ip + header, ip + total);
        if total < header || end > frame.len() {
            return Err(Malformed::IpLength);
        }
        if u16::from_be_bytes([fixed[6], fixed[7]]) & FRAGMENT != 0 {
            return Err(Malformed::Fragment);
        }
        let protocol = fixed[9];
        let segment = frame.get(transport..end).ok_or(Malformed::IpLength)?;
        let Range { start, end: last } = payload(protocol, segment)?;
        let (payload, payload_end) = (transport + start, transport + last);
        Ok(Self { ip, transport, end, protocol, payload, payload_end })
    }

    /// Returns whether the frame has a VLAN tag.
    pub fn has_tag(&self) -> bool {
        self.ip > ETHERNET
    }

    /// Returns whether the IPv4 header has options.
    pub fn has_options(&self) -> bool {
        self.transport - self.ip > IPV4
    }

    /// Returns whether there are ports.
    #[inline(always)]
    pub fn has_ports(&self) -> bool {
        self.protocol == UDP || self.protocol == TCP
    }

    /// Returns the flow of the packet that was parsed.
    #[inline(always)]
    pub fn flow(&self, frame: &[u8]) -> Flow {
        let addresses = u64::from_ne_bytes(read(frame, self.ip + 12));
        let ports =
            if self.has_ports() { u32::from_ne_bytes(read(frame, self.transport)) } else { 0 };
        Flow { addresses, ports: u64::from(ports) | u64::from(self.protocol) << 32 }
    }

    /// Returns the payload of the packet that was parsed.
    #[inline(always)]
    pub fn payload_of<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        frame.get(self.payload..self.payload_end).unwrap_or_default()
    }
}

/// The five fields that identify a connection, in the order of the packet's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Flow {
    /// Source and destination address, as in memory.
    pub addresses: u64,
    /// Bits 0 to 31: source and destination port, as in memory, or 0. Bits 32 to 39: the protocol number.
    pub ports: u64,
}

/// Returns `N` bytes of a packet; zeros if it does not have them.
#[inline(always)]
pub(crate) fn read<const N: usize>(frame: &[u8], at: usize) -> [u8; N] {
    frame.get(at..).and_then(|bytes| bytes.first_chunk()).copied().unwrap_or([0; N])
}

/// Replaces bytes of a packet. Does nothing if it does not have them.
#[inline(always)]
pub(crate) fn write<const N: usize>(frame: &mut [u8], at: usize, bytes: [u8; N]) {
    if let Some(place) = frame.get_mut(at..).and_then(|bytes| bytes.first_chunk_mut()) {
        *place = bytes;
    }
}

/// Returns the offset of the IPv4 header, after at most one tag.
fn ip_offset(frame: &[u8]) -> Result<usize, Malformed> {
    if frame.len() < ETHERNET {
        return Err(Malformed::Short);
    }
    let (mut at, mut ethertype) = (ETHERNET, u16::from_be_bytes(read(frame, ETHERNET - 2)));
    if ETHERTYPE_TAGS.contains(&ethertype) {
        at += TAG;
        if frame.len() < at {
            return Err(Malformed::Short);
        }
        ethertype = u16::from_be_bytes(read(frame, at - 2));
        if ETHERTYPE_TAGS.contains(&ethertype) {
            return Err(Malformed::Tags);
        }
    }
    match ethertype {
        ETHERTYPE_IPV4 => Ok(at),
        ETHERTYPE_IPV6 => Err(Malformed::Ipv6),
        _ => Err(Malformed::NotIp),
    }
}

/// Returns the payload's range in a segment, the bytes after the IPv4 header.
fn payload(protocol: u8, segment: &[u8]) -> Result<Range<usize>, Malformed> {
    match protocol {
        UDP => {
            if segment.len() < UDP_HEADER {
                return Err(Malformed::TransportHeader);
            }
            let length = usize::from(u16::from_be_bytes(read(segment, 4)));
            if length < UDP_HEADER || length > segment.len() {
                return Err(Malformed::UdpLength);
            }
            Ok(UDP_HEADER..length)
        }
        TCP => {
            let header = segment.get(12).map_or(0, |byte| usize::from(byte >> 4) * 4);
            if header < TCP_HEADER || header > segment.len() {
                return Err(Malformed::TransportHeader);
            }
            Ok(header..segment.len())
        }
        _ => Ok(0..segment.len()),
    }
}

#[cfg(test)]
pub(crate) mod tests;
