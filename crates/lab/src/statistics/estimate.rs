//! The estimate of a point: the median over rounds and how sure it is.

use serde::Serialize;

use super::bootstrap::percentile_interval;
use super::interval::BOOTSTRAP_ROUNDS;
use super::summary::{mad, median_of_sorted, sorted};
use super::{Interval, StatisticsError};

/// The most rounds that [`rounds_needed`] answers with: read it as "this many or more".
pub const MAX_PROJECTED_ROUNDS: usize = 10_000;

/// What the rounds of one point say, all in the unit of the values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// The median over rounds.
    pub median: f64,
    /// Its interval.
    pub interval: Interval,
    /// The raw median absolute deviation.
    pub mad: f64,
    /// The smallest value.
    pub minimum: f64,
    /// How many rounds it rests on.
    pub rounds: usize,
}

impl Estimate {
    /// Half the interval's width as a share of the median; see [`Interval::relative_half_width`].
    pub fn relative_half_width(&self) -> f64 {
        self.interval.relative_half_width(self.median)
    }
}

/// Estimates a point from one value for each round.
pub fn estimate(values: &[f64]) -> Result<Estimate, StatisticsError> {
    let sorted = sorted(values)?;
    Ok(Estimate {
        median: median_of_sorted(&sorted),
        interval: Interval::of_sorted(&sorted),
        mad: mad(&sorted).ok_or(StatisticsError::Empty)?,
        minimum: sorted[0],
        rounds: sorted.len(),
    })
}

/// Half the width by which a point may stop, as a share of the median: that of the 95% interval, and
/// where a bootstrap makes it no less than that of the 99% interval times 0.76, which is alike for
/// normal values. The 99% interval rests on more of the values, so it is less often narrow by luck just
/// where the 95% interval is. Infinite if there is no interval.
pub fn stopping_half_width(values: &[f64]) -> f64 {
    let (Ok(estimate), Ok(sorted)) = (estimate(values), sorted(values)) else {
        return f64::INFINITY;
    };
    let own = estimate.relative_half_width();
    if sorted.len() < BOOTSTRAP_ROUNDS {
        return own;
    }
    let (low, high) = percentile_interval(&sorted, 0.005);
    own.max(0.76 * Interval { low, high, ..estimate.interval }.relative_half_width(estimate.median))
}

/// About how many rounds in all would bring the half-width down to `target` (0.02 is 2%), since
/// widths fall with the root of the rounds: `rounds * (width / target)^2`, at least the 10 that a
/// bootstrap needs and at most [`MAX_PROJECTED_ROUNDS`]. Where the interval is narrow enough and no
/// mere range, the rounds there are. `None` where nothing can be projected: one round, a median of
/// zero, or a target that is not above zero.
///
/// Drift slower than the run does not average out, so this is a projection, not a promise.
pub fn rounds_needed(estimate: &Estimate, target: f64) -> Option<usize> {
    let width = estimate.relative_half_width();
    if !width.is_finite() || target.is_nan() || target <= 0.0 {
        return None;
    }
    let projected = (estimate.rounds as f64 * (width / target).powi(2)).ceil();
    let least = estimate.rounds.max(BOOTSTRAP_ROUNDS);
    Some((projected as usize).min(MAX_PROJECTED_ROUNDS).max(least))
}
