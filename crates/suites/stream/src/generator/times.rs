//! Round-trip times.

use hdrhistogram::Histogram;

use super::pace::Pace;
use crate::nic::ticks;

/// The longest round trip that is told from longer ones, ticks.
const LONGEST: u64 = u32::MAX as u64;

/// What a packet that is not timed has in the place of the time.
pub(super) const UNTIMED: u32 = 0;

/// Seconds between timed packets at least. Reading the clock twice and keeping the time takes as long as some
/// packets: where packets come faster, only each so many is timed.
const APART: f64 = 100e-9;

/// Of how many packets one is timed. Between these the traffic's length picks one that it is no multiple of, so
/// that each of its packets is timed as often.
const EVERY: [u32; 9] = [1, 2, 3, 5, 7, 11, 13, 17, 19];

/// Of how many packets one is timed at a pace, where packets take so many bytes on the wire in the mean and the
/// traffic has so many.
pub(super) fn interval(pace: Pace, wire_bytes: f64, packets: usize, ticks_per_second: f64) -> u32 {
    let apart = match pace {
        Pace::TicksAByte(ticks) => APART * ticks_per_second / (ticks * wire_bytes),
        Pace::Closed { .. } => f64::INFINITY,
    };
    // The last two are primes, of which a traffic that is a multiple of both has 323 packets.
    let most = f64::from(EVERY[EVERY.len() - 2]);
    let is_fit = |every: &u32| {
        f64::from(*every) >= apart.min(most)
            && (*every == 1 || !packets.is_multiple_of(*every as usize))
    };
    EVERY.into_iter().find(is_fit).unwrap_or(EVERY[EVERY.len() - 1])
}

/// Which packets are timed: of `every` the first. What is left of one burst goes on in the next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timing {
    every: u32,
    /// What the next packets get.
    stamp: u32,
    /// How many of them.
    left: u32,
}

impl Timing {
    /// One packet of so many is timed.
    pub(super) fn of_every(every: u32) -> Self {
        Self { every, stamp: UNTIMED, left: 0 }
    }

    /// None is: those of a burst all get the time at which it begins.
    pub(super) fn of_none() -> Self {
        Self::of_every(0)
    }

    /// As it is when a burst begins.
    #[inline(always)]
    pub(super) fn begin_burst(self) -> Self {
        if self.every == 0 { Self::of_none() } else { self }
    }

    /// What the next packets get in the place of the time, and how many of those left.
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

/// The time, which is no more than a tick late and never [`UNTIMED`].
#[inline(always)]
fn now() -> u32 {
    ticks() as u32 | 1
}

/// Round-trip times, each of one packet.
pub(super) struct Times(Histogram<u64>);

impl Times {
    pub(super) fn new() -> Option<Self> {
        Histogram::new_with_bounds(1, LONGEST, 3).ok().map(Self)
    }

    /// Forgets all; the histogram's memory is there from now on.
    pub(super) fn begin(&mut self) {
        self.0.reset();
    }

    /// Takes a packet that has just come back.
    #[inline(always)]
    pub(super) fn take(&mut self, stamp: u32) {
        if stamp != UNTIMED {
            let elapsed = (ticks() as u32).wrapping_sub(stamp);
            // A packet that was sent this very tick has a time that is one tick late.
            let elapsed = if elapsed == u32::MAX { 1 } else { elapsed.max(1) };
            self.0.saturating_record(u64::from(elapsed));
        }
    }

    pub(super) fn end(self) -> Histogram<u64> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn each_packet_has_its_own_time_also_of_those_sent_together() {
        let Some(tsc) = machine::untested::tsc("times of packets sent together") else { return };
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
        // The histogram keeps three digits.
        let late = (tsc.ticks(late) as f64 * 0.998) as u64;
        assert_eq!(times.len(), 16);
        assert!(times.count_between(late, LONGEST) >= 8, "{late}: {:?}", times.max());
        let first = times.value_at_quantile(0.5);
        assert!(first + late / 2 < times.max(), "{first} of {}", times.max());
    }

    #[test]
    fn packets_that_are_not_timed_are_not_counted() {
        let mut times = Times::new().unwrap();
        times.take(UNTIMED);
        times.take(now());
        assert_eq!(times.end().len(), 1);
    }

    #[test]
    fn one_of_so_many_is_timed_whatever_the_bursts() {
        for every in EVERY {
            let (mut timing, mut timed, mut all) = (Timing::of_every(every), Vec::new(), 0);
            for burst in [1, 1, 5, 16, 1, 40, 3, 17, 4096] {
                let mut here = timing.begin_burst();
                let mut left = burst;
                while left > 0 {
                    let (stamp, count) = here.next(left);
                    assert!(count > 0 && (stamp == UNTIMED || count == 1));
                    if stamp != UNTIMED {
                        timed.push(all);
                    }
                    (left, all) = (left - count, all + count);
                }
                timing = here;
            }
            assert_eq!(timed, (0..all).step_by(every as usize).collect::<Vec<_>>(), "{every}");
        }
    }

    #[test]
    fn all_are_timed_where_there_is_time_and_never_the_same_of_the_traffic() {
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
