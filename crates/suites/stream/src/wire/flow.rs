//! A flow: the five fields by which packets belong together.

use std::net::Ipv4Addr;

/// The five fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Flow {
    /// Where its packets come from.
    pub source: Ipv4Addr,
    /// Where they go.
    pub destination: Ipv4Addr,
    /// The port that they come from; 0 where the protocol has none.
    pub source_port: u16,
    /// The port that they go to; 0 where the protocol has none.
    pub destination_port: u16,
    /// The protocol's number: 6 is TCP, 17 UDP.
    pub protocol: u8,
}
