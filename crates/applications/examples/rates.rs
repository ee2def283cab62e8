//! Prints the cycles of the time-stamp counter that each application spends per packet, on packets in memory: the work without
//! any interface. Each value is the median of many passes over the packets; a pass over the echo is printed for comparison.
//!
//! ```text
//! cargo run --release -p tollgate-applications --example rates [MIB]
//! ```
//!
//! `MIB` limits the memory of the key-value store, 256 MiB by default.

use std::arch::x86_64::_rdtsc;
use std::error::Error;
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use applications::application::Count;
use applications::echo::Echo;
use applications::kv::format::{self, Operation};
use applications::kv::partition::{KeyHash, Size};
use applications::kv::{KeyValue, execute, key_of, keys_within, value_of};
use applications::log::hyperscan::{Hyperscan, Scanner};
use applications::log::{LogMonitor, Rules, filters};
use applications::maglev::{CompleteMaglev, EnsoMaglev};
use applications::packet::{Headers, rewrite};
use applications::telemetry::{ONE_IN, Telemetry};
use applications::zipf::Zipf;
use applications::{Application, Decision};
use etherparse::PacketBuilder;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Packets in contiguous memory, each in whole flits of 64 bytes, as in a pipe.
struct Packets {
    bytes: Vec<[u8; 64]>,
    lengths: Vec<usize>,
}

impl Packets {
    fn new(count: usize, mut frame: impl FnMut(usize) -> Outcome<Vec<u8>>) -> Outcome<Self> {
        let mut packets = Self { bytes: Vec::new(), lengths: Vec::new() };
        for number in 0..count {
            let mut frame = frame(number)?;
            let length = frame.len().max(60);
            frame.resize(length.next_multiple_of(64), 0);
            packets.bytes.extend(frame.as_chunks::<64>().0);
            packets.lengths.push(length);
        }
        Ok(packets)
    }

    fn each(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let mut left = self.bytes.as_flattened_mut();
        self.lengths.iter().map(move |length| {
            let (packet, rest) =
                std::mem::take(&mut left).split_at_mut(length.next_multiple_of(64));
            left = rest;
            &mut packet[..*length]
        })
    }
}

/// Returns the cycles of one pass.
#[inline(never)]
fn pass(application: &mut impl Application, packets: &mut Packets) -> (u64, usize) {
    // SAFETY: the instruction has no preconditions.
    let start = unsafe { _rdtsc() };
    let mut returned = 0;
    application.process(packets.each(), |packet, decision| {
        black_box(packet);
        black_box(decision);
        returned += 1;
    });
    // SAFETY: as above.
    (unsafe { _rdtsc() } - start, returned)
}

/// Time of all passes of one measurement.
const BUDGET: Duration = Duration::from_millis(700);

/// Prints the median and the quartiles of cycles per packet. `prepare` changes the packets before each pass.
fn measure(
    name: &str,
    application: &mut impl Application,
    packets: &mut Packets,
    prepare: impl Fn(&mut Packets, usize),
) {
    let count = packets.lengths.len();
    let (start, mut cycles) = (Instant::now(), Vec::new());
    while cycles.len() < 5 || start.elapsed() < BUDGET {
        prepare(packets, cycles.len());
        let (taken, returned) = pass(application, packets);
        assert_eq!(returned, count, "a packet is missing");
        cycles.push(taken);
    }
    cycles.sort_unstable();
    let at = |quarter: usize| cycles[(cycles.len() - 1) * quarter / 4] as f64 / count as f64;
    println!("{name:46} {:7.2}   ({:.2} to {:.2})", at(2), at(1), at(3));
}

/// Leaves packets as they are.
fn unchanged(_: &mut Packets, _: usize) {}

fn syn(number: usize) -> Outcome<Vec<u8>> {
    let [a, b, c, d] = (0x0a80_0000 + number as u32).to_be_bytes();
    let mut frame = Vec::new();
    PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv4([10, 0, 0, 1], [a, b, c, d], 64)
        .tcp(1234, 80, 1, 1000)
        .syn()
        .write_to_vec(&mut frame, &[])?;
    Ok(frame)
}

fn requests(operations: &[Operation]) -> Outcome<Vec<u8>> {
    let mut payload = vec![0; format::length(operations.len())];
    format::write(&mut payload, [0; format::MARK], operations).ok_or("no requests")?;
    let mut frame = Vec::new();
    PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .udp(1, 2)
        .write_to_vec(&mut frame, &payload)?;
    Ok(frame)
}

/// Operations on the store, of which each pass takes others.
const OPERATIONS: usize = 1_600_000;

/// Packets per pass: 256 KiB, which fit a cache as those of a NIC do.
const COUNT: usize = 4096;

fn maglev() -> Outcome<()> {
    let backends: Vec<_> = (0..1000).map(|n| Ipv4Addr::from(0x0a01_0000 + n)).collect();
    let mut packets = Packets::new(COUNT, syn)?;
    for (name, flows) in [("cached, 16 flows", 16), ("SYN flood, 1,048,576 flows", 1 << 20)] {
        // A pass replaces the destinations, by which flows differ.
        let prepare = |packets: &mut Packets, pass: usize| {
            for (number, packet) in packets.each().enumerate() {
                let flow = 0x0a80_0000 + ((pass * COUNT + number) % flows) as u32;
                packet[30..34].copy_from_slice(&flow.to_be_bytes());
            }
        };
        let mut enso = EnsoMaglev::new(&backends)?;
        measure(&format!("maglev as in Ensō, {name}"), &mut enso, &mut packets, prepare);
        let mut complete = CompleteMaglev::new(&backends)?;
        measure(&format!("maglev complete, {name}"), &mut complete, &mut packets, prepare);
    }
    Ok(())
}

fn kv(mebibytes: usize) -> Outcome<()> {
    let keys = keys_within(mebibytes << 20);
    println!("key-value store of {keys} keys in {} MiB:", Size::of_keys(keys).bytes() >> 20);
    let mut store = KeyValue::new(Size::of_keys(keys), 0, 1)?;
    for rank in 0..keys as u64 {
        let key = key_of(rank);
        store.partition().set(KeyHash::new(key), key, value_of(key));
    }
    for exponent in [0.0, 0.99] {
        let zipf = Zipf::new(keys as u64, exponent)?;
        let mut random = Pcg64Mcg::seed_from_u64(1);
        let mut operation = || {
            let key = key_of(zipf.draw(&mut random));
            if random.random() {
                Operation::Get { key }
            } else {
                Operation::Set { key, value: value_of(key) }
            }
        };
        let operations: Vec<_> = (0..OPERATIONS).map(|_| operation()).collect();
        for per_packet in [1, 8, 40] {
            let count = COUNT / per_packet;
            let mut packets = Packets::new(count, |_| requests(&operations[..per_packet]))?;
            // The packets fit a cache; the keys of each pass are others.
            let prepare = |packets: &mut Packets, pass: usize| {
                let first = pass * count * per_packet % (OPERATIONS - COUNT);
                let chunks = operations[first..].chunks(per_packet);
                for (packet, operations) in packets.each().zip(chunks) {
                    format::write(&mut packet[42..], [0; format::MARK], operations);
                    if let Some(headers) = Headers::plain(packet) {
                        rewrite::renew_checksum(packet, &headers);
                    }
                }
            };
            let name = format!("zipf {exponent}, {per_packet} requests per packet, per packet");
            measure(&name, &mut store, &mut packets, prepare);
        }
        directly(exponent, &mut store, &operations);
    }
    Ok(())
}

/// Prints the cycles per request of the same store called in a loop, with the same prefetching.
fn directly(exponent: f64, store: &mut KeyValue, operations: &[Operation]) {
    // SAFETY: the instruction has no preconditions.
    let start = unsafe { _rdtsc() };
    let found = execute(store.partition(), operations);
    // SAFETY: as above.
    let cycles = unsafe { _rdtsc() } - start;
    let name = format!("zipf {exponent}, without packets, per request");
    println!(
        "{name:46} {:7.2}   (one pass, {found} keys found)",
        cycles as f64 / operations.len() as f64
    );
}

/// Log lines of which the given share, in per cent, report failures, in segments of 1448 bytes.
fn log_lines(percent: usize) -> Outcome<Packets> {
    let line = |number: usize| {
        let result = if number % 100 < percent { "Failed" } else { "Accepted" };
        let (host, port) = (number % 250, 1024 + number);
        format!(
            "Nov 27 10:00:01 host sshd[700]: {result} password for root from 192.0.2.{host} port {port} ssh2\n"
        )
    };
    let text: String = (0..30_000).map(line).collect();
    let segments: Vec<_> = text.as_bytes().chunks_exact(1448).collect();
    Packets::new(segments.len(), |number| {
        let mut frame = Vec::new();
        PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .tcp(1234, 514, 1, 1000)
            .write_to_vec(&mut frame, segments[number])?;
        Ok(frame)
    })
}

fn log_monitor() -> Outcome<()> {
    let library = match Hyperscan::load() {
        Ok(library) => library,
        Err(why) => {
            println!("log monitor: {why}");
            return Ok(());
        }
    };
    let rules = Rules::new(&library, &filters()?)?;
    for percent in [0, 10] {
        let mut packets = log_lines(percent)?;
        let name = format!("log monitor, 1448 B, {percent}% failures");
        measure(&name, &mut LogMonitor::new(&rules)?, &mut packets, unchanged);
        let mut alone = HyperscanAlone(Scanner::new(rules.database(), 1)?, 0);
        measure(&format!("{name}, Hyperscan alone"), &mut alone, &mut packets, unchanged);
    }
    Ok(())
}

/// Hyperscan on the same bytes, without parsing, flows and lines.
struct HyperscanAlone(Scanner, u64);

impl Application for HyperscanAlone {
    fn process<'a>(
        &mut self,
        packets: impl Iterator<Item = &'a mut [u8]>,
        mut done: impl FnMut(&'a mut [u8], Decision),
    ) {
        for packet in packets {
            // An error would show as a missing packet.
            if self.0.scan(0, packet.get(54..).unwrap_or_default(), |_, _| self.1 += 1).is_ok() {
                done(packet, Decision::Consume);
            }
        }
    }

    fn counts(&self) -> Vec<Count> {
        vec![Count { name: "matches", value: self.1 }]
    }
}

fn main() -> Outcome<()> {
    let mebibytes = match std::env::args().nth(1) {
        Some(text) => {
            text.parse().map_err(|why| format!("{text}: {why}; give the store's size in MiB"))?
        }
        None => 256,
    };
    println!("{:46} {:>7}   (quartiles)", "TSC cycles per packet", "median");
    let mut small = Packets::new(COUNT, syn)?;
    measure("echo", &mut Echo::<40> { nops: 0 }, &mut small, unchanged);
    measure("telemetry", &mut Telemetry::new(ONE_IN, 1), &mut small, unchanged);
    maglev()?;
    log_monitor()?;
    kv(mebibytes)
}
