//! Estimates of a point: medians over rounds with their intervals.

use schemars::JsonSchema;
use serde::Serialize;

use super::correlation::{inflation, lag_1};
use super::interval::{inflated, interpolated};
use super::{CONFIDENCE, Censored, INTERVAL_ROUNDS, Interval, IntervalKind, StatisticsError};

/// Maximum number of rounds that [`rounds_needed`] returns, which stands for this many or more.
pub const MAX_PROJECTED_ROUNDS: usize = 10_000;

/// Estimate of one point, in the unit of its values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Estimate {
    /// Median over rounds.
    pub median: f64,
    /// Interval of the median.
    pub interval: Interval,
    /// Correlation of successive rounds, for which the interval is widened; see
    /// [`lag_1`](super::lag_1). `None` under 6 rounds and for equal values.
    pub lag_1: Option<f64>,
    /// Median absolute deviation, not scaled.
    pub mad: f64,
    /// Smallest value.
    pub minimum: f64,
    /// Number of rounds.
    pub rounds: usize,
}

impl Estimate {
    /// Returns the estimate of values with a limited resolution, in their unit: the interval is at
    /// least as wide on either side.
    #[must_use]
    pub fn with_resolution(self, resolution: f64) -> Self {
        let (low, high) = (self.median - resolution, self.median + resolution);
        Self { interval: self.interval.including(low, high), ..self }
    }

    /// Returns the estimate with a wide interval in place of a range of enough rounds that are too correlated for one;
    /// `confidence` is that of the estimate. It decides claims that differ from the median by several times the range.
    #[must_use]
    pub fn widened_if_correlated(self, confidence: f64) -> Self {
        let inflation = inflation(self.lag_1, self.rounds);
        let interval = self.interval.widened_if_correlated(self.rounds, inflation, confidence);
        Self { interval, ..self }
    }

    /// Returns the estimate of a time or a rate for other moments of the machine, at which its core clock differs by up
    /// to a share; see [`clock_drift`].
    #[must_use]
    pub fn with_drift(self, drift: f64) -> Self {
        Self { interval: self.interval.with_drift(self.median, drift), ..self }
    }

    /// Returns the estimate of censored values, in the order of the rounds, of which this is the estimate with
    /// `confidence`. Ends of the interval are infinite if they are open.
    #[must_use]
    pub fn with_censored(self, values: &[f64], censored: &[Censored], confidence: f64) -> Self {
        let inflation = inflation(self.lag_1, values.len());
        Self {
            interval: self.interval.with_censored(values, censored, inflation, confidence),
            ..self
        }
    }

    /// Returns half the width of the interval as a share of the median; see
    /// [`Interval::relative_half_width`].
    pub fn relative_half_width(&self) -> f64 {
        self.interval.relative_half_width(self.median)
    }
}

/// Estimates a point from one value per round, in the order of the rounds, with its 95% interval.
///
/// # Errors
/// Returns an error without values, or if a value is not finite.
pub fn estimate(values: &[f64]) -> Result<Estimate, StatisticsError> {
    estimate_at(values, CONFIDENCE)
}

/// Estimates a point with an interval of the coverage `confidence`.
///
/// # Errors
/// As [`estimate`].
pub fn estimate_at(values: &[f64], confidence: f64) -> Result<Estimate, StatisticsError> {
    let sorted = sorted(values)?;
    let lag_1 = lag_1(values);
    Ok(Estimate {
        median: median_of_sorted(&sorted),
        interval: Interval::of_sorted(&sorted, inflation(lag_1, values.len()), confidence),
        lag_1,
        mad: mad(&sorted).ok_or(StatisticsError::Empty)?,
        minimum: sorted[0],
        rounds: sorted.len(),
    })
}

/// Returns the half-width that decides whether a point may stop, as a share of the median: that of
/// the 95% interval, and at least 0.76 times that of the 99% interval, which is equal for normal
/// values. The 99% interval depends on more of the values, so that it is seldom narrow by chance
/// when the 95% interval is. Infinite without an interval.
pub fn stopping_half_width(values: &[f64]) -> f64 {
    let (Ok(estimate), Ok(sorted)) = (estimate(values), sorted(values)) else {
        return f64::INFINITY;
    };
    if estimate.interval.kind != IntervalKind::Confidence {
        return f64::INFINITY;
    }
    let inflation = inflation(estimate.lag_1, values.len());
    let (low, high) = interpolated(&sorted, inflated(0.99, inflation));
    let wider = Interval { low, high, ..estimate.interval };
    let half_width = estimate.relative_half_width();
    half_width.max(0.76 * wider.relative_half_width(estimate.median))
}

/// Projects the total number of rounds at which the half-width reaches `target` (0.02 is 2%).
/// Widths fall with the square root of the rounds: `rounds * (width / target)^2`, at least 6 and
/// at most [`MAX_PROJECTED_ROUNDS`]. Returns the present number if the interval
/// is narrow enough, and `None` for one round, a median of 0, or a target that is not positive.
///
/// The projection ignores drift slower than the run, which does not average out.
pub fn rounds_needed(estimate: &Estimate, target: f64) -> Option<usize> {
    let width = estimate.relative_half_width();
    if !width.is_finite() || target.is_nan() || target <= 0.0 {
        return None;
    }
    let projected = (estimate.rounds as f64 * (width / target).powi(2)).ceil();
    let min = estimate.rounds.max(INTERVAL_ROUNDS);
    Some((projected as usize).min(MAX_PROJECTED_ROUNDS).max(min))
}

/// Sorts finite values in ascending order.
///
/// # Errors
/// Returns an error without values, or if a value is not finite.
pub(super) fn sorted(values: &[f64]) -> Result<Vec<f64>, StatisticsError> {
    if values.is_empty() {
        return Err(StatisticsError::Empty);
    }
    if let Some((index, &value)) = values.iter().enumerate().find(|(_, v)| !v.is_finite()) {
        return Err(StatisticsError::NotFinite { index, value });
    }
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    Ok(sorted)
}

/// Returns the median of at least one sorted value.
pub(super) fn median_of_sorted(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[half] } else { f64::midpoint(sorted[half - 1], sorted[half]) }
}

/// Returns the median: the middle value, or the mean of the two in the middle. `None` without
/// values, or if one is not finite.
pub fn median(values: &[f64]) -> Option<f64> {
    Some(median_of_sorted(&sorted(values).ok()?))
}

/// Returns the median absolute deviation from the median, not scaled by 1.4826, the factor for
/// normal values. `None` without values, or if one is not finite.
pub fn mad(values: &[f64]) -> Option<f64> {
    let centre = median(values)?;
    let deviations: Vec<f64> = values.iter().map(|value| (value - centre).abs()).collect();
    median(&deviations)
}

/// Returns the difference, as a share, that two of some positive values stay below in 95% of cases; 0 without values.
pub fn clock_drift(values: impl Iterator<Item = f64>) -> f64 {
    /// Number of values, evenly spaced in their order, whose differences stand for those of all.
    const MOMENTS: usize = 200;
    let Ok(sorted) = sorted(&values.map(f64::ln).collect::<Vec<_>>()) else { return 0.0 };
    let count = MOMENTS.min(sorted.len());
    let moments: Vec<f64> = (0..count).map(|at| sorted[at * sorted.len() / count]).collect();
    let pairs = moments.iter().enumerate();
    let differences =
        pairs.flat_map(|(at, low)| moments[at + 1..].iter().map(move |one| one - low));
    let mut differences: Vec<f64> = differences.collect();
    differences.sort_unstable_by(f64::total_cmp);
    quantile(&differences, CONFIDENCE).unwrap_or(0.0)
}

/// Returns the smallest value. `None` without values, or if one is not finite.
pub fn minimum(values: &[f64]) -> Option<f64> {
    Some(sorted(values).ok()?[0])
}

/// Returns the quantile `q` (0 to 1) of values in ascending order, interpolated linearly (type 7 of
/// Hyndman and Fan, 1996, the default of R and NumPy). `None` without values, or if `q` is outside
/// 0 to 1.
pub fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    if sorted.is_empty() || !(0.0..=1.0).contains(&q) {
        return None;
    }
    let rank = q * (sorted.len() - 1) as f64;
    let below = sorted[rank.floor() as usize];
    let above = sorted[rank.ceil() as usize];
    Some(below + (above - below) * rank.fract())
}
