//! Correlation of successive rounds, and how much it increases the variance of their median.
//!
//! Rounds that are close in time share the state of the machine. Their median then varies more than
//! that of independent rounds, and an interval that ignores this covers too rarely.

use std::f64::consts::FRAC_2_PI;

use statrs::distribution::{ContinuousCDF, Normal};

use super::interval::are_correlated;
use super::{CONFIDENCE, INTERVAL_ROUNDS};

/// Lag-1 correlation above which reports state it.
pub const NOTABLE_CORRELATION: f64 = 0.3;
/// Highest estimate: with few rounds the correction for bias can exceed 1.
const MAX_CORRELATION: f64 = 0.95;

/// Estimates the correlation of successive values, given in the order of their measurement. `None`
/// for fewer than 6 values, and for equal ones.
///
/// The values are replaced by the normal scores of their ranks (van der Waerden), so that stalls do
/// not hide the correlation. The lag-1 autocorrelation of `n` values underestimates by about
/// `(1 + 4 r) / n` (Kendall, 1954, Biometrika 41), which is added. The estimate is at most 0.95.
pub fn lag_1(values: &[f64]) -> Option<f64> {
    let n = values.len();
    if n < INTERVAL_ROUNDS {
        return None;
    }
    let scores = normal_scores(values);
    let squares: f64 = scores.iter().map(|score| score * score).sum();
    if squares == 0.0 {
        return None;
    }
    let products: f64 = scores.windows(2).map(|pair| pair[0] * pair[1]).sum();
    let correlation = products / squares;
    Some((correlation + (1.0 + 4.0 * correlation) / n as f64).clamp(-1.0, MAX_CORRELATION))
}

/// Returns the normal quantile of each value's rank; equal values have the mean of their ranks.
fn normal_scores(values: &[f64]) -> Vec<f64> {
    let normal = Normal::standard();
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut scores = vec![0.0; values.len()];
    let mut rank = 0.0;
    for equal in order.chunk_by(|&a, &b| values[a] == values[b]) {
        let middle = rank + (equal.len() + 1) as f64 / 2.0;
        let score = normal.inverse_cdf(middle / (values.len() + 1) as f64);
        equal.iter().for_each(|&index| scores[index] = score);
        rank += equal.len() as f64;
    }
    scores
}

/// Returns the factor, at least 1, by which the variance of the median of `n` values exceeds that of
/// independent values: `n` divided by the effective number of rounds.
///
/// The variance of a median depends on the correlation of the signs of the deviations. If the
/// correlation decays as in a first-order autoregression, that of the signs at lag `k` is `2 / pi *
/// asin(r^k)`. A negative correlation is ignored, because 6 to 50 rounds rarely prove one.
pub(super) fn inflation(lag_1: Option<f64>, n: usize) -> f64 {
    let correlation = lag_1.unwrap_or_default().max(0.0);
    let mut at_lag = 1.0;
    let terms = (1..n).map(|lag| {
        at_lag *= correlation;
        (1.0 - lag as f64 / n as f64) * FRAC_2_PI * f64::asin(at_lag)
    });
    1.0 + 2.0 * terms.take_while(|term| *term > 1e-9).sum::<f64>()
}

/// Returns whether a number of rounds, enough for an interval if they were independent, has none because of its
/// [`lag_1`] correlation: even the extremes cover the median with less than 90%.
pub fn lacks_interval(rounds: usize, lag_1: Option<f64>) -> bool {
    are_correlated(rounds, inflation(lag_1, rounds), CONFIDENCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inflation_is_that_of_the_effective_number_of_rounds() {
        assert_eq!([inflation(None, 20), inflation(Some(-0.5), 20)], [1.0, 1.0]);
        // Perfectly correlated signs: one round.
        assert!((inflation(Some(1.0), 20) - 20.0).abs() < 1e-9);
        // Long runs: the sum of the series, 2.98 at 0.6.
        assert!((inflation(Some(0.6), 100_000) - 2.976).abs() < 0.01);
    }

    #[test]
    fn few_correlated_rounds_lack_an_interval() {
        let of = |rounds: usize| {
            [None, Some(0.3), Some(0.5), Some(0.95)].map(|it| lacks_interval(rounds, it))
        };
        assert_eq!(of(5), [false; 4]);
        assert_eq!(of(6), [false, false, true, true]);
        assert_eq!(of(12), [false, false, false, true]);
        assert_eq!(of(50), [false; 4]);
    }

    #[test]
    fn a_stall_does_not_hide_the_correlation() {
        let mut values: Vec<f64> = (0..40).map(|round| (f64::from(round) / 6.0).sin()).collect();
        let smooth = lag_1(&values).unwrap();
        assert!(smooth > 0.9, "{smooth}");
        values[20] = 1e9;
        assert!(lag_1(&values).unwrap() > 0.8);
        let alternating: Vec<f64> = (0..40).map(|round| f64::from(round % 2)).collect();
        assert!(lag_1(&alternating).unwrap() < -0.9);
        assert_eq!((lag_1(&[1.0; 20]), lag_1(&values[..5])), (None, None));
    }
}
