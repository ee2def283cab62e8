//! Measurement of round-trip times.

use hdrhistogram::Histogram;

use super::pace::Pace;
use crate::nic::ticks;

/// Upper bound of the histogram of round-trip times, in ticks.
const MAX_TIME: u64 = u32::MAX as u64;

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

/// Histogram of round-trip times.
pub(super) struct Times {
    histogram: Histogram<u64>,
    /// Sum of all times, in ticks.
    sum: u64,
}

impl Times {
    pub(super) fn new() -> Option<Self> {
        let histogram = Histogram::new_with_bounds(1, MAX_TIME, 3).ok()?;
        Some(Self { histogram, sum: 0 })
    }

    /// Resets the histogram, whose memory is allocated from then on.
    pub(super) fn begin(&mut self) {
        self.histogram.reset();
        self.sum = 0;
    }

    /// Records a packet that has just returned.
    #[inline(always)]
    pub(super) fn take(&mut self, stamp: u32) {
        if stamp != UNTIMED {
            let elapsed = (ticks() as u32).wrapping_sub(stamp);
            // A packet sent in this very tick has a timestamp that is one tick late.
            let elapsed = if elapsed == u32::MAX { 1 } else { elapsed.max(1) };
            self.histogram.saturating_record(u64::from(elapsed));
            self.sum += u64::from(elapsed);
        }
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

    #[test]
    fn packets_sent_together_have_separate_times() {
        let Some(tsc) = machine::untested::tsc("stream: times of packets") else { return };
        let late = Duration::from_millis(20);
        let (mut times, sent) = (Times::new().unwrap(), now());
        for _ in 0..8 {
            times.take(sent);
        }
        let start = Instant::now();
        while start.elapsed() < late {
            std::hint::spin_loop();
        }
        for _ in 0..8 {
            times.take(sent);
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
        let mut times = Times::new().unwrap();
        times.take(UNTIMED);
        assert_eq!(times.total(), (0, 0));
        times.take(now());
        let (count, sum) = times.total();
        let times = times.end();
        assert_eq!((count, times.len()), (1, 1));
        assert!(times.min() <= sum && sum <= times.max(), "{sum}");
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
