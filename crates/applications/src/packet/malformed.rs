//! Kinds of packets that are refused, and their counts.

use crate::application::Count;

/// Why a packet is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// The frame ends before the end of the Ethernet or the fixed IPv4 header.
    Short,
    /// Neither IPv4 nor IPv6, e.g. ARP.
    NotIp,
    /// IPv6.
    Ipv6,
    /// More than one VLAN tag.
    Tags,
    /// Another version than 4 in the IPv4 header, or a header length below 20.
    IpHeader,
    /// The IPv4 total length exceeds the frame, or is below that of its header.
    IpLength,
    /// A fragment: only the first has ports.
    Fragment,
    /// The IPv4 packet ends before the end of the UDP or TCP header, or that header states less than its minimum length.
    TransportHeader,
    /// The UDP length exceeds the IPv4 packet, or is below that of its header.
    UdpLength,
    /// A wrong checksum, if the application verifies checksums.
    Checksum,
    /// The payload is not what the application expects.
    Payload,
}

impl Malformed {
    /// All kinds.
    pub const ALL: [Self; 11] = [
        Self::Short,
        Self::NotIp,
        Self::Ipv6,
        Self::Tags,
        Self::IpHeader,
        Self::IpLength,
        Self::Fragment,
        Self::TransportHeader,
        Self::UdpLength,
        Self::Checksum,
        Self::Payload,
    ];

    /// Returns the name of the count.
    pub fn name(self) -> &'static str {
        match self {
            Self::Short => "short-frames",
            Self::NotIp => "other-protocols",
            Self::Ipv6 => "ipv6-packets",
            Self::Tags => "several-tags",
            Self::IpHeader => "wrong-ip-headers",
            Self::IpLength => "wrong-ip-lengths",
            Self::Fragment => "fragments",
            Self::TransportHeader => "wrong-transport-headers",
            Self::UdpLength => "wrong-udp-lengths",
            Self::Checksum => "wrong-checksums",
            Self::Payload => "wrong-payloads",
        }
    }
}

/// Number of refused packets by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MalformedCounts([u64; Malformed::ALL.len()]);

impl MalformedCounts {
    /// Counts a packet.
    pub fn add(&mut self, kind: Malformed) {
        self.0[kind as usize] += 1;
    }

    /// Returns the number of packets of a kind.
    pub fn of(&self, kind: Malformed) -> u64 {
        self.0[kind as usize]
    }

    /// Returns the number of packets of all kinds.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Iterates over all counts.
    pub fn counts(&self) -> impl Iterator<Item = Count> {
        Malformed::ALL.into_iter().map(|kind| Count { name: kind.name(), value: self.of(kind) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_own_count() {
        let mut counts = MalformedCounts::default();
        for (number, kind) in Malformed::ALL.into_iter().enumerate() {
            (0..=number).for_each(|_| counts.add(kind));
        }
        let values: Vec<_> = counts.counts().map(|count| count.value).collect();
        assert_eq!(values, (1..=Malformed::ALL.len() as u64).collect::<Vec<_>>());
        assert_eq!(counts.total(), values.iter().sum());
        let mut names: Vec<_> = counts.counts().map(|count| count.name).collect();
        names.dedup();
        assert_eq!(names.len(), Malformed::ALL.len());
    }
}
