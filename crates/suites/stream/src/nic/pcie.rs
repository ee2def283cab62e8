//! Traffic on PCIe: the bytes of each operation with their overhead, and the modelled durations and rate of a link.
//!
//! Each packet of the transaction layer (TLP) has headers: of a write and a read request 24 bytes (framing, sequence number,
//! CRC, and a header with a 64-bit address), of a completion 20 (Neugebauer et al., SIGCOMM '18, section 3). A write or a
//! completion has at most 256 bytes of data, and a request asks for at most 512, which are usual limits of servers.

use std::fmt;
use std::time::Duration;

use lab::factor::LevelType;

use super::counters::Counters;
use super::engine::EngineContext;

/// Maximum data of a write or a completion, in bytes (MPS).
const MAX_PAYLOAD: u64 = 256;
/// Maximum number of requests to send that the NIC reads ahead per doorbell, so that no program occupies it. The model
/// does not charge the link with the packets of others.
pub(super) const MAX_ANNOUNCED: u32 = 4096;
/// Maximum length of a read request, in bytes (MRRS).
const MAX_READ: u64 = 512;
/// Overhead of a write, in bytes.
const WRITE: u64 = 24;
/// Overhead of a read request, in bytes.
const REQUEST: u64 = 24;
/// Overhead of a completion, in bytes.
const COMPLETION: u64 = 20;
/// Size of a register, in bytes.
const REGISTER: u64 = 4;

/// Modelled durations and rate of PCIe; by default nothing is modelled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PcieModel {
    /// How long a write to a register takes until the NIC has it; zero if not modelled.
    ///
    /// A single packet waits for one doorbell, by which it is sent. A packet that arrives at a notified pipe, like each
    /// packet of a closed loop, waits for two with reactive notifications: the NIC may notify again only after the host
    /// has moved the pipe's head, following the previous packet.
    pub doorbell: Duration,
    /// How long a transfer by the NIC takes, besides its time on the link; zero if not modelled.
    pub transfer: Duration,
    /// How long a write to a register stalls the program's core; zero if not modelled. The NIC never waits for it.
    pub mmio: Duration,
    /// Rate of the link.
    pub link: LinkRate,
}

impl fmt::Display for PcieModel {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = [("doorbell", self.doorbell), ("transfer", self.transfer), ("mmio", self.mmio)];
        let times = times.into_iter().filter(|(_, time)| !time.is_zero());
        let mut parts: Vec<_> =
            times.map(|(what, time)| format!("{what} {} ns", time.as_nanos())).collect();
        if self.link != LinkRate::None {
            parts.push(format!("link {}", self.link.name()));
        }
        to.write_str(&if parts.is_empty() { "nothing".into() } else { parts.join(", ") })
    }
}

/// Rate of a modelled link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, LevelType, clap::ValueEnum)]
pub enum LinkRate {
    /// No limit.
    #[default]
    None,
    /// PCIe 3.0 with 16 lanes.
    #[level("gen3x16")]
    #[value(name = "gen3x16")]
    Gen3x16,
    /// PCIe 4.0 with 16 lanes.
    #[level("gen4x16")]
    #[value(name = "gen4x16")]
    Gen4x16,
}

impl LinkRate {
    /// Returns the bytes per second of each direction: transfers per second of 16 lanes, of which 128 of 130 bits are bytes
    /// (PCI Express Base Specification, 4.2.2). Acknowledgements and flow control are not part of the model. `None` if there
    /// is no limit.
    pub fn bytes_per_second(self) -> Option<f64> {
        let transfers = match self {
            Self::None => return None,
            Self::Gen3x16 => 8e9,
            Self::Gen4x16 => 16e9,
        };
        Some(transfers * 16.0 * (128.0 / 130.0) / 8.0)
    }
}

/// Packets and bytes of reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Read {
    requests: u64,
    completions: u64,
    bytes: u64,
}

impl Read {
    /// Returns the read of contiguous bytes.
    #[inline(always)]
    pub(crate) fn of(bytes: u64) -> Self {
        Self::packets(bytes.div_ceil(MAX_READ), bytes.div_ceil(MAX_PAYLOAD), bytes)
    }

    /// Returns the read of a packet of this many flits.
    #[inline(always)]
    pub(crate) fn of_flits(flits: u64) -> Self {
        const FLIT: u64 = super::layout::FLIT as u64;
        // For loops over packets: shorter than `of`.
        let (requests, completions) =
            (flits.div_ceil(MAX_READ / FLIT), flits.div_ceil(MAX_PAYLOAD / FLIT));
        Self::packets(requests, completions, flits * FLIT)
    }

    #[inline(always)]
    fn packets(requests: u64, completions: u64, bytes: u64) -> Self {
        Self { requests, completions, bytes }
    }

    /// Adds another read.
    #[inline(always)]
    pub(crate) fn add(&mut self, other: Self) {
        *self = Self::packets(
            self.requests + other.requests,
            self.completions + other.completions,
            self.bytes + other.bytes,
        );
    }
}

impl Counters {
    /// Counts a read by the NIC.
    #[inline(always)]
    pub(crate) fn count_read(&mut self, read: Read) {
        self.read_requests += read.requests;
        self.completions += read.completions;
        self.bytes_read += read.bytes;
    }

    /// Returns the bytes that crossed PCIe to the host, with overhead.
    pub fn to_host(&self) -> u64 {
        self.bytes_written + WRITE * self.writes + REQUEST * self.read_requests
    }

    /// Returns the bytes that crossed PCIe to the NIC, with overhead.
    pub fn to_nic(&self) -> u64 {
        self.bytes_read + COMPLETION * self.completions + (WRITE + REGISTER) * self.register_writes
    }
}

impl EngineContext {
    /// Counts `count` writes of `bytes` bytes each to the host, which then are on their way.
    #[inline(always)]
    pub(crate) fn write(&mut self, count: u64, bytes: u64) {
        self.write_packets(count * bytes.div_ceil(MAX_PAYLOAD), count * bytes);
    }

    /// Counts `packets` writes, of at most 256 bytes each, of `bytes` bytes in all.
    #[inline(always)]
    pub(crate) fn write_packets(&mut self, packets: u64, bytes: u64) {
        self.counters.writes += packets;
        self.counters.bytes_written += bytes;
        if let Some(link) = &mut self.link {
            link.write(self.now, packets, bytes);
        }
    }

    /// Counts a read of contiguous bytes from the host, which then are on their way.
    #[inline(always)]
    pub(crate) fn read(&mut self, bytes: u64) {
        let read = Read::of(bytes);
        self.counters.count_read(read);
        self.read_ahead(read);
    }

    /// Starts a read that is counted when the NIC uses it.
    #[inline(always)]
    pub(crate) fn read_ahead(&mut self, read: Read) {
        if let Some(link) = &mut self.link {
            link.read(self.now, read);
        }
    }

    /// Counts a write to a register.
    #[inline(always)]
    pub(crate) fn count_register_write(&mut self) {
        self.counters.register_writes += 1;
        if let Some(link) = &mut self.link {
            link.to_nic.move_bytes(self.now as f64, WRITE + REGISTER);
        }
    }

    /// Returns whether transfers take time.
    #[inline(always)]
    pub(crate) fn is_delayed(&self) -> bool {
        self.transfer != 0 || self.link.is_some()
    }

    /// Returns when all writes have arrived, in ticks.
    #[inline(always)]
    pub(crate) fn arrival(&self) -> u64 {
        let free = self.link.as_ref().map_or(0, |link| link.to_host.free_at());
        free.max(self.now) + self.transfer
    }

    /// Returns how long the NIC waits for all reads so far, in ticks, if they take `transfers` one after the other.
    #[inline(always)]
    pub(crate) fn read_delay(&self, transfers: u64) -> u64 {
        let free = self.link.as_ref().map_or(0, |link| link.to_nic.free_at());
        free.saturating_sub(self.now) + transfers * self.transfer
    }
}

/// A modelled link: each direction moves one byte after the other.
#[derive(Debug)]
pub(crate) struct Link {
    to_host: Direction,
    to_nic: Direction,
}

/// One direction of a link.
#[derive(Debug)]
struct Direction {
    ticks_per_byte: f64,
    /// When it has moved all bytes so far, in ticks.
    free: f64,
}

impl Direction {
    /// Moves bytes that are ready at `now`. Returns when they have arrived.
    #[inline(always)]
    fn move_bytes(&mut self, now: f64, bytes: u64) -> f64 {
        self.free = self.free.max(now) + bytes as f64 * self.ticks_per_byte;
        self.free
    }

    #[inline(always)]
    fn free_at(&self) -> u64 {
        self.free.ceil() as u64
    }
}

impl Link {
    /// Creates an idle link; `None` if its rate has no limit.
    pub(crate) fn new(rate: LinkRate, ticks_per_second: f64) -> Option<Self> {
        let ticks_per_byte = ticks_per_second / rate.bytes_per_second()?;
        let [to_host, to_nic] = [(); 2].map(|()| Direction { ticks_per_byte, free: 0.0 });
        Some(Self { to_host, to_nic })
    }

    #[inline(always)]
    fn write(&mut self, now: u64, packets: u64, bytes: u64) {
        self.to_host.move_bytes(now as f64, packets * WRITE + bytes);
    }

    /// Reads: completions follow when the requests have arrived.
    #[inline(always)]
    fn read(&mut self, now: u64, read: Read) {
        let requested = self.to_host.move_bytes(now as f64, read.requests * REQUEST);
        self.to_nic.move_bytes(requested, read.completions * COMPLETION + read.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// One tick per nanosecond.
    const NANOSECONDS: f64 = 1e9;

    #[test]
    fn rates_are_those_of_the_specification() {
        let gigabytes = |rate: LinkRate| (rate.bytes_per_second().unwrap() / 1e6).round() / 1e3;
        assert_eq!(gigabytes(LinkRate::Gen3x16), 15.754);
        assert_eq!(gigabytes(LinkRate::Gen4x16), 31.508);
        assert_eq!(LinkRate::None.bytes_per_second(), None);
        assert!(Link::new(LinkRate::None, NANOSECONDS).is_none());
    }

    #[test]
    fn a_read_is_cut_into_requests_and_completions() {
        let cases = [(64, 1, 1), (256, 1, 1), (257, 1, 2), (512, 1, 2), (513, 2, 3), (2048, 4, 8)];
        for (bytes, requests, completions) in cases {
            assert_eq!(Read::of(bytes), Read { requests, completions, bytes });
        }
        for flits in 0..100 {
            assert_eq!(Read::of_flits(flits), Read::of(64 * flits));
        }
    }

    #[test]
    fn bytes_are_counted_with_their_overhead() {
        let mut counters = Counters { writes: 3, bytes_written: 600, ..Counters::default() };
        counters.count_read(Read::of(1024));
        counters.register_writes = 2;
        // Three writes; two requests of 512 bytes; four completions of 256; two registers.
        assert_eq!(counters.to_host(), 600 + 3 * 24 + 2 * 24);
        assert_eq!(counters.to_nic(), 1024 + 4 * 20 + 2 * 28);
    }

    #[test]
    fn models_are_described() {
        let nothing = PcieModel::default();
        assert_eq!(nothing.to_string(), "nothing");
        let time = Duration::from_nanos;
        let all = PcieModel {
            doorbell: time(400),
            transfer: time(1000),
            mmio: time(50),
            link: LinkRate::Gen3x16,
        };
        let text = "doorbell 400 ns, transfer 1000 ns, mmio 50 ns, link gen3x16";
        assert_eq!(all.to_string(), text);
    }

    #[test]
    fn a_read_waits_for_its_requests_and_for_earlier_reads() {
        let mut link = Link::new(LinkRate::Gen3x16, NANOSECONDS).unwrap();
        let per_byte = NANOSECONDS / LinkRate::Gen3x16.bytes_per_second().unwrap();
        link.read(1000, Read::of(512));
        let first = 1000.0 + per_byte * (24.0 + 512.0 + 2.0 * 20.0);
        assert!((link.to_nic.free - first).abs() < 1e-6, "{link:?}");
        // Its request passes while the completions of the first are on their way.
        link.read(1000, Read::of(64));
        let second = first + per_byte * (64.0 + 20.0);
        assert!((link.to_nic.free - second).abs() < 1e-6, "{link:?}");
        // Writes use the other direction only.
        link.write(1000, 1, 64);
        assert!((link.to_nic.free - second).abs() < 1e-6);
        assert!((link.to_host.free - (1000.0 + per_byte * (2.0 * 24.0 + 88.0))).abs() < 1e-6);
    }

    proptest! {
        /// However writes are spread over time, the link moves no more than its rate, and no less if it is never idle.
        #[test]
        fn a_link_moves_bytes_at_its_rate(
            writes in prop::collection::vec((0u64..300, 1u64..5, 0u64..1024), 1..200),
        ) {
            let mut link = Link::new(LinkRate::Gen4x16, NANOSECONDS).unwrap();
            let per_second = LinkRate::Gen4x16.bytes_per_second().unwrap();
            let (mut now, mut busy_since, mut moved) = (1_000_000_u64, 1_000_000.0, 0);
            for (pause, packets, bytes) in writes {
                now += pause;
                if link.to_host.free < now as f64 {
                    (busy_since, moved) = (now as f64, 0);
                }
                link.write(now, packets, bytes);
                moved += 24 * packets + bytes;
                let seconds = (link.to_host.free - busy_since) / NANOSECONDS;
                prop_assert!((seconds * per_second - moved as f64).abs() < 1e-3 * moved as f64);
                prop_assert!(link.to_host.free_at() >= now);
            }
        }
    }
}
