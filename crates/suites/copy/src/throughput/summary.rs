//! From batches to the values of a sample.

use std::ops::Range;

use lab::measure::Measurement;
use lab::statistics::median;
use machine::tsc::Tsc;

use super::Call;
use crate::limit::mbw::Run;
use crate::metrics;

/// A batch whose thread waited for its CPU for a larger share of it than this is disturbed.
const WAITED: f64 = 0.05;

/// A batch that was timed.
struct Timed {
    /// The number of its first copy.
    first: usize,
    /// Its copies.
    count: usize,
    /// Net ticks.
    ticks: u64,
    /// Ticks for which the thread was ready and others had its CPU.
    waited: u64,
}

/// The batches of a sample, and how many copies were made.
pub(super) struct Batches {
    timed: Vec<Timed>,
    overhead: u64,
    made: usize,
    last: usize,
}

impl Batches {
    pub(super) fn new(overhead: u64) -> Self {
        Self { timed: Vec::new(), overhead, made: 0, last: 0 }
    }

    /// The number of the next copy.
    pub(super) fn next(&self) -> usize {
        self.made
    }

    /// Counts copies that were made and are not to be summarised.
    pub(super) fn skip(&mut self, count: usize) {
        self.made += count;
        self.last = count;
    }

    /// Adds a batch that took so many ticks, with those of the empty pair, for `waited` of which its
    /// thread waited for its CPU.
    pub(super) fn add(&mut self, count: usize, ticks: u64, waited: u64) {
        let ticks = ticks.saturating_sub(self.overhead).max(1);
        self.timed.push(Timed { first: self.made, count, ticks, waited });
        self.skip(count);
    }

    /// Batches that were timed.
    pub(super) fn count(&self) -> usize {
        self.timed.len()
    }

    /// Ticks for which the thread waited for its CPU in all batches.
    pub(super) fn waited(&self) -> u64 {
        self.timed.iter().map(|batch| batch.waited).sum()
    }

    /// Why the medians do not count: they are those of undisturbed batches only while more than half
    /// of the batches are. What the batches took plays no part.
    fn void(&self) -> Option<String> {
        let disturbed = |batch: &&Timed| batch.waited as f64 > WAITED * batch.ticks as f64;
        let disturbed = self.timed.iter().filter(disturbed).count();
        (disturbed > 0 && 2 * disturbed >= self.timed.len()).then(|| {
            let percent = WAITED * 100.0;
            format!("the thread waited for its CPU for over {percent}% of half of the batches")
        })
    }

    /// Net ticks of all batches.
    pub(super) fn ticks(&self) -> u64 {
        self.timed.iter().map(|batch| batch.ticks).sum()
    }

    /// Which copies must be found in the destination now: the last ones, by number. Where pages are
    /// taken away before a batch, those of the last batch.
    pub(super) fn made(&self, ring: usize, cold: bool) -> Range<usize> {
        let count = if cold { self.last } else { self.made };
        self.made - count.min(ring)..self.made
    }

    /// The sample: medians over the batches. Without any there is no number, which the lab refuses.
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

/// Running sums of the lengths of a ring.
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

    /// Bytes of so many copies from number `first` on.
    fn between(&self, first: usize, count: usize) -> u64 {
        let ring = self.0.len() - 1;
        let before = |number: usize| (number / ring) as u64 * self.0[ring] + self.0[number % ring];
        before(first + count) - before(first)
    }
}

/// The sample of a run of mbw's. It verifies nothing.
pub(super) fn of_mbw(runs: &[Run], length: u64) -> Measurement {
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
        fn sums_are_those_of_the_walk(lengths in prop::collection::vec(1u32..1000, 1..20), first in 0usize..100, count in 0usize..100) {
            let ring = ring(&lengths);
            let walked: u64 = (first..first + count).map(|number| u64::from(ring[number % ring.len()].length)).sum();
            prop_assert_eq!(Sums::of(&ring).between(first, count), walked);
        }
    }

    #[test]
    fn a_stalled_batch_does_not_move_the_median() {
        let tsc = Tsc { hertz: 1e9, step: 10, overhead: 20, overhead_least: 10 };
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
        assert_eq!(batches.made(4, false), 33..37);
        assert_eq!(batches.made(100, true), 27..37);
    }

    #[test]
    fn waiting_alone_voids_and_only_where_it_moves_the_median() {
        let tsc = Tsc { hertz: 1e9, step: 10, overhead: 20, overhead_least: 10 };
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
        // Long, but nobody else had the CPU; and waits that are short beside their batch.
        assert_eq!(void(&[good, slow, slow]), None);
        assert_eq!(void(&[(1020, 40); 5]), None);
        assert_eq!(void(&[good]), None);
    }
}
