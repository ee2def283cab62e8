//! The work of an application alone: on packets in memory, without an interface. And that of its engine: the store or Hyperscan,
//! called in a loop without packets.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use applications::Application;
use applications::kv::format::{self, HEADER, Operation, Request};
use applications::kv::{self, KeyValue};
use applications::log::hyperscan::Scanner;
use applications::log::{LogMonitor, Rules, STREAMS};
use applications::packet::Headers;
use lab::statistics::median;
use machine::SysError;
use machine::tsc::Tsc;

use crate::core_use::Engine;
use crate::nic::ticks;
use crate::wire::packet::{self, FLIT};
use crate::wire::traffic::Traffic;
use crate::workload::destination;

/// Memory for the packets of a pass, in bytes: they stay in the L2 cache, like those of a ring that is not full.
const MEMORY: usize = 256 << 10;
/// Time of one measurement.
pub(super) const BUDGET: Duration = Duration::from_millis(2);
/// Minimum number of passes of one measurement, also if the thread loses its CPU.
const PASSES: usize = 9;

/// Measurements of an application `A` alone on traffic of which each pass takes the packets that follow.
pub(super) struct Alone<A> {
    packets: Packets,
    budget: u64,
    last: Option<f64>,
    engine: Option<Box<dyn MeasureEngine<A>>>,
    last_of_engine: Option<f64>,
}

/// An engine that can be measured without packets.
pub(super) trait MeasureEngine<A> {
    /// Returns which one it is.
    fn engine(&self) -> Engine;

    /// Returns the ticks that it needs for the content of packets.
    fn pass(&mut self, application: &mut A, packets: &Packets) -> u64;
}

impl<A> Alone<A> {
    /// Creates it without a measurement and without an engine.
    pub(super) fn new(traffic: Arc<Traffic>, tsc: &Tsc) -> Self {
        let (packets, budget) = (Packets::new(traffic), tsc.ticks(BUDGET));
        Self { packets, budget, last: None, engine: None, last_of_engine: None }
    }

    /// Sets the engine.
    pub(super) fn with_engine(self, engine: impl MeasureEngine<A> + 'static) -> Self {
        Self { engine: Some(Box::new(engine)), ..self }
    }

    /// Returns the traffic.
    pub(super) fn traffic(&self) -> &Traffic {
        &self.packets.traffic
    }

    /// Measures the ticks that the application needs per packet: the median of passes over packets that were just written to
    /// memory, in whole flits as in a pipe. Returns the lower of this and the last measurement, because load on the core only
    /// slows them; `None` without a packet that fits.
    pub(super) fn measure(&mut self, application: &mut A) -> Option<f64>
    where
        A: Application,
    {
        let Self { packets, budget, last, .. } = self;
        measure(packets, *budget, last, |packets| pass(application, packets))
    }

    /// Measures the same of the engine; `None` if the application has none.
    pub(super) fn measure_engine(&mut self, application: &mut A) -> Option<(Engine, f64)> {
        let Self { packets, budget, last_of_engine, engine, .. } = self;
        let engine = engine.as_mut()?;
        let ticks =
            measure(packets, *budget, last_of_engine, |packets| engine.pass(application, packets));
        Some((engine.engine(), ticks?))
    }
}

/// Returns the lower of the last median of passes and that of new ones, in ticks per packet.
fn measure(
    packets: &mut Packets,
    budget: u64,
    last: &mut Option<f64>,
    mut pass: impl FnMut(&mut Packets) -> u64,
) -> Option<f64> {
    let (end, mut passes) = (ticks() + budget, Vec::new());
    while passes.len() < PASSES || ticks() < end {
        packets.fill();
        let count = packets.lengths.len();
        if count == 0 {
            return None;
        }
        passes.push(pass(packets) as f64 / count as f64);
    }
    let before = std::mem::replace(last, median(&passes));
    [before, *last].into_iter().flatten().reduce(f64::min)
}

/// The packets of a pass.
pub(super) struct Packets {
    traffic: Arc<Traffic>,
    memory: Vec<u8>,
    /// Index in the traffic of the first packet in memory.
    first: usize,
    lengths: Vec<usize>,
}

impl Packets {
    fn new(traffic: Arc<Traffic>) -> Self {
        Self { traffic, memory: vec![0; MEMORY + FLIT], first: 0, lengths: Vec::new() }
    }

    /// Returns the memory for packets, which starts with a flit.
    fn memory(&self) -> std::ops::Range<usize> {
        let skip = self.memory.as_ptr().align_offset(FLIT).min(FLIT);
        skip..skip + MEMORY
    }

    /// Fills the memory with the packets that follow.
    fn fill(&mut self) {
        let range = self.memory();
        let Self { traffic, memory, first, lengths } = self;
        let (memory, mut at) = (&mut memory[range], 0);
        *first = (*first + lengths.len()) % traffic.len();
        lengths.clear();
        loop {
            let bytes = traffic.bytes((*first + lengths.len()) % traffic.len());
            let end = at + packet::flits(bytes.len()) * FLIT;
            if end > memory.len() {
                return;
            }
            memory[at..][..bytes.len()].copy_from_slice(bytes);
            lengths.push(bytes.len());
            at = end;
        }
    }

    /// Returns each packet and its destination, counted from the first address.
    fn each(&self) -> impl Iterator<Item = (u32, &[u8])> {
        let mut left = &self.memory[self.memory()];
        self.lengths.iter().enumerate().map(move |(number, length)| {
            let (packet, rest) = left.split_at(packet::flits(*length) * FLIT);
            left = rest;
            let index = (self.first + number) % self.traffic.len();
            (destination(&self.traffic.packets()[index].flow), &packet[..*length])
        })
    }
}

/// Returns the ticks of one pass. Not inlined, so that its loop is the same for every caller.
#[inline(never)]
fn pass(application: &mut impl Application, packets: &mut Packets) -> u64 {
    let range = packets.memory();
    let Packets { memory, lengths, .. } = packets;
    let mut left = &mut memory[range];
    let packets = lengths.iter().map(|length| {
        let flits = packet::flits(*length) * FLIT;
        let (packet, rest) = std::mem::take(&mut left).split_at_mut(flits);
        left = rest;
        &mut packet[..*length]
    });
    let start = ticks();
    application.process(packets, |packet, decision| {
        black_box((packet.as_ptr(), decision));
    });
    ticks() - start
}

/// The store of the application, with the requests of the packets.
#[derive(Default)]
pub(super) struct StoreAlone {
    operations: Vec<Operation>,
}

impl MeasureEngine<KeyValue> for StoreAlone {
    fn engine(&self) -> Engine {
        Engine::Store
    }

    fn pass(&mut self, application: &mut KeyValue, packets: &Packets) -> u64 {
        let Self { operations } = self;
        operations.clear();
        for (_, packet) in packets.each() {
            let Ok(headers) = Headers::parse(packet) else { continue };
            let payload = headers.payload_of(packet);
            let count = format::requests(payload).unwrap_or(0);
            let requests =
                payload.get(HEADER..).unwrap_or_default().as_chunks().0.iter().take(count);
            operations.extend(requests.filter_map(|request| Request::of(request).to_operation()));
        }
        let start = ticks();
        black_box(kv::execute(application.partition(), operations));
        ticks() - start
    }
}

/// Hyperscan with streams of its own and the payload of the packets.
pub(super) struct HyperscanAlone {
    scanner: Scanner,
    /// Number of matches in all passes.
    matches: u64,
}

impl HyperscanAlone {
    /// Creates it with a stream for each destination of the traffic, but no more than the application has.
    ///
    /// # Errors
    /// Returns an error if there is not enough memory.
    pub(super) fn new(rules: &Rules, traffic: &Traffic) -> Result<Self, SysError> {
        let destinations = traffic.packets().iter().map(|packet| destination(&packet.flow));
        let streams = destinations.max().map_or(1, |last| last as usize + 1).min(STREAMS);
        let scanner = Scanner::new(rules.database(), streams).map_err(|why| SysError {
            attempt: "open the streams of Hyperscan alone".into(),
            source: std::io::Error::other(why),
            remedy: "or use fewer flows".into(),
        })?;
        Ok(Self { scanner, matches: 0 })
    }
}

impl MeasureEngine<LogMonitor> for HyperscanAlone {
    fn engine(&self) -> Engine {
        Engine::Hyperscan
    }

    fn pass(&mut self, _: &mut LogMonitor, packets: &Packets) -> u64 {
        let Self { scanner, matches } = self;
        let streams = scanner.streams();
        let payload = |(to, packet)| {
            let headers = Headers::parse(packet).ok()?;
            Some((to as usize % streams, headers.payload_of(packet)))
        };
        let payloads: Vec<(usize, &[u8])> = packets.each().filter_map(payload).collect();
        let start = ticks();
        for (stream, bytes) in payloads {
            // The monitor counts errors of the same scans.
            let _ = scanner.scan(stream, bytes, |_, _| *matches += 1);
        }
        ticks() - start
    }
}

#[cfg(test)]
mod tests {
    use applications::application::{Count, Decision};
    use applications::kv::partition::{KeyHash, Size};
    use applications::log;
    use applications::log::hyperscan::Hyperscan;

    use super::*;
    use crate::wire::sample::{SampleTraffic, Sizes};
    use crate::workload::log_lines::{LogLines, LogTraffic};
    use crate::workload::requests::Requests;

    /// Spends a number of ticks on each packet, and counts packets and bytes.
    struct Slow {
        each: u64,
        packets: u64,
        bytes: u64,
    }

    impl Application for Slow {
        fn process<'a>(
            &mut self,
            packets: impl Iterator<Item = &'a mut [u8]>,
            mut done: impl FnMut(&'a mut [u8], Decision),
        ) {
            for packet in packets {
                let end = ticks() + self.each;
                while ticks() < end {}
                self.packets += 1;
                self.bytes += packet.len() as u64;
                done(packet, Decision::Send);
            }
        }

        fn counts(&self) -> Vec<Count> {
            Vec::new()
        }
    }

    fn alone<A>(traffic: Traffic) -> Option<Alone<A>> {
        let tsc = machine::untested::tsc("stream: an engine alone")?;
        Some(Alone::new(Arc::new(traffic), tsc))
    }

    #[test]
    fn the_store_alone_executes_the_requests_of_the_packets() {
        let requests = Requests {
            keys: 500,
            exponent: 0.0,
            gets: 0.0,
            per_packet: 3,
            pipes: 2,
            cores: 1,
            pipes_per_core: 2,
        };
        let Some(alone) = alone(requests.traffic().unwrap()) else { return };
        let mut alone = alone.with_engine(StoreAlone::default());
        let mut store = KeyValue::new(Size::of_keys(4096), 0, 1).unwrap();
        let (engine, ticks) = alone.measure_engine(&mut store).unwrap();
        assert_eq!(engine, Engine::Store);
        assert!(ticks > 0.0);
        for key in (0..requests.keys).map(kv::key_of) {
            let value = store.partition().get(KeyHash::new(key), key);
            assert_eq!(value, Some(kv::value_of(key)), "thousands of SETs of 500 keys");
        }
        assert!(store.counts().iter().all(|count| count.value == 0), "no packet");
    }

    #[test]
    fn hyperscan_alone_scans_the_payload_of_the_packets() {
        let library = match Hyperscan::load() {
            Ok(library) => library,
            Err(why) => return machine::untested::note("stream: Hyperscan alone", &why),
        };
        let rules = Rules::new(&library, &log::filters().unwrap()).unwrap();
        let mut monitor = LogMonitor::new(&rules).unwrap();
        for (matching, streams) in [(0.0, 1), (1.0, 3)] {
            let LogTraffic { traffic, .. } = LogLines { matching, streams }.traffic().unwrap();
            let mut engine = HyperscanAlone::new(&rules, &traffic).unwrap();
            assert_eq!(engine.scanner.streams(), streams as usize);
            let mut packets = Packets::new(Arc::new(traffic));
            packets.fill();
            assert!(engine.pass(&mut monitor, &packets) > 0);
            // Each packet of matching lines ends at least two.
            let least = 2 * packets.lengths.len() as u64;
            assert_eq!(engine.matches >= least, matching > 0.0, "{}", engine.matches);
        }
        assert_eq!(monitor.matches().map(|(_, lines)| lines).sum::<u64>(), 0);
    }

    #[test]
    fn passes_continue_where_the_last_one_ended() {
        let sample =
            SampleTraffic { packets: 3, size: Sizes::One(64), sources: 1, destinations: 3 };
        let mut packets = Packets::new(Arc::new(sample.traffic().unwrap()));
        let mut next = 0;
        for _ in 0..3 {
            packets.fill();
            assert_eq!(packets.lengths.len(), MEMORY / FLIT, "not a multiple of 3");
            for (to, packet) in packets.each() {
                assert_eq!((to, packet), (next % 3, packets.traffic.bytes(next as usize % 3)));
                next += 1;
            }
        }
    }

    #[test]
    fn the_work_per_packet_is_found_whatever_the_sizes() {
        let Some(tsc) = machine::untested::tsc("stream: the work of an application alone") else {
            return;
        };
        for size in [Sizes::One(64), Sizes::Imix, Sizes::One(1518)] {
            let sample = SampleTraffic { packets: 24, size, sources: 1, destinations: 2 };
            let mut alone = Alone::new(Arc::new(sample.traffic().unwrap()), tsc);
            let each = tsc.ticks(Duration::from_micros(1));
            let mut slow = Slow { each, packets: 0, bytes: 0 };
            let found = alone.measure(&mut slow).unwrap();
            assert!(found >= each as f64, "{found} of {each}");
            slow.each *= 8;
            let later = alone.measure(&mut slow).unwrap();
            assert!(later <= found, "the lower one: {later} of {found}");
            let mean = slow.bytes as f64 / slow.packets as f64;
            let expected = size.mean(|size| f64::from(size - 4));
            assert!((mean / expected - 1.0).abs() < 0.05, "{mean} of {expected} B");
        }
    }
}
