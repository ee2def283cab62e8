//! Trials: their params, reports and progress.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use hdrhistogram::Histogram;

use super::pace::Pace;
use super::packet_checker::{Check, Expectation};
use crate::core_use::CoreUse;
use crate::iterations::{LoopTimes, StallThreshold};
use crate::wire::traffic::{Traffic, WIRE_OVERHEAD};

/// Params of a trial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trial {
    /// The pace at which packets are sent.
    pub pace: Pace,
    /// Maximum number of packets.
    pub count: u64,
    /// Maximum duration of sending, in ticks, without the time of stalled iterations.
    pub duration: u64,
    /// Wait before sending, in ticks, in which packets of earlier trials return.
    pub wait: u64,
    /// Maximum wait after sending for packets in flight, in ticks.
    pub drain: u64,
    /// How much of each packet is verified besides its identity.
    pub check: Check,
    /// Packets that the application returns.
    pub expectation: Expectation,
    /// Whether round-trip times are measured, of all packets or of one in several.
    pub times: bool,
    /// Which iterations of the loop are stalls.
    pub threshold: StallThreshold,
    /// Whether to learn what a packet costs in the loop.
    pub learns: bool,
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
            expectation: Expectation::default(),
            times: false,
            threshold: StallThreshold::NEVER,
            learns: false,
        }
    }
}

/// Result of a trial.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Packets sent.
    pub sent: u64,
    /// Sent packets for which the NIC had no space.
    pub dropped: u64,
    /// Packets that the application was expected to return.
    pub expectation: Expectation,
    /// Echoed packets; see [`consumed_by`](Self::consumed_by).
    pub received: u64,
    /// Echoed packets with wrong contents.
    pub corrupted: u64,
    /// Packets echoed after a later one of their sequence, or twice.
    pub late: u64,
    /// Values that answers of the key-value store state to be missing: all if every byte is checked, those of answers whose first
    /// value is missing if one word is; `None` if neither is.
    pub missing: Option<u64>,
    /// Packets that the application has processed, as the NIC knows it from the space that was freed; `None` if it does not.
    pub consumed: Option<u64>,
    /// Echoed bytes, without check sequences.
    pub bytes: u64,
    /// Sent bytes on the wire, with check sequences, preambles and gaps.
    pub sent_bytes: u64,
    /// Echoed bytes on the wire, with check sequences, preambles and gaps.
    pub received_bytes: u64,
    /// Start of the trial, in ticks.
    pub start: u64,
    /// Time of the last sent packet, in ticks.
    pub ended_sending: u64,
    /// Time of the last echoed packet, or of the last sent one if none followed, in ticks.
    pub ended: u64,
    /// Iterations of the loop while packets were sent. Their packets are those sent and those received.
    pub iterations: LoopTimes,
    /// Mean duration of an iteration before the trial, without packets, in ticks; `None` if there was no wait.
    pub empty_iteration: Option<f64>,
    /// Cost of a packet sent or received in the loop, in ticks; `None` if it was not to be learnt.
    pub packet_cost: Option<u64>,
    /// Core clock of the loop at the end, in Hz; `None` if it is doubtful.
    pub core_hertz: Option<f64>,
    /// Round-trip times in ticks, from just before a packet is written to memory until it has been read back. `None` if
    /// not measured.
    pub times: Option<Histogram<u64>>,
    /// Timing interval in packets; 0 if no packet was timed.
    pub timed_every: u32,
}

impl Report {
    /// Returns the number of packets that were never echoed.
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }

    /// Returns how the core of NIC and generator spent the time in which packets were sent.
    pub fn core_use(&self) -> CoreUse {
        let Self { iterations, empty_iteration, start, ended_sending, .. } = self;
        let empty = empty_iteration.or_else(|| iterations.empty_iteration());
        CoreUse::of(iterations, ended_sending.saturating_sub(*start), empty)
    }

    /// Returns the core cycles that NIC and generator need to send a packet and to take it back, if it returns; `None` without
    /// packets, or if the core clock is doubtful.
    pub fn cycles_per_packet(&self, ticks_per_second: f64) -> Option<f64> {
        let LoopTimes { busy, packets, .. } = self.iterations;
        let cycles = busy as f64 / ticks_per_second * self.core_hertz?;
        let times = if self.expectation == Expectation::Nothing { 1.0 } else { 2.0 };
        (packets > 0).then(|| times * cycles / packets as f64)
    }

    /// Returns the report of a trial in which the application consumed packets instead of returning them, as it counted: these
    /// count as received ones. Packets on the wire have the mean size of those sent.
    #[must_use]
    pub fn consumed_by(self, packets: u64) -> Self {
        let received = packets.min(self.sent.saturating_sub(self.dropped));
        let share = received as f64 / self.sent.max(1) as f64;
        let of = |bytes: u64| (bytes as f64 * share).round() as u64;
        let overhead = received * u64::from(WIRE_OVERHEAD);
        let received_bytes = of(self.sent_bytes);
        let bytes = received_bytes.saturating_sub(overhead);
        Self { received, received_bytes, bytes, ..self }
    }

    /// Returns the packets sent per tick.
    pub fn offered(&self) -> f64 {
        self.sent as f64 / (self.ended_sending - self.start).max(1) as f64
    }

    /// Returns the bits received per tick on the wire, with check sequence, preamble and gap.
    pub fn wire_rate(&self) -> f64 {
        8.0 * self.received_bytes as f64 / (self.ended - self.start).max(1) as f64
    }

    /// Returns the packets received per tick.
    pub fn rate(&self) -> f64 {
        self.received as f64 / (self.ended - self.start).max(1) as f64
    }
}

/// The sequences of the traffic: packets of each return in the order in which they are sent.
pub(super) struct Sequences {
    /// Sequence of each packet.
    pub(super) of_packet: Vec<u32>,
    /// Number of sequences.
    pub(super) count: usize,
}

/// Returns the sequences that the traffic states, or else its flows.
pub(super) fn sequences(traffic: &Traffic) -> Sequences {
    if let Some(stated) = traffic.sequences() {
        let count = stated.iter().max().map_or(0, |last| *last as usize + 1);
        return Sequences { of_packet: stated.to_vec(), count };
    }
    let mut known = BTreeMap::new();
    let mut flow_of = |packet: &crate::wire::traffic::Packet| {
        let next = known.len() as u32;
        *known.entry(packet.flow).or_insert(next)
    };
    let of_packet = traffic.packets().iter().map(&mut flow_of).collect();
    Sequences { of_packet, count: known.len() }
}

macro_rules! live_counters {
    ($($(#[doc = $doc:literal])+ $field:ident,)+) => {
        /// Progress of the generator, updated every millisecond.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct LiveCounters {
            $($field: AtomicU64,)+
        }

        /// Progress of the generator at one time.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct CounterSnapshot {
            $($(#[doc = $doc])+ pub $field: u64,)+
        }

        impl LiveCounters {
            pub(super) fn publish(&self, now: CounterSnapshot) {
                $(self.$field.store(now.$field, Ordering::Relaxed);)+
            }

            /// Returns the current progress.
            pub fn read(&self) -> CounterSnapshot {
                CounterSnapshot { $($field: self.$field.load(Ordering::Relaxed),)+ }
            }
        }
    };
}

live_counters! {
    /// Packets sent in the current trial.
    sent,
    /// Bytes sent on the wire.
    sent_bytes,
    /// Packets echoed in it.
    received,
    /// Bytes echoed on the wire.
    received_bytes,
    /// Echoed packets with wrong contents.
    corrupted,
    /// Packets echoed after a later one of their sequence, or twice.
    late,
    /// Round-trip times measured.
    timed,
    /// Sum of these times, in ticks.
    ticks,
}
