//! Sample traffic: generated packets.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use machine::SysError;

use super::build::{self, HEADERS};
use super::frame::{Head, MAX_LENGTH, MIN_LENGTH, UDP};
use super::mark::MarkPosition;
use super::packet::Flow;
use super::traffic::{MAX_PACKETS, Traffic, TrafficBuilder, lines_of};

#[cfg(test)]
mod tests;

/// The first source and the first destination address.
pub const FIRST: Ipv4Addr = Ipv4Addr::new(192, 168, 0, 0);

/// Source port of all packets.
pub const SOURCE_PORT: u16 = 8080;

/// Destination port of all packets.
pub const DESTINATION_PORT: u16 = 80;

/// Size of the smallest packet on the wire with its check sequence, in bytes.
pub const MIN_SIZE: u16 = MIN_LENGTH + CHECK_SEQUENCE;

/// Size of the largest packet on the wire with its check sequence, in bytes.
pub const MAX_SIZE: u16 = MAX_LENGTH + CHECK_SEQUENCE;

/// Size of the check sequence, which packets have on the wire but not in memory, in bytes.
pub const CHECK_SEQUENCE: u16 = 4;

/// Packet sizes of the simple Internet mix (IMIX), in bytes: IPv4 packets of 40, 576 and 1500 B as 7:4:1, which on Ethernet have
/// 18 B more and at least 64 B.
const IMIX: [u16; 12] = [64, 594, 64, 64, 594, 64, 1518, 64, 594, 64, 64, 594];

/// Generated UDP packets over IPv4. Packet *i* has source address *i* modulo `sources` and destination address *i*
/// modulo `destinations`, and goes from port 8080 to port 80. Consecutive packets have consecutive sizes, and so have the
/// packets to each destination. Checksums are right; the payload has space for a [mark](super::mark).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleTraffic {
    /// Number of packets.
    pub packets: u32,
    /// Sizes of the packets.
    pub size: Sizes,
    /// Number of source addresses.
    pub sources: u32,
    /// Number of destination addresses.
    pub destinations: u32,
}

/// Packet sizes on the wire, with the check sequence of 4 B.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sizes {
    /// One size from 64 to 1518 B.
    One(u16),
    /// The simple Internet mix: 64 B, 594 B and 1518 B as 7:4:1, repeated every 12 packets of a flow.
    Imix,
    /// Each size from 64 to 1518 B once, repeated every 1455 packets of a flow.
    Each,
}

impl Sizes {
    /// Returns the number of packets of a flow after which the sizes repeat.
    pub fn cycle(self) -> u32 {
        match self {
            Self::One(_) => 1,
            Self::Imix => IMIX.len() as u32,
            Self::Each => u32::from(MAX_SIZE - MIN_SIZE) + 1,
        }
    }

    /// Returns the sizes of a cycle with their check sequences, in bytes.
    pub fn all(self) -> impl Iterator<Item = u16> {
        (0..self.cycle()).map(move |step| self.at(step))
    }

    /// Returns the size at a step of the cycle with its check sequence, in bytes.
    fn at(self, step: u32) -> u16 {
        // Every cycle is shorter than 2^16.
        let step = (step % self.cycle()) as u16;
        match self {
            Self::One(size) => size,
            Self::Imix => IMIX[usize::from(step)],
            Self::Each => MIN_SIZE + step,
        }
    }

    /// Returns the mean of a value of each size.
    pub fn mean(self, of: impl Fn(u16) -> f64) -> f64 {
        self.all().map(of).sum::<f64>() / f64::from(self.cycle())
    }
}

/// Why sample traffic cannot be generated.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    /// An invalid packet size.
    #[error("packet size of {0} B; use 64 to 1518 B, with check sequence")]
    Size(u16),
    /// No packets or no addresses.
    #[error(
        "packets: {packets}, sources: {sources}, destinations: {destinations}; use at least one of each"
    )]
    Nothing {
        /// Requested packets.
        packets: u32,
        /// Requested sources.
        sources: u32,
        /// Requested destinations.
        destinations: u32,
    },
    /// Too many packets.
    #[error("{0} packets are too many; use at most {PACKETS}")]
    Packets(u32),
    /// Too many addresses.
    #[error("{0} addresses do not fit above 192.168.0.0; use at most {ADDRESSES}")]
    Addresses(u32),
    /// An invalid file name.
    #[error(
        "{0} is not a sample's name; use <packets>_<size>_<sources>_<destinations>.pcap, e.g. \
         2_64_1_2.pcap, with sizes of 64 to 1518, imix, or each"
    )]
    Name(String),
    /// Memory is exhausted.
    #[error(transparent)]
    Memory(#[from] SysError),
}

/// Maximum number of packets.
const PACKETS: u32 = MAX_PACKETS as u32;

/// Number of addresses from the first up.
const ADDRESSES: u32 = u32::MAX - FIRST.to_bits() + 1;

impl SampleTraffic {
    /// Generates the packets. Equal samples have equal bytes.
    ///
    /// # Errors
    /// Returns which parameter is invalid, or that memory is exhausted.
    pub fn traffic(&self) -> Result<Traffic, SampleError> {
        self.traffic_of(|index| self.flow(index))
    }

    /// Generates the packets, each of the flow that `flow` returns for its index.
    ///
    /// # Errors
    /// Returns which parameter is invalid, or that memory is exhausted.
    pub(crate) fn traffic_of(
        &self,
        mut flow: impl FnMut(u32) -> Flow,
    ) -> Result<Traffic, SampleError> {
        self.check()?;
        let mut builder = TrafficBuilder::new(self.lines(), MarkPosition::Payload)?;
        for index in 0..self.packets {
            let flow = flow(index);
            let frame = frame(&flow, self.size_of(index), index);
            builder.push(&frame, Head { flow, syn: false });
        }
        Ok(builder.finish())
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
            max if max > ADDRESSES => Err(SampleError::Addresses(max)),
            _ => Ok(()),
        }
    }

    /// Returns the number of cache lines of all packets.
    fn lines(&self) -> usize {
        (0..self.packets).map(|index| lines_of(self.size_of(index) - CHECK_SEQUENCE)).sum()
    }

    /// Returns the size of a packet with its check sequence, in bytes.
    fn size_of(&self, index: u32) -> u16 {
        // Each round of the destinations starts one step later, so that each destination gets all sizes.
        self.size.at(index / self.destinations + index % self.destinations)
    }

    /// Returns the flow of a packet.
    fn flow(&self, index: u32) -> Flow {
        let to = Self::flow_to(index % self.destinations);
        Flow { source: Ipv4Addr::from_bits(FIRST.to_bits() + index % self.sources), ..to }
    }

    /// Returns the flow from the first source to a destination, counted from 0.
    pub(crate) fn flow_to(destination: u32) -> Flow {
        Flow {
            source: FIRST,
            destination: Ipv4Addr::from_bits(FIRST.to_bits() + destination),
            source_port: SOURCE_PORT,
            destination_port: DESTINATION_PORT,
            protocol: UDP,
        }
    }
}

/// Builds the frame of a packet. Its payload is pseudo-random and depends on its index, but for the zeros of the mark.
fn frame(flow: &Flow, size: u16, index: u32) -> Vec<u8> {
    let length = usize::from(size - CHECK_SEQUENCE) - HEADERS;
    let mut payload: Vec<_> = pattern(index).flat_map(u64::to_le_bytes).take(length).collect();
    payload[MarkPosition::Payload.offset() - HEADERS..][..MarkPosition::Payload.length()].fill(0);
    build::udp(flow, &payload)
}

/// Increment of the state of SplitMix64.
pub(crate) const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Generates pseudo-random words, the same in every run: SplitMix64 seeded by the packet's index.
fn pattern(index: u32) -> impl Iterator<Item = u64> {
    (1_u64..).map(move |word| mix((u64::from(index) << 32).wrapping_add(word.wrapping_mul(STEP))))
}

/// Returns the output of SplitMix64 for a state.
#[inline]
pub(crate) fn mix(state: u64) -> u64 {
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Formats the file name, e.g. `2_64_1_2.pcap`.
impl fmt::Display for SampleTraffic {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}_{}_{}_{}.pcap", self.packets, self.size, self.sources, self.destinations)
    }
}

/// Parses the file name.
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

/// Formats the sizes as in a file name: `64`, `imix` or `each`.
impl fmt::Display for Sizes {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(size) => write!(to, "{size}"),
            Self::Imix => to.write_str("imix"),
            Self::Each => to.write_str("each"),
        }
    }
}

/// Parses the sizes of a file name.
impl FromStr for Sizes {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "imix" => Ok(Self::Imix),
            "each" => Ok(Self::Each),
            size => size.parse().map(Self::One),
        }
    }
}
