//! Computes the values of a sample from its batches.

use std::ops::Range;

use lab::measure::Measurement;
use lab::statistics::median;
use machine::tsc::Tsc;

use crate::mbw::Run;
use crate::memory::Call;
use crate::metrics;

/// A batch is disturbed if its thread waited for its CPU for more than this share of it.
const WAITED: f64 = 0.05;

/// A timed batch.
struct TimedBatch {
    /// Index of its first copy.
    first: usize,
    /// Number of copies.
    count: usize,
    /// Net duration, in ticks.
    ticks: u64,
    /// Time that the thread was runnable without a CPU, in ticks.
    waited: u64,
}

/// The batches of a sample and the number of copies made.
pub(super) struct Batches {
    timed: Vec<TimedBatch>,
    overhead: u64,
    made: usize,
    last: usize,
}

impl Batches {
    pub(super) fn new(overhead: u64) -> Self {
        Self { timed: Vec::new(), overhead, made: 0, last: 0 }
    }

    /// Returns the index of the next copy.
    pub(super) fn next(&self) -> usize {
        self.made
    }

    /// Counts copies that are not timed.
    pub(super) fn skip(&mut self, count: usize) {
        self.made += count;
        self.last = count;
    }

    /// Adds a batch of `ticks`, which include the overhead of two readings of the counter; for
    /// `waited` of them the thread waited for its CPU.
    pub(super) fn add(&mut self, count: usize, ticks: u64, waited: u64) {
        let ticks = ticks.saturating_sub(self.overhead).max(1);
        self.timed.push(TimedBatch { first: self.made, count, ticks, waited });
        self.skip(count);
    }

    /// Returns the number of timed batches.
    pub(super) fn count(&self) -> usize {
        self.timed.len()
    }

    /// Returns the ticks for which the thread waited for its CPU, in all batches.
    pub(super) fn waited(&self) -> u64 {
        self.timed.iter().map(|batch| batch.waited).sum()
    }

    /// Returns why the sample is void: at least half of the batches were disturbed, so that the medians
    /// may be those of disturbed batches. The durations of the batches are not considered.
    fn void(&self) -> Option<String> {
        let disturbed = |batch: &&TimedBatch| batch.waited as f64 > WAITED * batch.ticks as f64;
        let disturbed = self.timed.iter().filter(disturbed).count();
        (disturbed > 0 && 2 * disturbed >= self.timed.len()).then(|| {
            let percent = WAITED * 100.0;
            format!("the thread waited for its CPU for over {percent}% of half of the batches")
        })
    }

    /// Returns the net ticks of all batches.
    pub(super) fn ticks(&self) -> u64 {
        self.timed.iter().map(|batch| batch.ticks).sum()
    }

    /// Returns the indices of the copies whose bytes must be in the destination: the last ones. If
    /// pages are discarded before each batch, those of the last batch.
    pub(super) fn copies_to_verify(&self, ring: usize, cold: bool) -> Range<usize> {
        let count = if cold { self.last } else { self.made };
        self.made - count.min(ring)..self.made
    }

    /// Returns the sample: medians over the batches, or NaN without batches, which the lab refuses.
    pub(super) fn summary(&self, tsc: &Tsc, ring: &[Call], checked: u64) -> Measurement {
        let bytes = Sums::of(ring);
        let seconds = |ticks: u64| ticks as f64 / tsc.hertz;
        let rates: Vec<f64> = self
            .timed
            .iter()
            .map(|one| bytes.between(one.first, one.count) as f64 / seconds(one.ticks))
            .collect();
        let times: Vec<f64> =
            self.timed.iter().map(|one| seconds(one.ticks) * 1e9 / one.count as f64).collect();
        let count = self.timed.iter().map(|one| one.count).min().unwrap_or(1);
        Measurement { void: self.void(), ..Measurement::default() }
            .value(metrics::THROUGHPUT, median(&rates).unwrap_or(f64::NAN))
            .value(metrics::TIME, median(&times).unwrap_or(f64::NAN))
            .value(metrics::TIME_MIN, times.iter().copied().fold(f64::INFINITY, f64::min))
            .value(metrics::RESOLUTION, tsc.nanoseconds(tsc.step as f64) / count as f64)
            .value(metrics::CHECKED, checked as f64)
    }
}

/// Prefix sums of the lengths of a ring.
struct Sums(Vec<u64>);

impl Sums {
    fn of(ring: &[Call]) -> Self {
        let mut sum = 0;
        let sums = ring.iter().map(|call| {
            sum += u64::from(call.length);
            sum
        });
        Self(std::iter::once(0).chain(sums).collect())
    }

    /// Returns the bytes of `count` copies from index `first` on.
    fn between(&self, first: usize, count: usize) -> u64 {
        let ring = self.0.len() - 1;
        let before = |number: usize| (number / ring) as u64 * self.0[ring] + self.0[number % ring];
        before(first + count) - before(first)
    }
}

/// Returns the sample of a run of mbw, which verifies no bytes.
pub(super) fn from_mbw(runs: &[Run], length: u64) -> Measurement {
    let rates: Vec<f64> = runs.iter().map(|run| run.rate).collect();
    let times: Vec<f64> = runs.iter().map(|run| length as f64 / run.rate * 1e9).collect();
    let step = runs.iter().map(|run| run.step).fold(0.0, f64::max);
    Measurement::default()
        .value(metrics::THROUGHPUT, median(&rates).unwrap_or(f64::NAN))
        .value(metrics::TIME, median(&times).unwrap_or(f64::NAN))
        .value(metrics::TIME_MIN, times.iter().copied().fold(f64::INFINITY, f64::min))
        .value(metrics::RESOLUTION, step)
        .value(metrics::CHECKED, 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ring(lengths: &[u32]) -> Vec<Call> {
        lengths.iter().map(|length| Call { at: 0, length: *length }).collect()
    }

    proptest! {
        #[test]
        fn prefix_sums_match_the_walk(lengths in prop::collection::vec(1u32..1000, 1..20), first in 0usize..100, count in 0usize..100) {
            let ring = ring(&lengths);
            let walked: u64 = (first..first + count).map(|number| u64::from(ring[number % ring.len()].length)).sum();
            prop_assert_eq!(Sums::of(&ring).between(first, count), walked);
        }
    }

    #[test]
    fn a_stalled_batch_does_not_move_the_median() {
        let tsc = Tsc { hertz: 1e9, step: 10, overhead: 20, min_overhead: 10 };
        let ring = ring(&[100]);
        let mut batches = Batches::new(tsc.overhead);
        batches.skip(7);
        for (ticks, waited) in [(1020, 0), (1020, 0), (4_000_000, 3_999_000)] {
            batches.add(10, ticks, waited);
        }
        let sample = batches.summary(&tsc, &ring, 5);
        assert_eq!(sample.values["time"], 100.0);
        assert_eq!(sample.values["time_min"], 100.0);
        assert!((sample.values["throughput"] - 1e9).abs() < 1.0);
        assert_eq!(sample.values["resolution"], 1.0);
        assert_eq!(sample.values["checked"], 5.0);
        assert_eq!(sample.void, None);
        assert_eq!(batches.copies_to_verify(4, false), 33..37);
        assert_eq!(batches.copies_to_verify(100, true), 27..37);
    }

    #[test]
    fn a_sample_is_void_only_if_half_of_its_batches_waited() {
        let tsc = Tsc { hertz: 1e9, step: 10, overhead: 20, min_overhead: 10 };
        let void = |timed: &[(u64, u64)]| {
            let mut batches = Batches::new(tsc.overhead);
            timed.iter().for_each(|(ticks, waited)| batches.add(10, *ticks, *waited));
            batches.summary(&tsc, &ring(&[100]), 5).void
        };
        let (good, stalled, slow) = ((1020, 0), (9020, 8000), (9020, 0));
        let why = "the thread waited for its CPU for over 5% of half of the batches";
        assert_eq!(void(&[stalled]).as_deref(), Some(why));
        assert_eq!(void(&[good, stalled]).as_deref(), Some(why));
        assert_eq!(void(&[good, good, stalled, stalled]).as_deref(), Some(why));
        assert_eq!(void(&[good, good, good, stalled, stalled]), None);
        // Slow batches without waiting, and waits that are short relative to their batch, are valid.
        assert_eq!(void(&[good, slow, slow]), None);
        assert_eq!(void(&[(1020, 40); 5]), None);
        assert_eq!(void(&[good]), None);
    }
}
