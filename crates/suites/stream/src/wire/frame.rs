//! Parsing of frames: their flow, and why a frame cannot be replayed.

// Values in a file are unchecked sizes, and this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::net::Ipv4Addr;

use super::packet::{self, Flow};

/// Length of the shortest frame without the check sequence, in bytes; shorter ones are padded.
pub const MIN_LENGTH: u16 = packet::MIN_LENGTH as u16;

/// Length of the longest frame without the check sequence, in bytes.
pub const MAX_LENGTH: u16 = packet::MAX_LENGTH as u16;

/// Protocol number of TCP.
pub const TCP: u8 = 6;

/// Protocol number of UDP.
pub const UDP: u8 = 17;

/// Length of an Ethernet header, in bytes.
pub(crate) const ETHERNET: usize = packet::ETHERNET;

/// Length of an IPv4 header without options, in bytes.
pub(crate) const IPV4: usize = 20;

/// The parts of a frame's headers that the NIC uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The flow.
    pub flow: Flow,
    /// Whether it is TCP with SYN set.
    pub syn: bool,
}

/// Why a frame cannot be replayed, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Too short for both headers.
    #[error("{0} B are too short for an Ethernet and an IPv4 header, 34 B; remove the packet")]
    Short(usize),
    /// Longer than an Ethernet frame.
    #[error(
        "{0} B exceed 1514, the longest frame without check sequence; capture on the wire, or with \
         offloads off (ethtool -K IFACE gro off gso off tso off)"
    )]
    Long(usize),
    /// ARP, IPv6, VLAN, or anything else but IPv4.
    #[error(
        "{} (EtherType 0x{ethertype:04x}), not IPv4; keep only IPv4 (tcpdump -r IN -w OUT ip)",
        kind(*ethertype)
    )]
    NotIpv4 {
        /// The frame's EtherType; a length if below 0x0600.
        ethertype: u16,
    },
    /// An inconsistent IPv4 header.
    #[error("the IPv4 header has version {version} and a length of {header} B; remove the packet")]
    Header {
        /// Version in the header.
        version: u8,
        /// Length of the header in the header, in bytes.
        header: usize,
    },
    /// A fragment.
    #[error("a fragment, which has no ports; keep whole packets (tcpdump 'ip[6:2] & 0x3fff = 0')")]
    Fragment,
    /// The length in the IPv4 header differs from the frame's.
    #[error(
        "the IPv4 header gives a length of {stated} B, but the frame contains {has} B; remove the \
         packet"
    )]
    Length {
        /// Length in the header, in bytes.
        stated: usize,
        /// Length of the frame after its Ethernet header, in bytes.
        has: usize,
    },
    /// Too short for the TCP or UDP header.
    #[error(
        "{has} B of payload are too short for the header of protocol {protocol}; remove the packet"
    )]
    Transport {
        /// Protocol number.
        protocol: u8,
        /// Length of the payload, in bytes.
        has: usize,
    },
}

/// Parses a frame without its check sequence. Checksums are not verified, as in the NIC.
///
/// # Errors
/// Returns the first reason why the frame cannot be replayed.
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

/// Returns the payload of the IPv4 packet, without Ethernet padding.
fn payload<'a>(fixed: &[u8; IPV4], ip: &'a [u8]) -> Result<&'a [u8], FrameError> {
    let (version, header) = (fixed[0] >> 4, usize::from(fixed[0] & 15) * 4);
    if version != 4 || header < IPV4 {
        return Err(FrameError::Header { version, header });
    }
    let stated = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
    let padded = ip.len() > stated && ip.len().saturating_add(ETHERNET) <= usize::from(MIN_LENGTH);
    let payload = ip.get(header..stated).filter(|_| ip.len() == stated || padded);
    // The more-fragments flag and the offset, but not the don't-fragment flag.
    if u16::from_be_bytes([fixed[6], fixed[7]]) & 0x3fff != 0 {
        return Err(FrameError::Fragment);
    }
    payload.ok_or(FrameError::Length { stated, has: ip.len() })
}

/// Returns source port, destination port, and whether SYN is set.
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

/// Returns the name of an EtherType.
fn kind(ethertype: u16) -> &'static str {
    match ethertype {
        0..0x0600 => "an IEEE 802.3 frame",
        0x0806 => "ARP",
        0x8100 | 0x88a8 => "VLAN",
        0x86dd => "IPv6",
        _ => "another protocol",
    }
}
