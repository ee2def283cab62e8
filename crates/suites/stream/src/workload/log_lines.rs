//! Traffic for the log monitor: streams of log lines in full TCP segments.

use applications::log;
use rand::seq::IndexedRandom;
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::{SEED, WorkloadError};
use crate::wire::MarkPosition;
use crate::wire::build::{self, DATA};
use crate::wire::frame::{Head, MAX_LENGTH, TCP};
use crate::wire::packet::Flow;
use crate::wire::sample::{CHECK_SEQUENCE, SampleTraffic};
use crate::wire::traffic::{Traffic, TrafficBuilder, lines_of};

/// Payload of each segment, in bytes: the longest one with the options that TCP usually has.
pub const PAYLOAD: usize = 1448;

/// Size of each packet with its check sequence, in bytes.
pub const SIZE: u16 = MAX_LENGTH + CHECK_SEQUENCE;

/// The options: two bytes of padding and a time stamp, which does not change.
const OPTIONS: [u8; 12] = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 1];

/// Minimum number of packets: 6 MB, so that lines recur after as much text as the monitor reads in milliseconds.
const PACKETS: u32 = 4096;

/// Minimum number of segments of a stream.
const MIN_SEGMENTS: u32 = 4;

/// Log lines of which some report failures, so that the monitor's rules match them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LogLines {
    /// Share of matching lines.
    pub matching: f64,
    /// Number of streams, each a flow to another destination, of which each has a segment in turn.
    pub streams: u32,
}

/// Generated log lines.
#[derive(Debug)]
pub struct LogTraffic {
    /// The packets. Lines extend over packets, but each stream ends with a whole line.
    pub traffic: Traffic,
    /// Number of matching lines.
    pub matching: u64,
}

impl LogLines {
    /// Returns the number of packets.
    pub fn packets(streams: u32) -> u32 {
        streams.saturating_mul(Self::segments(streams))
    }

    fn segments(streams: u32) -> u32 {
        PACKETS.div_ceil(streams.max(1)).max(MIN_SEGMENTS)
    }

    /// Generates the packets. The lines are samples of ten services. Segments have no space for a mark, so that it is in the
    /// Ethernet addresses; they all have the same sequence number.
    ///
    /// # Errors
    /// Returns that memory is exhausted.
    pub fn traffic(&self) -> Result<LogTraffic, WorkloadError> {
        let streams = self.streams.max(1);
        let segments = Self::segments(streams) as usize;
        let mut random = Pcg64Mcg::seed_from_u64(SEED);
        let mut matching = 0;
        let texts: Vec<_> = (0..streams)
            .map(|_| {
                let (text, count) = self.stream(segments * PAYLOAD, &mut random);
                matching += count;
                text
            })
            .collect();
        let lines = lines_of(MAX_LENGTH) * segments * streams as usize;
        let mut builder = TrafficBuilder::new(lines, MarkPosition::Addresses)?;
        for segment in 0..segments {
            for (text, stream) in texts.iter().zip(0..) {
                let flow = Self::flow_to(stream);
                let payload = &text[segment * PAYLOAD..][..PAYLOAD];
                let frame = build::tcp(&flow, DATA, &OPTIONS, payload);
                builder.push(&frame, Head { flow, syn: false });
            }
        }
        Ok(LogTraffic { traffic: builder.finish(), matching })
    }

    /// Returns the flow of a stream.
    pub fn flow_to(stream: u32) -> Flow {
        Flow { protocol: TCP, ..SampleTraffic::flow_to(stream) }
    }

    /// Returns whole lines of this many bytes together, and how many of them match.
    fn stream(&self, bytes: usize, random: &mut impl Rng) -> (Vec<u8>, u64) {
        let of = |wanted: bool| -> Vec<_> {
            log::samples().filter(|(matches, _)| *matches == wanted).map(|(_, line)| line).collect()
        };
        let lines = [of(false), of(true)];
        let (mut text, mut matching) = (Vec::with_capacity(bytes), 0);
        loop {
            let matches = random.random_bool(self.matching.clamp(0.0, 1.0));
            // Neither list is empty.
            let line = lines[usize::from(matches)].choose(random).copied().unwrap_or_default();
            if text.len() + line.len() + 1 > bytes {
                break;
            }
            text.extend_from_slice(line.as_bytes());
            text.push(b'\n');
            matching += u64::from(matches);
        }
        // A last line without words, which no rule matches.
        if text.len() < bytes {
            text.resize(bytes - 1, b'-');
            text.push(b'\n');
        }
        (text, matching)
    }
}

#[cfg(test)]
mod tests {
    use applications::log::hyperscan::Hyperscan;
    use applications::log::{LogMonitor, Rules, filters};
    use applications::packet::Headers;
    use applications::{Application, Decision};

    use super::*;

    #[test]
    fn the_monitor_finds_the_matching_lines_in_every_round() {
        let library = match Hyperscan::load() {
            Ok(library) => library,
            Err(why) => return machine::untested::note("stream: log lines", &why),
        };
        let rules = Rules::new(&library, &filters().unwrap()).unwrap();
        for (matching, streams) in [(0.0, 1), (0.1, 3), (1.0, 100)] {
            let lines = LogLines { matching, streams };
            let LogTraffic { traffic, matching } = lines.traffic().unwrap();
            let mut monitor = LogMonitor::new(&rules).unwrap();
            for round in 1..=2 {
                for index in 0..traffic.len() {
                    let mut packet = traffic.bytes(index).to_vec();
                    monitor.process(std::iter::once(packet.as_mut_slice()), |_, decision| {
                        assert_eq!(decision, Decision::Consume);
                    });
                }
                let found: u64 = monitor.matches().map(|(_, lines)| lines).sum();
                assert_eq!(found, round * matching, "{lines:?}");
            }
        }
    }

    #[test]
    fn segments_are_full_and_lines_extend_over_them() {
        for streams in [1, 3, 4096] {
            let lines = LogLines { matching: 0.25, streams };
            let LogTraffic { traffic, matching } = lines.traffic().unwrap();
            assert_eq!(traffic.len() as u32, LogLines::packets(streams));
            let mut text = vec![Vec::new(); streams as usize];
            let mut cut = 0;
            for (index, packet) in traffic.packets().iter().enumerate() {
                assert_eq!(u32::from(SIZE) + 20, packet.wire_bytes());
                let stream = super::super::destination(&packet.flow);
                assert_eq!(stream, index as u32 % streams);
                let bytes = traffic.bytes(index);
                let payload = Headers::parse(bytes).unwrap().payload_of(bytes);
                assert_eq!(payload.len(), PAYLOAD);
                cut += u32::from(payload.last() != Some(&b'\n'));
                text[stream as usize].extend_from_slice(payload);
            }
            assert!(f64::from(cut) > 0.5 * traffic.len() as f64, "{cut} lines");
            let total: usize =
                text.iter().map(|text| text.split(|byte| *byte == b'\n').count()).sum();
            let share = matching as f64 / total as f64;
            assert!((share - 0.25).abs() < 0.02, "{share}");
            assert!(text.iter().all(|text| text.ends_with(b"\n")));
        }
    }
}
