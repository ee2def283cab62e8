//! Traffic for the log monitor: streams of log lines in full TCP segments.

use std::ops::RangeInclusive;

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
    /// Which of them complete matching lines.
    pub matching: MatchingLines,
}

/// How many matching lines packets complete, from the first packet of the traffic on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchingLines {
    /// Lines whose ends are before each packet of a round and, last, in the whole round.
    before: Vec<u64>,
    /// Number of streams.
    streams: u64,
}

impl MatchingLines {
    /// Counts the lines that each packet completes.
    fn new(of_packet: &[u64], streams: u32) -> Self {
        let mut before = vec![0];
        before.extend(of_packet.iter().scan(0, |all, lines| {
            *all += lines;
            Some(*all)
        }));
        Self { before, streams: streams.into() }
    }

    /// Returns the number of matching lines that end in the first `packets` packets, replayed endlessly.
    pub fn ended_in(&self, packets: u64) -> u64 {
        let (round, of_round) = (self.before.len() as u64 - 1, self.before.last());
        let rounds = packets / round.max(1);
        let rest = self.before.get((packets % round.max(1)) as usize);
        rounds * of_round.copied().unwrap_or(0) + rest.copied().unwrap_or(0)
    }

    /// Returns how many lines a monitor finds in the first `packets` packets if it gets each stream in order, after packets
    /// that ended anywhere. The first line of each stream continues what was there, so that it may match or not. The last one
    /// may match before it ends.
    pub fn found_in(&self, packets: u64) -> RangeInclusive<u64> {
        let (ended, cut) = (self.ended_in(packets), self.streams.min(packets));
        ended.saturating_sub(cut)..=ended + 2 * cut
    }
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
        let mut of_packet = vec![0; segments * streams as usize];
        let texts: Vec<_> = (0..streams as usize)
            .map(|stream| {
                let (text, ends) = self.stream(segments * PAYLOAD, &mut random);
                for end in ends {
                    of_packet[end / PAYLOAD * streams as usize + stream] += 1;
                }
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
        let matching = MatchingLines::new(&of_packet, streams);
        Ok(LogTraffic { traffic: builder.finish(), matching })
    }

    /// Returns the flow of a stream.
    pub fn flow_to(stream: u32) -> Flow {
        Flow { protocol: TCP, ..SampleTraffic::flow_to(stream) }
    }

    /// Returns whole lines of this many bytes together, and the index of the last byte of each line that matches.
    fn stream(&self, bytes: usize, random: &mut impl Rng) -> (Vec<u8>, Vec<usize>) {
        let of = |wanted: bool| -> Vec<_> {
            log::samples().filter(|(matches, _)| *matches == wanted).map(|(_, line)| line).collect()
        };
        let lines = [of(false), of(true)];
        let (mut text, mut ends) = (Vec::with_capacity(bytes), Vec::new());
        loop {
            let matches = random.random_bool(self.matching.clamp(0.0, 1.0));
            // Neither list is empty.
            let line = lines[usize::from(matches)].choose(random).copied().unwrap_or_default();
            if text.len() + line.len() + 1 > bytes {
                break;
            }
            text.extend_from_slice(line.as_bytes());
            text.push(b'\n');
            if matches {
                ends.push(text.len() - 1);
            }
        }
        // A last line without words, which no rule matches.
        if text.len() < bytes {
            text.resize(bytes - 1, b'-');
            text.push(b'\n');
        }
        (text, ends)
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
            let all = traffic.len() as u64;
            // As exact after each packet as lines are cut: one of each stream may match before it ends.
            for packets in 1..=2 * all {
                let mut packet = traffic.bytes(((packets - 1) % all) as usize).to_vec();
                monitor.process(std::iter::once(packet.as_mut_slice()), |_, decision| {
                    assert_eq!(decision, Decision::Consume);
                });
                let found: u64 = monitor.matches().map(|(_, lines)| lines).sum();
                let ended = matching.ended_in(packets);
                let cut = u64::from(streams).min(packets);
                assert!((ended..=ended + cut).contains(&found), "{lines:?}: {packets}");
                assert!(packets % all != 0 || found == ended, "{lines:?}: a whole round");
            }
        }
    }

    #[test]
    fn a_monitor_that_starts_anywhere_finds_as_many_lines() {
        let library = match Hyperscan::load() {
            Ok(library) => library,
            Err(why) => return machine::untested::note("stream: log lines from anywhere", &why),
        };
        let rules = Rules::new(&library, &filters().unwrap()).unwrap();
        let lines = LogLines { matching: 0.3, streams: 3 };
        let LogTraffic { traffic, matching } = lines.traffic().unwrap();
        let mut monitor = LogMonitor::new(&rules).unwrap();
        let mut before = 0;
        for packets in [1_usize, 2, 7, 100, 1001, 1, 3] {
            for index in 0..packets {
                let mut packet = traffic.bytes(index).to_vec();
                monitor.process(std::iter::once(packet.as_mut_slice()), |_, _| ());
            }
            let all: u64 = monitor.matches().map(|(_, lines)| lines).sum();
            let range = matching.found_in(packets as u64);
            assert!(range.contains(&(all - before)), "{packets}: {} of {range:?}", all - before);
            before = all;
        }
        assert!(!matching.found_in(1000).contains(&0), "finding nothing is no mistake at the ends");
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
            let share = matching.ended_in(traffic.len() as u64) as f64 / total as f64;
            assert!((share - 0.25).abs() < 0.02, "{share}");
            assert!(text.iter().all(|text| text.ends_with(b"\n")));
        }
    }
}
