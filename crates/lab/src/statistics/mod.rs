//! The statistics of the method: medians with their intervals, ratios paired inside a round, what a
//! difference must exceed to count, and the random orders that make all of this valid.
//!
//! Everything here is a pure function of its arguments. A value is one round's: what repeats inside
//! a round was summarised before. Nothing is dropped and nothing is assumed normal.

use serde::Serialize;

mod binomial;
mod bootstrap;
mod chance;
mod choice;
mod estimate;
mod interval;
pub mod order;
mod ratio;
mod resolution;
mod summary;

pub use choice::{Choice, choose_and_judge};
pub use estimate::{Estimate, MAX_PROJECTED_ROUNDS, estimate, rounds_needed, stopping_half_width};
pub use interval::{BOOTSTRAP_ROUNDS, CONFIDENCE, Interval, IntervalKind, ORDER_STATISTIC_ROUNDS};
pub use ratio::{Ratio, paired_ratio};
pub use resolution::{NoiseFloor, Resolution, Unresolved, resolve};
pub use summary::{mad, median, minimum, quantile};

/// Why values cannot be summarised. Indices count from 0 in the slice that was given.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum StatisticsError {
    /// There is nothing to summarise.
    #[error("no round has a value to summarise: measure at least one round")]
    Empty,
    /// A value is NaN or infinite.
    #[error("value {index} is {value}, not a finite number: journal it as an error, not a value")]
    NotFinite {
        /// Where it stands.
        index: usize,
        /// What was found.
        value: f64,
    },
    /// A pair has a member with no logarithm.
    #[error(
        "pair {index} is {numerator} over {denominator}: a ratio needs two finite values above zero"
    )]
    NotPositive {
        /// Where it stands.
        index: usize,
        /// The value above the line.
        numerator: f64,
        /// The value below the line.
        denominator: f64,
    },
    /// Neither higher nor lower is better, so nothing is best.
    #[error("the metric has no better direction: choose by one that has")]
    NoDirection,
}
