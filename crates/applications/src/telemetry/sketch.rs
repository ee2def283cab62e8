//! A count-min sketch of which updates are sampled, and the error of its estimates.
//!
//! The sketch is by Cormode and Muthukrishnan, *An improved data stream summary: the count-min sketch and its applications*,
//! Journal of Algorithms 55 (1), 2005. NitroSketch (Liu et al., *NitroSketch: Robust and General Sketch-based Monitoring in
//! Software Switches*, SIGCOMM 2019) updates each row of each packet with probability `p` only, by `1/p`.
//!
//! # The bound
//!
//! Let `f` be the packets of a key, `N` those of all keys, `w` the columns. In one row, `C` packets of other keys share the
//! key's counter, and the row estimates `X = Y/p`, where `Y` is binomial with `f + C` trials of probability `p`.
//!
//! - `C` exceeds `8 N/w` with a probability of at most 1/8, because its mean is at most `N/w` (Markov's inequality).
//! - Otherwise, with `m = f + 8 N/w`, `X >= m + s` has a probability of at most `exp(-p s^2 / (2 (m + s/3)))` (Bernstein's
//!   inequality), which is 1/1000 if `s = L/(3 p) + sqrt((L/(3 p))^2 + 2 m L/p)` and `L = ln 1000`.
//! - `X <= f - s` has a probability of at most `exp(-p s^2 / (2 f))` (Chernoff's bound), which is 1/1000 if
//!   `s = sqrt(2 f L/p)`.
//!
//! So a row errs upwards with a probability of at most `q = 1/8 + 1/1000`. The estimate is the median of five rows, and errs
//! if three of them do: with a probability of at most 1.7%, as [`Bound::PROBABILITY`] computes. Without sampling it never
//! errs downwards.

use crate::hash::{of_number, scale};

/// Number of rows, as in Ensō's evaluation.
pub const ROWS: usize = 5;
/// Number of columns, as in Ensō's evaluation.
pub const COLUMNS: u32 = 102_400;

/// The counters. They contain numbers of samples; estimates multiply them.
#[derive(Debug, Clone)]
pub struct Sketch {
    counters: Box<[u32]>,
    /// Reciprocal of the probability that a row is updated.
    one_in: u32,
}

impl Sketch {
    /// Creates an empty sketch of which each row is updated by one in `one_in` packets.
    pub fn new(one_in: u32) -> Self {
        Self { counters: vec![0; ROWS * COLUMNS as usize].into(), one_in }
    }

    /// Adds a sample of a key to a row.
    ///
    /// # Panics
    /// Panics if there is no such row.
    #[inline(always)]
    pub fn add(&mut self, row: usize, key: u64) {
        let counter = &mut self.counters[Self::counter(row, key)];
        // 2^32 samples are reached after an hour of one flow at full rate.
        *counter = counter.saturating_add(1);
    }

    /// Returns the estimated number of packets of a key.
    pub fn estimate(&self, key: u64) -> u64 {
        let mut rows: [u32; ROWS] =
            std::array::from_fn(|row| self.counters[Self::counter(row, key)]);
        rows.sort_unstable();
        u64::from(rows[ROWS / 2]) * u64::from(self.one_in)
    }

    #[inline(always)]
    fn counter(row: usize, key: u64) -> usize {
        row * COLUMNS as usize + scale(of_number(key, row as u64), COLUMNS) as usize
    }
}

/// The range of the estimate of a key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bound {
    /// Lowest estimate.
    pub min: f64,
    /// Highest estimate.
    pub max: f64,
}

impl Bound {
    /// Highest probability that one row errs upwards.
    const ROW: f64 = 0.125 + 0.001;
    /// Highest probability that an estimate is outside of the range: 3, 4 or 5 rows err upwards, or downwards.
    pub const PROBABILITY: f64 = at_least_three(Self::ROW) + at_least_three(0.001);

    /// Returns the range for a key of `count` packets among `total` packets.
    pub fn new(count: u64, total: u64, one_in: u32) -> Self {
        let (count, total, reciprocal) = (count as f64, total as f64, f64::from(one_in));
        let shared = count + 8.0 * total / f64::from(COLUMNS);
        if one_in == 1 {
            return Self { min: count, max: shared };
        }
        let logarithm = 1000f64.ln();
        let third = logarithm * reciprocal / 3.0;
        let above = third + (third * third + 2.0 * shared * logarithm * reciprocal).sqrt();
        let below = (2.0 * count * logarithm * reciprocal).sqrt();
        Self { min: count - below, max: shared + above }
    }

    /// Returns whether an estimate is in the range.
    pub fn includes(&self, estimate: u64) -> bool {
        (self.min..=self.max).contains(&(estimate as f64))
    }
}

/// Returns the probability that at least 3 of 5 independent events of a probability occur.
const fn at_least_three(each: f64) -> f64 {
    let none = 1.0 - each;
    let three = each * each * each;
    three * (10.0 * none * none + 5.0 * each * none + each * each)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probability_is_that_of_the_binomial_distribution() {
        assert!((at_least_three(0.5) - 0.5).abs() < 1e-12);
        assert!((at_least_three(1.0) - 1.0).abs() < 1e-12);
        assert!((0.016..0.017).contains(&Bound::PROBABILITY), "{}", Bound::PROBABILITY);
    }

    #[test]
    fn without_sampling_estimates_are_at_least_the_counts() {
        const KEYS: u64 = 200_000;
        let mut sketch = Sketch::new(1);
        let count = |key: u64| if key < 100 { 1000 } else { 1 + key % 3 };
        for key in 0..KEYS {
            for _ in 0..count(key) {
                (0..ROWS).for_each(|row| sketch.add(row, key));
            }
        }
        let total: u64 = (0..KEYS).map(count).sum();
        let bound = |key| Bound::new(count(key), total, 1);
        assert!((0..KEYS).all(|key| sketch.estimate(key) >= count(key)));
        let outside = (0..KEYS).filter(|key| !bound(*key).includes(sketch.estimate(*key))).count();
        let share = outside as f64 / KEYS as f64;
        assert!(share <= Bound::PROBABILITY, "{share} are outside of the bound");
        // Estimates are no better than collisions permit: the sketch has fewer counters than keys.
        assert!((0..KEYS).any(|key| sketch.estimate(key) > count(key)));
    }

    #[test]
    fn a_counter_does_not_wrap_around() {
        let mut sketch = Sketch::new(100);
        let counter = Sketch::counter(2, 9);
        sketch.counters[counter] = u32::MAX;
        sketch.add(2, 9);
        assert_eq!(sketch.counters[counter], u32::MAX);
    }
}
