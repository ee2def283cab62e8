//! A frame: what of it tells the flow, and what makes it one that cannot be replayed.

// What a file says is no size until it is checked: this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::net::Ipv4Addr;

use super::packet::Flow;

/// Bytes of the shortest frame, without the check sequence; shorter ones are padded.
pub const MIN_LENGTH: u16 = 60;

/// Bytes of the longest frame, without the check sequence.
pub const MAX_LENGTH: u16 = 1514;

/// The number of TCP.
pub const TCP: u8 = 6;

/// The number of UDP.
pub const UDP: u8 = 17;

/// Bytes of an Ethernet header.
pub(crate) const ETHERNET: usize = 14;

/// Bytes of an IPv4 header without options.
pub(crate) const IPV4: usize = 20;

/// What the NIC reads of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Its five fields.
    pub flow: Flow,
    /// Whether it is TCP with SYN set.
    pub syn: bool,
}

/// Why a frame cannot be replayed, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// It does not hold the two headers.
    #[error("its {0} B do not hold an Ethernet and an IPv4 header, 34 B: leave it out")]
    Short(usize),
    /// It is longer than Ethernet's frames.
    #[error(
        "its {0} B are over 1514, the longest frame without check sequence: capture on the wire, or with \
         offloads off (ethtool -K IFACE gro off gso off tso off)"
    )]
    Long(usize),
    /// It is ARP, IPv6, tagged, or anything else but IPv4.
    #[error(
        "it is {} (EtherType 0x{ethertype:04x}), not IPv4: keep IPv4 alone (tcpdump -r IN -w OUT ip)",
        kind(*ethertype)
    )]
    NotIpv4 {
        /// What the frame says that it is; under 0x0600 a length.
        ethertype: u16,
    },
    /// The header contradicts itself.
    #[error("its IPv4 header says version {version} and {header} B of header: leave it out")]
    Header {
        /// The version that it says.
        version: u8,
        /// Bytes of header that it says.
        header: usize,
    },
    /// A part of a packet.
    #[error(
        "it is a fragment, which has no ports: keep whole packets (tcpdump 'ip[6:2] & 0x3fff = 0')"
    )]
    Fragment,
    /// The header says another length than the frame has.
    #[error("its IPv4 header says {said} B and the frame has {has} B for it: leave it out")]
    Length {
        /// Bytes that the header says.
        said: usize,
        /// Bytes of the frame behind its Ethernet header.
        has: usize,
    },
    /// It is TCP or UDP by name, and too short for it.
    #[error("its {has} B of payload do not hold the header of protocol {protocol}: leave it out")]
    Transport {
        /// The protocol's number.
        protocol: u8,
        /// Bytes behind the IPv4 header.
        has: usize,
    },
}

/// Reads a frame without its check sequence. Check sums are not looked at, as the NIC does not.
///
/// # Errors
/// The first thing for which the frame cannot be replayed.
pub fn read(frame: &[u8]) -> Result<Head, FrameError> {
    if frame.len() > usize::from(MAX_LENGTH) {
        return Err(FrameError::Long(frame.len()));
    }
    let (Some(ethernet), Some(ip)) = (frame.first_chunk::<ETHERNET>(), frame.get(ETHERNET..))
    else {
        return Err(FrameError::Short(frame.len()));
    };
    let ethertype = u16::from_be_bytes([ethernet[12], ethernet[13]]);
    if ethertype != 0x0800 {
        return Err(FrameError::NotIpv4 { ethertype });
    }
    let Some(fixed) = ip.first_chunk::<IPV4>() else {
        return Err(FrameError::Short(frame.len()));
    };
    let payload = payload(fixed, ip)?;
    let protocol = fixed[9];
    let (source_port, destination_port, syn) = ports(protocol, payload)?;
    let flow = Flow {
        source: Ipv4Addr::new(fixed[12], fixed[13], fixed[14], fixed[15]),
        destination: Ipv4Addr::new(fixed[16], fixed[17], fixed[18], fixed[19]),
        source_port,
        destination_port,
        protocol,
    };
    Ok(Head { flow, syn })
}

/// What is behind the IPv4 header, the Ethernet padding taken off.
fn payload<'a>(fixed: &[u8; IPV4], ip: &'a [u8]) -> Result<&'a [u8], FrameError> {
    let (version, header) = (fixed[0] >> 4, usize::from(fixed[0] & 15) * 4);
    if version != 4 || header < IPV4 {
        return Err(FrameError::Header { version, header });
    }
    let said = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
    let padded = ip.len() > said && ip.len().saturating_add(ETHERNET) <= usize::from(MIN_LENGTH);
    let payload = ip.get(header..said).filter(|_| ip.len() == said || padded);
    // More fragments, or an offset; not the bit that forbids to fragment.
    if u16::from_be_bytes([fixed[6], fixed[7]]) & 0x3fff != 0 {
        return Err(FrameError::Fragment);
    }
    payload.ok_or(FrameError::Length { said, has: ip.len() })
}

/// The ports from and to, and whether SYN is set.
fn ports(protocol: u8, payload: &[u8]) -> Result<(u16, u16, bool), FrameError> {
    let header = match protocol {
        TCP => 20,
        UDP => 8,
        _ => return Ok((0, 0, false)),
    };
    let ports = payload.as_chunks().0;
    let &[source, destination, ..] = ports.get(..header / 2).unwrap_or_default() else {
        return Err(FrameError::Transport { protocol, has: payload.len() });
    };
    let syn = protocol == TCP && payload[13] & 2 != 0;
    Ok((u16::from_be_bytes(source), u16::from_be_bytes(destination), syn))
}

/// What frames of an EtherType are called.
fn kind(ethertype: u16) -> &'static str {
    match ethertype {
        0..0x0600 => "an IEEE 802.3 frame",
        0x0806 => "ARP",
        0x8100 | 0x88a8 => "VLAN",
        0x86dd => "IPv6",
        _ => "another protocol",
    }
}
