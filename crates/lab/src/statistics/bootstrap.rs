//! The percentile bootstrap interval of a median, computed exactly.
//!
//! A percentile bootstrap draws `n` of the `n` values with replacement, takes the median, repeats
//! this 10,000 times and cuts 2.5% from either end. The distribution of the resampled median
//! follows from binomial probabilities (Maritz and Jarrett, 1978; Efron, 1979, for an odd number of
//! values), so that no values are drawn: the result is the limit for infinitely many resamples. It
//! is deterministic and takes microseconds. The tests compare it with every possible resample and
//! with 10,000 random ones.

/// Probability below which a median is left out: all of them together move no quantile.
const NEGLIGIBLE: f64 = 1e-18;

/// Maximum number of values for which the whole distribution is computed, in quadratic time. With
/// more, the ends are found by a binary search over ranks.
const MAX_DISTRIBUTION: usize = 1000;

/// A possible median of a resample.
#[derive(Debug, Clone, Copy)]
struct Atom {
    median: f64,
    probability: f64,
}

/// Returns the interval that cuts `tail` of the resampled medians of sorted values off at either
/// end.
pub(super) fn percentile_interval(sorted: &[f64], tail: f64) -> (f64, f64) {
    if sorted.len() > MAX_DISTRIBUTION {
        let draws = Binomial::new(sorted.len());
        return interval_by_ranks(sorted, |drawn, chance| draws.at_least(drawn, chance) >= tail);
    }
    let atoms = distribution(sorted);
    let low = first_beyond(atoms.iter(), tail);
    let high = first_beyond(atoms.iter().rev(), tail);
    let (min, max) = (sorted[0], sorted[sorted.len() - 1]);
    (low.unwrap_or(min), high.unwrap_or(max))
}

/// Returns the interval of many sorted values. With an odd number an end is exact: the lowest rank
/// that the middle draw does not exceed with the probability of a tail. With an even number it is
/// the mean of the ends of the two middle draws, which are adjacent. `reaches` returns whether at
/// least that many draws, each with a probability, are likely enough.
fn interval_by_ranks(sorted: &[f64], mut reaches: impl FnMut(usize, f64) -> bool) -> (f64, f64) {
    let n = sorted.len();
    let mut index = |drawn: usize| {
        let (mut low, mut high) = (0, n - 1);
        while low < high {
            let middle = low.midpoint(high);
            match reaches(drawn, (middle + 1) as f64 / n as f64) {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        low
    };
    let (a, b) = (index(n.div_ceil(2)), index(n / 2 + 1));
    (f64::midpoint(sorted[a], sorted[b]), f64::midpoint(sorted[n - 1 - a], sorted[n - 1 - b]))
}

/// Returns the first median at which the cumulative probability reaches `tail`. Both ends use it,
/// so that the interval of mirrored values is mirrored.
fn first_beyond<'a>(atoms: impl Iterator<Item = &'a Atom>, tail: f64) -> Option<f64> {
    let mut cumulative = 0.0;
    for atom in atoms {
        cumulative += atom.probability;
        if cumulative >= tail {
            return Some(atom.median);
        }
    }
    None
}

/// Returns every possible median of a resample of sorted values, in ascending order, with its
/// probability.
fn distribution(sorted: &[f64]) -> Vec<Atom> {
    if sorted.len() % 2 == 1 {
        return odd(sorted);
    }
    let mut atoms = even(sorted);
    atoms.sort_unstable_by(|a, b| a.median.total_cmp(&b.median));
    atoms
}

/// With `n = 2m + 1` values the median of a resample is at most the `k`th value if at least `m + 1`
/// draws are among the `k` lowest: a binomial tail with probability `k / n`.
fn odd(sorted: &[f64]) -> Vec<Atom> {
    let n = sorted.len();
    let draws = Binomial::new(n);
    let mut below = 0.0;
    let mut atoms = Vec::with_capacity(n);
    for (index, &median) in sorted.iter().enumerate() {
        let at_most = draws.at_least(n / 2 + 1, (index + 1) as f64 / n as f64);
        atoms.push(Atom { median, probability: (at_most - below).max(0.0) });
        below = at_most;
    }
    atoms
}

/// With `n = 2m` values the median of a resample is the mean of its `m`th and `m + 1`th draw, the
/// values `i` and `j`. For `i < j`, `m` draws are among the `i` lowest, with `i` as their highest,
/// and `m` draws are among the highest, with `j` as their lowest. The remaining probability that
/// the `m`th draw is `i` is that of `i = j`.
fn even(sorted: &[f64]) -> Vec<Atom> {
    let n = sorted.len();
    let m = n / 2;
    let draws = Binomial::new(n);
    let ln_reach: Vec<f64> = (1..=n).map(|rank| ln_maximum_is(rank, n, m)).collect();
    let mut atoms = Vec::new();
    let mut below = 0.0;
    for i in 0..n {
        let at_most = draws.at_least(m, (i + 1) as f64 / n as f64);
        let mut remaining = at_most - below;
        below = at_most;
        for j in i + 1..n {
            let probability = (draws.ln_choose(m) + ln_reach[i] + ln_reach[n - 1 - j]).exp();
            if probability < NEGLIGIBLE {
                break; // It decreases with `j`.
            }
            remaining -= probability;
            atoms.push(Atom { median: f64::midpoint(sorted[i], sorted[j]), probability });
        }
        atoms.push(Atom { median: sorted[i], probability: remaining.max(0.0) });
    }
    atoms
}

/// Returns the logarithm of the probability that the highest of `m` draws out of `n` ranks is
/// `rank`: `(rank / n)^m - ((rank - 1) / n)^m`. By symmetry it is also the probability that the
/// lowest is `n + 1 - rank`.
fn ln_maximum_is(rank: usize, n: usize, m: usize) -> f64 {
    let (rank, n, m) = (rank as f64, n as f64, m as f64);
    m * (rank / n).ln() + (-((rank - 1.0) / rank).powf(m)).ln_1p()
}

/// Binomial distribution of `n` trials, for any probability of success.
pub(super) struct Binomial {
    /// Logarithm of `n` choose `k`, for each `k` in 0 to `n`; the coefficients overflow from 1030
    /// trials.
    ln_choose: Vec<f64>,
}

impl Binomial {
    /// Computes the coefficients for `n` trials.
    pub(super) fn new(n: usize) -> Self {
        let mut ln_choose = vec![0.0; n + 1];
        for k in 1..=n / 2 {
            ln_choose[k] = ln_choose[k - 1] + ((n - k + 1) as f64 / k as f64).ln();
            ln_choose[n - k] = ln_choose[k];
        }
        Self { ln_choose }
    }

    /// Returns the logarithm of `n` choose `k`.
    fn ln_choose(&self, k: usize) -> f64 {
        self.ln_choose[k]
    }

    /// Returns the probability of at least `k` successes, each with probability `p`.
    pub(super) fn at_least(&self, k: usize, p: f64) -> f64 {
        if k == 0 || p >= 1.0 {
            return 1.0;
        }
        if p <= 0.0 {
            return 0.0;
        }
        let n = self.ln_choose.len() - 1;
        let (ln_p, ln_q) = (p.ln(), (-p).ln_1p());
        (k..=n)
            .map(|j| (self.ln_choose[j] + j as f64 * ln_p + (n - j) as f64 * ln_q).exp())
            .sum::<f64>()
            .min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::RngExt;
    use statrs::distribution::DiscreteCDF;

    use super::super::estimate::{median_of_sorted, quantile};
    use super::super::order::generator;
    use super::{Binomial, distribution, first_beyond, interval_by_ranks, percentile_interval};

    /// Values with uneven gaps, so that no two means of pairs coincide.
    fn uneven(n: usize) -> Vec<f64> {
        (0..n).map(|i| (i as f64 + 1.0).powf(1.7)).collect()
    }

    fn at_most(sorted: &[f64], value: f64) -> f64 {
        let atoms = distribution(sorted);
        atoms.iter().filter(|a| a.median <= value).map(|a| a.probability).sum()
    }

    #[test]
    fn equals_every_possible_resample_counted() {
        for n in 1..=6usize {
            let values = uneven(n);
            let all = n.pow(n as u32);
            let mut medians: Vec<f64> = (0..all)
                .map(|code| {
                    let drawn = (0..n as u32).map(|place| values[code / n.pow(place) % n]);
                    let mut drawn: Vec<f64> = drawn.collect();
                    drawn.sort_by(f64::total_cmp);
                    median_of_sorted(&drawn)
                })
                .collect();
            medians.sort_by(f64::total_cmp);
            for atom in distribution(&values) {
                let counted = medians.iter().filter(|m| **m == atom.median).count();
                let expected = counted as f64 / all as f64;
                assert!((atom.probability - expected).abs() < 1e-12, "{n}: {atom:?} {expected}");
            }
        }
    }

    #[test]
    fn equals_ten_thousand_seeded_resamples_within_their_own_error() {
        const RESAMPLES: usize = 10_000;
        for n in [10usize, 11, 20, 21, 51, 100] {
            let values = uneven(n);
            let mut random = generator(n as u64, "bootstrap test", 0);
            let mut medians: Vec<f64> = (0..RESAMPLES)
                .map(|_| {
                    let mut ranks: Vec<usize> = (0..n).map(|_| random.random_range(0..n)).collect();
                    ranks.sort_unstable();
                    f64::midpoint(values[ranks[(n - 1) / 2]], values[ranks[n / 2]])
                })
                .collect();
            medians.sort_by(f64::total_cmp);
            // Kolmogorov's distance: larger than this once in a million (Dvoretzky, Kiefer,
            // Wolfowitz).
            let bound = ((2e6f64).ln() / (2.0 * RESAMPLES as f64)).sqrt();
            for percent in 1..100 {
                let at = medians[percent * RESAMPLES / 100];
                let simulated = medians.partition_point(|m| *m <= at) as f64 / RESAMPLES as f64;
                assert!((at_most(&values, at) - simulated).abs() < bound, "{n} at {percent}%");
            }
            // A simulated 2.5% end wanders by 0.16 points (one standard error): ours lies within
            // five.
            let error = 5.0 * (0.025f64 * 0.975 / RESAMPLES as f64).sqrt();
            let (low, high) = percentile_interval(&values, 0.025);
            let end = |q: f64| quantile(&medians, q).unwrap();
            assert!(end(0.025 - error) <= low && low <= end(0.025 + error), "{n}");
            assert!(end(0.975 - error) <= high && high <= end(0.975 + error), "{n}");
        }
    }

    #[test]
    fn ends_by_rank_are_those_of_the_distribution() {
        for n in [301usize, 999, 1001, 300, 1000, 2000] {
            let ranks: Vec<f64> = (0..n).map(|rank| rank as f64).collect();
            let draws = Binomial::new(n);
            let (low, high) = interval_by_ranks(&ranks, |k, p| draws.at_least(k, p) >= 0.025);
            let exact = first_beyond(distribution(&ranks).iter(), 0.025).unwrap();
            let apart = if n % 2 == 1 { 0.0 } else { 0.5 };
            assert!((low - exact).abs() <= apart, "{n}: {low} for {exact}");
            assert_eq!(low + high, (n - 1) as f64, "{n}");
        }
    }

    #[test]
    fn many_rounds_take_few_evaluations() {
        for n in [100_000usize, 100_001] {
            let ranks: Vec<f64> = (1..=n).map(|rank| rank as f64).collect();
            let draws = Binomial::new(n);
            let mut evaluations = 0;
            let (low, high) = interval_by_ranks(&ranks, |drawn, chance| {
                evaluations += 1;
                draws.at_least(drawn, chance) >= 0.025
            });
            assert!(evaluations <= 2 * 17, "{evaluations}");
            assert_eq!((low, high), percentile_interval(&ranks, 0.025));
            // The normal approximation of the ranks.
            let reach = 1.959_964 * (n as f64).sqrt() / 2.0;
            let middle = (n + 1) as f64 / 2.0;
            assert!((low - (middle - reach)).abs() <= 1.0, "{n}: {low}");
            assert!((high - (middle + reach)).abs() <= 1.0, "{n}: {high}");
        }
    }

    #[test]
    fn probabilities_add_up_for_many_rounds() {
        for n in [2usize, 3, 10, 99, 100, 999, 1000, 2000] {
            let total: f64 = distribution(&uneven(n)).iter().map(|a| a.probability).sum();
            assert!((total - 1.0).abs() < 1e-9, "{n}: {total}");
        }
    }

    proptest! {
        #[test]
        fn a_tail_is_what_the_oracle_says(n in 1usize..200, at in 0.0..=1.0f64, p in 0.001..0.999f64) {
            let k = (at * n as f64) as usize;
            let oracle = statrs::distribution::Binomial::new(p, n as u64).unwrap();
            let expected = if k == 0 { 1.0 } else { oracle.sf(k as u64 - 1) };
            prop_assert!((Binomial::new(n).at_least(k, p) - expected).abs() < 1e-9);
        }
    }
}
