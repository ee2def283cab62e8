//! One trial: packets at a pace for a time, and what came back of them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use hdrhistogram::Histogram;

use super::pace::Pace;
use super::packet_checker::Check;
use crate::wire::traffic::Traffic;

/// What is sent, and what is looked at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trial {
    /// How fast packets are sent.
    pub pace: Pace,
    /// How many are sent at most.
    pub count: u64,
    /// How long they are sent at most, ticks.
    pub duration: u64,
    /// How long to wait first, ticks: what is left of what was before comes to rest meanwhile.
    pub wait: u64,
    /// How long to wait afterwards for those under way, ticks.
    pub drain: u64,
    /// What of each packet that comes back is compared with what was sent, besides its number.
    pub check: Check,
    /// Whether the application adds 1 to the byte [`TOUCHED`](super::TOUCHED) of each packet.
    pub touched: bool,
    /// Whether round-trip times are taken: of all packets, or of one of so many where they come too fast.
    pub times: bool,
    /// A turn of the loop that takes this long, ticks, and [`allowed`](Self::allowed) for each of its
    /// packets, stood still.
    pub stall: u64,
    /// What a packet may take, ticks.
    pub allowed: u64,
}

impl Default for Trial {
    fn default() -> Self {
        Self {
            pace: Pace::Closed { window: 0 },
            count: u64::MAX,
            duration: 0,
            wait: 0,
            drain: 0,
            check: Check::All,
            touched: true,
            times: false,
            stall: u64::MAX,
            allowed: 0,
        }
    }
}

/// What came of a trial.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Packets sent.
    pub sent: u64,
    /// Of them, those for which the NIC had no room.
    pub dropped: u64,
    /// Packets that came back.
    pub received: u64,
    /// Packets that came back other than they should be.
    pub corrupted: u64,
    /// Packets that came back after a later one of their flow, or again.
    pub late: u64,
    /// Bytes that came back, without check sequences.
    pub bytes: u64,
    /// When it began, ticks.
    pub start: u64,
    /// When the last packet was sent, ticks.
    pub ended_sending: u64,
    /// When the last packet came back or was given up, ticks.
    pub ended: u64,
    /// The longest turn of the loop while packets were sent, ticks.
    pub gap: u64,
    /// Ticks of all turns in which it stood still meanwhile.
    pub stalled: u64,
    /// Round-trip times, ticks, each of one packet: from right before it was written to memory until it has
    /// left. None where they were not taken.
    pub times: Option<Histogram<u64>>,
    /// Of how many packets one was timed; 0 where none was.
    pub timed_every: u32,
}

impl Report {
    /// Packets that never came back.
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }

    /// Packets sent a tick.
    pub fn offered(&self) -> f64 {
        self.sent as f64 / (self.ended_sending - self.start).max(1) as f64
    }

    /// Packets that came back a tick.
    pub fn rate(&self) -> f64 {
        self.received as f64 / (self.ended - self.start).max(1) as f64
    }
}

/// Which packets of the traffic belong to one flow.
pub(super) struct Flows {
    /// The flow of each packet.
    pub(super) of_packet: Vec<u32>,
    /// How many flows there are.
    pub(super) count: usize,
}

pub(super) fn flows(traffic: &Traffic) -> Flows {
    let mut known = BTreeMap::new();
    let mut flow_of = |packet: &crate::wire::traffic::Packet| {
        let next = known.len() as u32;
        *known.entry(packet.flow).or_insert(next)
    };
    let of_packet = traffic.packets().iter().map(&mut flow_of).collect();
    Flows { of_packet, count: known.len() }
}

/// How far the generator is, as of a millisecond ago.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct LiveCounters {
    sent: AtomicU64,
    received: AtomicU64,
    corrupted: AtomicU64,
}

/// What was seen of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CounterSnapshot {
    /// Packets sent in the trial under way.
    pub sent: u64,
    /// Packets that came back in it.
    pub received: u64,
    /// Of them, those that were other than they should be.
    pub corrupted: u64,
}

impl LiveCounters {
    pub(super) fn publish(&self, now: CounterSnapshot) {
        self.sent.store(now.sent, Ordering::Relaxed);
        self.received.store(now.received, Ordering::Relaxed);
        self.corrupted.store(now.corrupted, Ordering::Relaxed);
    }

    /// How far it is.
    pub fn read(&self) -> CounterSnapshot {
        CounterSnapshot {
            sent: self.sent.load(Ordering::Relaxed),
            received: self.received.load(Ordering::Relaxed),
            corrupted: self.corrupted.load(Ordering::Relaxed),
        }
    }
}
