//! The estimate of a point: the median over rounds and how sure it is.

use serde::Serialize;

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
