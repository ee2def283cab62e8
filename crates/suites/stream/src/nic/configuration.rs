//! Configuration requests: transmit notifications without packets.

use std::net::Ipv4Addr;

use super::layout::{FLIT, PIPES};
use super::notification::Words;
use crate::wire::Flow;
use crate::wire::packet;

/// A change of the NIC's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Configuration {
    /// Directs packets of a flow to a pipe. Source fields that are 0 match any source.
    Bind {
        /// The flow.
        flow: Flow,
        /// The pipe.
        pipe: u32,
    },
    /// Limits the rate of sent packets to a share of the hardware's flit rate.
    RateLimit {
        /// Flits...
        numerator: u16,
        /// ...per this number of cycles.
        denominator: u16,
        /// Whether the limit is on.
        enable: bool,
    },
    /// Directs packets without a matching rule to the first pipes.
    Fallback {
        /// Number of pipes.
        pipes: u32,
        /// Whether to choose pipes round-robin instead of by the hash of the flow.
        round_robin: bool,
    },
    /// Writes the time into sent packets, and replaces it in received ones by the time elapsed since:
    /// see [`round_trip`](crate::host::round_trip).
    Timestamp {
        /// Offset of the four bytes in the packet, e.g. [`TIMESTAMP`](super::layout::TIMESTAMP).
        offset: u8,
        /// Whether timestamps are on.
        enable: bool,
    },
}

impl Configuration {
    /// Encodes the request in the hardware's layout. The last word is for the NIC's answer.
    pub(crate) fn words(self) -> Words {
        match self {
            Self::Bind { flow, pipe } => {
                let ports = u64::from(flow.destination_port) | u64::from(flow.source_port) << 16;
                let destination = u64::from(u32::from(flow.destination)) << 32;
                let source = u64::from(u32::from(flow.source));
                let protocol = u64::from(flow.protocol) << 32;
                [1, ports | destination, source | protocol, u64::from(pipe), 0, 0, 0]
            }
            Self::Timestamp { offset, enable } => [2, all(enable), u64::from(offset), 0, 0, 0, 0],
            Self::RateLimit { numerator, denominator, enable } => {
                let rate = u64::from(denominator) | u64::from(numerator) << 16;
                [3, rate | (all(enable) << 32), 0, 0, 0, 0, 0]
            }
            Self::Fallback { pipes, round_robin } => {
                let mask = pipes.checked_ilog2().map_or(0, |power| (1u64 << power) - 1);
                [4, u64::from(pipes) | mask << 32, all(round_robin), 0, 0, 0, 0]
            }
        }
    }

    /// Decodes a request. Returns `None` if the words are not one.
    pub(crate) fn of(words: Words) -> Option<Self> {
        let [id, first, second, third, ..] = words;
        Some(match id {
            1 => Self::Bind {
                flow: Flow {
                    destination_port: first as u16,
                    source_port: (first >> 16) as u16,
                    destination: Ipv4Addr::from((first >> 32) as u32),
                    source: Ipv4Addr::from(second as u32),
                    protocol: (second >> 32) as u8,
                },
                pipe: third as u32,
            },
            2 => Self::Timestamp { offset: second as u8, enable: first != 0 },
            3 => Self::RateLimit {
                denominator: first as u16,
                numerator: (first >> 16) as u16,
                enable: first >> 32 != 0,
            },
            4 => Self::Fallback { pipes: first as u32, round_robin: second != 0 },
            _ => return None,
        })
    }

    /// Returns whether the NIC supports the request: the pipe exists, the rate is valid, and the timestamp is in the
    /// first flit and does not overlap the length, which delimits packets.
    pub(crate) fn is_possible(&self) -> bool {
        match *self {
            Self::Bind { pipe, .. } => pipe < PIPES,
            Self::RateLimit { numerator, denominator, enable } => {
                !enable || (numerator > 0 && denominator > 0)
            }
            Self::Fallback { pipes, .. } => pipes <= PIPES,
            Self::Timestamp { offset, enable } => {
                let start = usize::from(offset);
                !enable || start + 4 <= packet::TOTAL_LENGTH.start || {
                    start >= packet::TOTAL_LENGTH.end && start + 4 <= FLIT
                }
            }
        }
    }
}

/// Encodes a flag as the hardware does.
fn all(yes: bool) -> u64 {
    if yes { u64::MAX } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::super::notification::TxNotification;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn encoded_requests_are_decoded(
            source: u32, destination: u32, ports: (u16, u16), protocol: u8, pipe: u32, yes: bool,
        ) {
            let flow = Flow {
                source: source.into(), destination: destination.into(),
                source_port: ports.0, destination_port: ports.1, protocol,
            };
            for one in [
                Configuration::Bind { flow, pipe },
                Configuration::RateLimit { numerator: ports.0, denominator: ports.1, enable: yes },
                Configuration::Fallback { pipes: pipe, round_robin: yes },
                Configuration::Timestamp { offset: protocol, enable: yes },
            ] {
                let notification = TxNotification::default();
                prop_assert_eq!(one.words()[6], 0, "space for the answer");
                notification.set_words(one.words());
                prop_assert_eq!(Configuration::of(notification.get_words()), Some(one));
            }
        }

        #[test]
        fn decoding_never_panics(words: [u64; 7]) {
            let _ = Configuration::of(words);
        }
    }
}
