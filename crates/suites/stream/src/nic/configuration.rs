//! How a program configures the NIC: a TX notification that holds no packets.

use std::net::Ipv4Addr;

use super::layout::{FLIT, PIPES};
use super::notification::Words;
use crate::wire::Flow;
use crate::wire::packet;

/// One change of the NIC's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Configuration {
    /// Packets of a flow go to a pipe. What is 0 in the flow's source means any.
    Bind {
        /// The flow.
        flow: Flow,
        /// The pipe.
        pipe: u32,
    },
    /// Packets leave at most at this share of the hardware's rate of flits.
    RateLimit {
        /// Flits that leave...
        numerator: u16,
        /// ...in so many cycles.
        denominator: u16,
        /// Whether there is a limit at all.
        enable: bool,
    },
    /// Packets of no flow go to the first pipes.
    Fallback {
        /// How many pipes.
        pipes: u32,
        /// In turn, and not by the hash of their flow.
        round_robin: bool,
    },
    /// Packets that leave get the time, and in those that come the time is replaced by how long ago it was:
    /// see [`round_trip`](crate::host::round_trip).
    Timestamp {
        /// Where in the packet the four bytes lie; [`TIMESTAMP`](super::layout::TIMESTAMP) is as good a place
        /// as any.
        offset: u8,
        /// Whether they do.
        enable: bool,
    },
}

impl Configuration {
    /// As the hardware lays it out. The last word is the NIC's, for its answer.
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

    /// What the words mean; none where they mean nothing.
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

    /// Whether the NIC can do it: it has the pipes, the rate is one, the timestamp lies in the first flit and
    /// not over the length, by which packets are told apart.
    pub(crate) fn is_possible(&self) -> bool {
        match *self {
            Self::Bind { pipe, .. } => pipe < PIPES,
            Self::RateLimit { numerator, denominator, enable } => {
                !enable || (numerator > 0 && denominator > 0)
            }
            Self::Fallback { pipes, .. } => pipes <= PIPES,
            Self::Timestamp { offset, enable } => {
                let place = usize::from(offset);
                !enable || place + 4 <= packet::TOTAL_LENGTH.start || {
                    place >= packet::TOTAL_LENGTH.end && place + 4 <= FLIT
                }
            }
        }
    }
}

/// As the hardware says yes.
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
        fn what_is_written_is_read(
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
                prop_assert_eq!(one.words()[6], 0, "the NIC has said nothing yet");
                notification.set_words(one.words());
                prop_assert_eq!(Configuration::of(notification.get_words()), Some(one));
            }
        }

        #[test]
        fn no_words_are_a_fault(words: [u64; 7]) {
            let _ = Configuration::of(words);
        }
    }
}
