//! Samples: traffic that is made, not captured.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use machine::SysError;

use super::frame::{ETHERNET, Head, IPV4, MAX_LENGTH, MIN_LENGTH, UDP};
use super::packet::Flow;
use super::traffic::{Filling, Traffic, lines_of};

#[cfg(test)]
mod tests;

/// The first source and the first destination; others count up from it.
pub const FIRST: Ipv4Addr = Ipv4Addr::new(192, 168, 0, 0);

/// The port that all packets come from.
pub const SOURCE_PORT: u16 = 8080;

/// The port that all packets go to.
pub const DESTINATION_PORT: u16 = 80;

/// Bytes of the smallest packet on the wire, with its check sequence.
pub const MIN_SIZE: u16 = MIN_LENGTH + CHECK_SEQUENCE;

/// Bytes of the largest packet on the wire, with its check sequence.
pub const MAX_SIZE: u16 = MAX_LENGTH + CHECK_SEQUENCE;

const CHECK_SEQUENCE: u16 = 4;

/// The sizes of the mix that stands for the internet's, 7 to 4 to 1, spread over its 12 packets.
const MIX: [u16; 12] = [64, 594, 64, 64, 594, 64, 1518, 64, 594, 64, 64, 594];

/// UDP packets over IPv4: packet i comes from source i modulo the sources and goes to destination i
/// modulo the destinations, from port 8080 to port 80.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleTraffic {
    /// How many packets.
    pub packets: u32,
    /// How large they are.
    pub size: Sizes,
    /// From how many addresses they come.
    pub sources: u32,
    /// To how many addresses they go.
    pub destinations: u32,
}

/// Sizes on the wire, with the check sequence of 4 B.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sizes {
    /// All alike: 64 to 1518 B.
    One(u16),
    /// Seven of 64 B to four of 594 B and one of 1518 B, again every 12 packets.
    Mixed,
    /// 64 to 1518 B, each size once, again every 1455 packets.
    Each,
}

impl Sizes {
    /// Packets after which the sizes begin anew. Where every destination is to see every size, their number
    /// must share no factor with it.
    pub fn cycle(self) -> u32 {
        match self {
            Self::One(_) => 1,
            Self::Mixed => MIX.len() as u32,
            Self::Each => u32::from(MAX_SIZE - MIN_SIZE) + 1,
        }
    }

    /// The size of a packet in bytes, check sequence counted; the first packet is 0.
    pub fn of_packet(self, index: u32) -> u16 {
        // Every cycle is shorter than 2^16.
        let step = (index % self.cycle()) as u16;
        match self {
            Self::One(size) => size,
            Self::Mixed => MIX[usize::from(step)],
            Self::Each => MIN_SIZE + step,
        }
    }
}

/// Why a sample cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    /// No such packet.
    #[error("packets of {0} B cannot be made: ask for 64 to 1518 B, the check sequence counted")]
    Size(u16),
    /// No packets, or no addresses.
    #[error(
        "a sample of {packets} packets, {sources} sources, {destinations} destinations: ask for one of \
         each at least"
    )]
    Nothing {
        /// Packets asked for.
        packets: u32,
        /// Sources asked for.
        sources: u32,
        /// Destinations asked for.
        destinations: u32,
    },
    /// More packets than anybody sends.
    #[error("{0} packets are too many: ask for {PACKETS} or fewer")]
    Packets(u32),
    /// More addresses than there are above the first.
    #[error("{0} addresses do not fit above 192.168.0.0: ask for {ADDRESSES} or fewer")]
    Addresses(u32),
    /// A name that is not a sample's.
    #[error(
        "{0} is not a sample's name: write <packets>_<size>_<sources>_<destinations>.pcap, as \
         2_64_1_2.pcap; sizes are 64 to 1518, mixed, or each"
    )]
    Name(String),
    /// There is no memory for it.
    #[error(transparent)]
    Memory(#[from] SysError),
}

/// Packets of a sample at most: thousands for each pipe of the NIC.
const PACKETS: u32 = 1 << 24;

/// How many addresses there are from the first up.
const ADDRESSES: u32 = u32::MAX - FIRST.to_bits() + 1;

impl SampleTraffic {
    /// Makes the packets. The same sample is the same bytes, always.
    ///
    /// # Errors
    /// What cannot be made, or memory that the kernel cannot give.
    pub fn traffic(&self) -> Result<Traffic, SampleError> {
        self.check()?;
        let mut filling = Filling::of(self.lines())?;
        for index in 0..self.packets {
            let flow = self.flow(index);
            let frame = frame(&flow, self.size.of_packet(index), index);
            filling.push(&frame, Head { flow, syn: false });
        }
        Ok(filling.finish())
    }

    fn check(&self) -> Result<(), SampleError> {
        let Self { packets, size, sources, destinations } = *self;
        if let Sizes::One(size) = size
            && !(MIN_SIZE..=MAX_SIZE).contains(&size)
        {
            return Err(SampleError::Size(size));
        }
        if packets == 0 || sources == 0 || destinations == 0 {
            return Err(SampleError::Nothing { packets, sources, destinations });
        }
        if packets > PACKETS {
            return Err(SampleError::Packets(packets));
        }
        match sources.max(destinations) {
            most if most > ADDRESSES => Err(SampleError::Addresses(most)),
            _ => Ok(()),
        }
    }

    /// Lines that all packets take.
    fn lines(&self) -> usize {
        let first = |packets: u32| {
            let sizes = (0..packets).map(|index| self.size.of_packet(index));
            sizes.map(|size| lines_of(size - CHECK_SEQUENCE)).sum::<usize>()
        };
        let cycle = self.size.cycle();
        (self.packets / cycle) as usize * first(cycle) + first(self.packets % cycle)
    }

    /// The flow of a packet.
    fn flow(&self, index: u32) -> Flow {
        let address = |of: u32| Ipv4Addr::from_bits(FIRST.to_bits() + index % of);
        Flow {
            source: address(self.sources),
            destination: address(self.destinations),
            source_port: SOURCE_PORT,
            destination_port: DESTINATION_PORT,
            protocol: UDP,
        }
    }
}

/// A frame of a size, filled by a pattern of its own.
fn frame(flow: &Flow, size: u16, index: u32) -> Vec<u8> {
    let packet = size - CHECK_SEQUENCE - ETHERNET as u16;
    let mut frame = Vec::with_capacity(usize::from(size));
    // Addresses of local administration, so that they are nobody's.
    frame.extend([0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1, 0x08, 0x00]);
    let [high, low] = packet.to_be_bytes();
    frame.extend([0x45, 0, high, low, 0, 1, 0, 0, 64, flow.protocol, 0, 0]);
    frame.extend(flow.source.octets());
    frame.extend(flow.destination.octets());
    let datagram = packet - IPV4 as u16;
    for field in [flow.source_port, flow.destination_port, datagram, 0] {
        frame.extend(field.to_be_bytes());
    }
    let payload = usize::from(datagram) - 8;
    frame.extend(pattern(index).flat_map(u64::to_le_bytes).take(payload));
    put_checksums(&mut frame, datagram);
    frame
}

/// Words that look drawn by chance and are the same at every run: SplitMix64, begun at the packet.
fn pattern(index: u32) -> impl Iterator<Item = u64> {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    (1_u64..).map(move |word| {
        let seed = (u64::from(index) << 32).wrapping_add(word.wrapping_mul(STEP));
        let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    })
}

/// Puts the IPv4 header's checksum and the datagram's, whose fields are zero as yet.
fn put_checksums(frame: &mut [u8], datagram: u16) {
    let (headers, udp) = frame.split_at_mut(ETHERNET + IPV4);
    let ip = &mut headers[ETHERNET..];
    let sum = folded(sum_of(ip));
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    // The datagram's counts the addresses, the protocol and its length too.
    let addresses = sum_of(&ip[12..]) + u32::from(ip[9]) + u32::from(datagram);
    let sum = folded(addresses + sum_of(udp));
    // Zero would say that there is none.
    let sum = if sum == 0 { 0xffff } else { sum };
    udp[6..8].copy_from_slice(&sum.to_be_bytes());
}

/// The sum of big-endian words; a last byte is a word's upper half. Packets are too short to overflow it.
fn sum_of(bytes: &[u8]) -> u32 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
    bytes.chunks(2).map(word).sum()
}

/// The ones' complement of the ones' complement sum.
fn folded(sum: u32) -> u16 {
    let once = (sum & 0xffff) + (sum >> 16);
    !((once & 0xffff) + (once >> 16)) as u16
}

/// Its file's name: `2_64_1_2.pcap`.
impl fmt::Display for SampleTraffic {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}_{}_{}_{}.pcap", self.packets, self.size, self.sources, self.destinations)
    }
}

/// Of its file's name.
impl FromStr for SampleTraffic {
    type Err = SampleError;

    fn from_str(name: &str) -> Result<Self, SampleError> {
        let parts: Vec<_> = name.strip_suffix(".pcap").unwrap_or_default().split('_').collect();
        let sample = match parts[..] {
            [packets, size, sources, destinations] => (|| {
                let number = |digits: &str| digits.parse().ok();
                Some(Self {
                    packets: number(packets)?,
                    size: size.parse().ok()?,
                    sources: number(sources)?,
                    destinations: number(destinations)?,
                })
            })(),
            _ => None,
        };
        let sample = sample.ok_or_else(|| SampleError::Name(name.to_owned()))?;
        sample.check().map(|()| sample)
    }
}

/// As in a sample's name: `64`, `mixed` or `each`.
impl fmt::Display for Sizes {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(size) => write!(to, "{size}"),
            Self::Mixed => to.write_str("mixed"),
            Self::Each => to.write_str("each"),
        }
    }
}

/// As in a sample's name.
impl FromStr for Sizes {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "mixed" => Ok(Self::Mixed),
            "each" => Ok(Self::Each),
            size => size.parse().map(Self::One),
        }
    }
}
