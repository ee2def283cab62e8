//! Statistics of the method: medians with their intervals, ratios paired within rounds, noise
//! floors, correlation of rounds, and randomised orders.
//!
//! All functions are pure. Each value is that of one round; repetitions within a round are
//! summarised before. No value is dropped, and no distribution is assumed.

use schemars::JsonSchema;
use serde::Serialize;

mod censored;
mod correlation;
mod estimate;
mod interval;
pub mod order;
mod rate;
mod ratio;
mod robust;
mod spread;
mod unpaired;

pub use censored::Censored;
pub(crate) use censored::EXTREME;
pub use correlation::{NOTABLE_CORRELATION, lacks_interval, lag_1};
pub use estimate::{
    Estimate, MAX_PROJECTED_ROUNDS, clock_drift, estimate, estimate_at, mad, median, minimum,
    quantile, rounds_needed, stopping_half_width,
};
pub use interval::{
    CONFIDENCE, INTERVAL_ROUNDS, Interval, IntervalKind, OpenEnd, confidence_of_look,
    interval_rounds, widening_at_next_look,
};
pub use rate::rate_upper_limit;
pub use ratio::{
    LostRound, LostRounds, NoiseFloor, Ratio, Resolution, Unresolved, holm, paired_ratio,
    paired_ratio_at, resolve, sign_test,
};
pub use robust::Robust;
pub use spread::{Spread, spread};
pub use unpaired::unpaired_ratio;

/// An error of a summary of values. Indices count from 0 in the given slice.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, thiserror::Error, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StatisticsError {
    /// There are no values.
    #[error("no round has a value; measure at least one round")]
    Empty,
    /// A value is NaN or infinite.
    #[error("value {index} is {value}, not a finite number; record it as an error")]
    NotFinite {
        /// Index of the value or pair.
        index: usize,
        /// The value.
        value: f64,
    },
    /// A pair has a value without a logarithm.
    #[error(
        "pair {index} is {numerator} over {denominator}: a ratio needs two finite values above zero"
    )]
    NotPositive {
        /// Index of the value or pair.
        index: usize,
        /// The numerator.
        numerator: f64,
        /// The denominator.
        denominator: f64,
    },
    /// The metric has no better direction.
    #[error("the metric has no better direction; choose another metric")]
    NoDirection,
}
