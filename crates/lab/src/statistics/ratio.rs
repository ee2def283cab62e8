//! Ratios paired inside rounds.
//!
//! Two points of one round were measured close together, so the drift of the machine is in both
//! and leaves their ratio. On the log scale a ratio and its inverse are mirror images.

use serde::Serialize;

use super::summary::{median_of_sorted, sorted};
use super::{Interval, StatisticsError};

/// How many times larger one point is than another.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ratio {
    /// The exponential of the median of the rounds' log-ratios.
    pub ratio: f64,
    /// Its interval, made on the log scale by the same rule as any median's.
    pub interval: Interval,
    /// How many rounds gave a pair.
    pub rounds: usize,
    /// How many rounds gave none: a value was missing, or the covariate classes differed.
    pub lost: usize,
}

impl Ratio {
    /// Half the interval's width as a share of the ratio; see [`Interval::relative_half_width`].
    pub fn relative_half_width(&self) -> f64 {
        self.interval.relative_half_width(self.ratio)
    }
}

/// The ratio from one pair (numerator, denominator) for each round that has both in the same
/// covariate class, and the number of rounds `lost` to that.
pub fn paired_ratio(pairs: &[(f64, f64)], lost: usize) -> Result<Ratio, StatisticsError> {
    let logarithms = pairs
        .iter()
        .enumerate()
        .map(|(index, &(numerator, denominator))| {
            let usable = |value: f64| value.is_finite() && value > 0.0;
            if usable(numerator) && usable(denominator) {
                Ok(numerator.ln() - denominator.ln())
            } else {
                Err(StatisticsError::NotPositive { index, numerator, denominator })
            }
        })
        .collect::<Result<Vec<f64>, _>>()?;
    let logarithms = sorted(&logarithms)?;
    Ok(Ratio {
        ratio: median_of_sorted(&logarithms).exp(),
        interval: Interval::of_sorted(&logarithms).map(f64::exp),
        rounds: pairs.len(),
        lost,
    })
}
