//! Measurement of round-trip times.
//!
//! A packet has the lower 32 bits of its sending time, so that a time beyond 2^32 ticks (1.4 s at 3 GHz) would look like a
//! short one. The generator therefore remembers which packets it had sent at some earlier time, the [horizon](Horizon). The
//! time of a packet that was sent later is exact. That of another one is recorded as 2^32 - 1 ticks, which stands for all times
//! of at least 2^31 ticks.

use hdrhistogram::Histogram;

use super::burst::Position;
use super::pace::Pace;
use crate::nic::ticks;

/// Upper bound of the histogram of round-trip times, in ticks.
const MAX_TIME: u64 = u32::MAX as u64;

/// Interval at which positions are remembered, in ticks.
const INTERVAL: u64 = 1 << 30;
/// Number of remembered positions. The first is at least 2 intervals old, and usually less than 3: stamps repeat after 4.
const POSITIONS: usize = 3;

/// Timestamp of a packet that is not timed.
pub(super) const UNTIMED: u32 = 0;

/// Minimum interval between timed packets, in seconds. Reading the clock twice and recording the time takes as long as
/// some packets, so at higher rates only one packet in several is timed.
const MIN_INTERVAL: f64 = 100e-9;

/// Possible timing intervals in packets. All but 1 are skipped if they divide the length of the traffic, so that each
/// packet of the traffic is timed equally often.
const EVERY: [u32; 9] = [1, 2, 3, 5, 7, 11, 13, 17, 19];

/// Returns the timing interval in packets at a pace. `wire_bytes` is the mean size of a packet on the wire, and
/// `packets` the length of the traffic.
pub(super) fn interval(pace: Pace, wire_bytes: f64, packets: usize, ticks_per_second: f64) -> u32 {
    let min = match pace {
        Pace::TicksPerByte(ticks) => MIN_INTERVAL * ticks_per_second / (ticks * wire_bytes),
        Pace::Closed { .. } => f64::INFINITY,
    };
    // The last two are primes; only a traffic of a multiple of 323 packets is divisible by both.
    let max = f64::from(EVERY[EVERY.len() - 2]);
    let is_fit = |every: &u32| {
        f64::from(*every) >= min.min(max)
            && (*every == 1 || !packets.is_multiple_of(*every as usize))
    };
    EVERY.into_iter().find(is_fit).unwrap_or(EVERY[EVERY.len() - 1])
}

/// Selection of timed packets: the first of each `every`, across bursts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timing {
    every: u32,
    /// Timestamp of the next packets.
    stamp: u32,
    /// Number of packets that get it.
    left: u32,
}

impl Timing {
    /// Times one packet in `every`.
    pub(super) fn of_every(every: u32) -> Self {
        Self { every, stamp: UNTIMED, left: 0 }
    }

    /// Times no packet: all packets of a burst get the time at which it starts.
    pub(super) fn of_none() -> Self {
        Self::of_every(0)
    }

    /// Returns the selection for the start of a burst.
    #[inline(always)]
    pub(super) fn begin_burst(self) -> Self {
        if self.every == 0 { Self::of_none() } else { self }
    }

    /// Returns the timestamp of the next packets, and for how many of the `packets` remaining ones it is.
    #[inline(always)]
    pub(super) fn next(&mut self, packets: u32) -> (u32, u32) {
        if self.left == 0 {
            (self.stamp, self.left) = match self.every {
                0 => (ticks() as u32, u32::MAX),
                every if every > 1 && self.stamp != UNTIMED => (UNTIMED, every - 1),
                _ => (now(), 1),
            };
        }
        let count = packets.min(self.left);
        self.left -= count;
        (self.stamp, count)
    }
}

/// Returns the time, at most one tick late and never [`UNTIMED`].
#[inline(always)]
fn now() -> u32 {
    ticks() as u32 | 1
}

/// How the packets of a template are numbered: the first one, and the distance from round to round.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbering {
    pub(super) first: u32,
    pub(super) each: u32,
}

impl Numbering {
    /// Returns the number in a round of the traffic.
    #[inline(always)]
    pub(super) fn in_round(self, round: u32) -> u32 {
        self.first.wrapping_add(self.each.wrapping_mul(round))
    }
}

/// A time, and the position in the traffic at that time.
#[derive(Debug, Clone, Copy, Default)]
struct Horizon {
    time: u64,
    position: Position,
}

impl Horizon {
    /// Returns whether a packet was sent since then.
    #[inline(always)]
    fn precedes(&self, index: u32, number: u32, numbering: Numbering) -> bool {
        let Position { index: next, round } = self.position;
        // Packets before the position are next sent in the following round.
        let first = numbering.in_round(round.wrapping_add(u32::from(index < next)));
        number.wrapping_sub(first) < 1 << 31
    }
}

/// Round-trip times of a trial.
pub(super) struct Times {
    histogram: Histogram<u64>,
    /// Sum of all times, in ticks.
    sum: u64,
    /// Numbering of each packet of the traffic.
    numbering: Vec<Numbering>,
    /// The remembered positions, the first one first.
    horizons: [Horizon; POSITIONS],
    /// When the next position is remembered, in ticks.
    next: u64,
}

impl Times {
    /// Creates an empty histogram for the packets of a traffic.
    pub(super) fn new(numbering: Vec<Numbering>) -> Option<Self> {
        let histogram = Histogram::new_with_bounds(1, MAX_TIME, 3).ok()?;
        let horizons = [Horizon::default(); POSITIONS];
        Some(Self { histogram, sum: 0, numbering, horizons, next: 0 })
    }

    /// Starts a trial: resets the histogram, whose memory is allocated from then on.
    pub(super) fn begin(&mut self, now: u64) {
        self.histogram.reset();
        self.sum = 0;
        self.horizons = [Horizon { time: now, position: Position::default() }; POSITIONS];
        self.next = now.saturating_add(INTERVAL);
    }

    /// Remembers the position up to which packets were sent, if it is time.
    #[inline(always)]
    pub(super) fn advance(&mut self, now: u64, position: Position) {
        if now >= self.next {
            std::hint::cold_path();
            self.next = now + INTERVAL;
            self.horizons.rotate_left(1);
            self.horizons[POSITIONS - 1] = Horizon { time: now, position };
        }
    }

    /// Records a packet that has just returned.
    #[inline(always)]
    pub(super) fn take(&mut self, index: u32, number: u32, stamp: u32) {
        if stamp != UNTIMED {
            self.record(ticks(), index, number, stamp);
        }
    }

    /// Records a packet that has returned at a time. `index` is one of the traffic.
    #[inline(never)]
    fn record(&mut self, now: u64, index: u32, number: u32, stamp: u32) {
        let Some(numbering) = self.numbering.get(index as usize) else { return };
        let horizon = &self.horizons[0];
        let is_exact = now.wrapping_sub(horizon.time) <= MAX_TIME
            && horizon.precedes(index, number, *numbering);
        let elapsed = match (now as u32).wrapping_sub(stamp) {
            _ if !is_exact => u32::MAX,
            // A packet sent in this very tick has a timestamp that is one tick late.
            u32::MAX => 1,
            elapsed => elapsed.max(1),
        };
        self.histogram.saturating_record(u64::from(elapsed));
        self.sum += u64::from(elapsed);
    }

    /// Returns the number of recorded times and their sum in ticks.
    pub(super) fn total(&self) -> (u64, u64) {
        (self.histogram.len(), self.sum)
    }

    pub(super) fn end(self) -> Histogram<u64> {
        self.histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    /// Times of a traffic of packets that are each a sequence.
    fn times(packets: usize) -> Times {
        let mut times = Times::new(vec![Numbering { first: 0, each: 1 }; packets]).unwrap();
        times.begin(ticks());
        times
    }

    #[test]
    fn packets_sent_together_have_separate_times() {
        let Some(tsc) = machine::untested::tsc("stream: times of packets") else { return };
        let late = Duration::from_millis(20);
        let (mut times, sent) = (times(1), now());
        for number in 0..8 {
            times.take(0, number, sent);
        }
        let start = Instant::now();
        while start.elapsed() < late {
            std::hint::spin_loop();
        }
        for number in 8..16 {
            times.take(0, number, sent);
        }
        let times = times.end();
        // The histogram has three digits.
        let late = (tsc.ticks(late) as f64 * 0.998) as u64;
        assert_eq!(times.len(), 16);
        assert!(times.count_between(late, MAX_TIME) >= 8, "{late}: {:?}", times.max());
        let first = times.value_at_quantile(0.5);
        assert!(first + late / 2 < times.max(), "{first} of {}", times.max());
    }

    #[test]
    fn untimed_packets_are_not_counted() {
        let mut times = times(1);
        times.take(0, 0, UNTIMED);
        assert_eq!(times.total(), (0, 0));
        times.take(0, 1, now());
        let (count, sum) = times.total();
        let times = times.end();
        assert_eq!((count, times.len()), (1, 1));
        assert!(times.min() <= sum && sum <= times.max(), "{sum}");
    }

    proptest! {
        #![proptest_config(crate::tests::cases(512))]

        /// Packets are sent at a constant pace, each iteration ends with one, and they return after any time.
        #[test]
        fn a_time_that_wraps_is_never_recorded_as_a_short_one(
            packets in 1u32..40,
            log_gap in 24u32..=30,
            start in any::<u32>(),
            stall in prop_oneof![Just(0u64), 0u64..1 << 34],
            flights in prop::collection::vec((0u32..2000, 0u64..1 << 34), 1..40),
        ) {
            let gap = 1 << log_gap;
            let sent_at = |count: u32| u64::from(start) + u64::from(count) * gap;
            for (count, flight) in flights {
                let mut times = times(packets as usize);
                times.begin(u64::from(start));
                // The loop loses its CPU while the packet is in flight.
                let back = sent_at(count) + flight.max(1);
                for other in 0..=((back - u64::from(start)) / gap) as u32 {
                    let now = sent_at(other);
                    if now < sent_at(count) || now > sent_at(count) + stall {
                        let position = Position { index: other % packets, round: other / packets };
                        times.advance(now, position);
                    }
                }
                let (index, number) = (count % packets, count / packets);
                times.record(back, index, number, sent_at(count) as u32);
                let (_, found) = times.total();
                if flight < 1 << 31 {
                    // Exact unless a stall delayed the positions.
                    prop_assert!(found == flight.max(1) || stall > 0 && found == MAX_TIME);
                } else {
                    prop_assert!(found == flight || found == MAX_TIME, "{found} of {flight}");
                }
            }
        }
    }

    #[test]
    fn one_packet_in_every_interval_is_timed_across_bursts() {
        for every in EVERY {
            let (mut timing, mut timed, mut all) = (Timing::of_every(every), Vec::new(), 0);
            for burst in [1, 1, 5, 16, 1, 40, 3, 17, 4096] {
                let mut selection = timing.begin_burst();
                let mut left = burst;
                while left > 0 {
                    let (stamp, count) = selection.next(left);
                    assert!(count > 0 && (stamp == UNTIMED || count == 1));
                    if stamp != UNTIMED {
                        timed.push(all);
                    }
                    (left, all) = (left - count, all + count);
                }
                timing = selection;
            }
            assert_eq!(timed, (0..all).step_by(every as usize).collect::<Vec<_>>(), "{every}");
        }
    }

    #[test]
    fn slow_packets_are_all_timed_and_intervals_do_not_divide_the_traffic() {
        let at = |gigabits: f64, packets| {
            interval(Pace::bits(gigabits * 1e9, 2.6e9), 84.0, packets, 2.6e9)
        };
        assert_eq!([at(1.0, 1), at(6.0, 1), at(100.0, 1)], [1, 1, 17]);
        for packets in 1..400 {
            for gigabits in [1.0, 10.0, 20.0, 50.0, 100.0, 1e6] {
                let every = at(gigabits, packets);
                assert!(every == 1 || !packets.is_multiple_of(every as usize) || packets == 323);
            }
            let closed = interval(Pace::Closed { window: 1 }, 84.0, packets, 2.6e9);
            assert!(closed >= 17);
        }
    }
}
