//! Ratios paired within rounds, and whether they differ from 1.
//!
//! Two points of a round are measured close together, so that drift of the machine cancels in their
//! ratio. On the logarithmic scale a ratio and its inverse are symmetric.

use std::fmt;

use serde::Serialize;

use super::estimate::{median_of_sorted, sorted};
use super::{Interval, IntervalKind, ORDER_STATISTIC_ROUNDS, StatisticsError};

/// Ratio of two points.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ratio {
    /// Exponential of the median of the logarithms of the rounds' ratios.
    pub ratio: f64,
    /// Its interval, computed on the logarithmic scale like that of any median.
    pub interval: Interval,
    /// Number of rounds with a pair.
    pub rounds: usize,
    /// Rounds without a pair.
    pub lost: LostRounds,
}

/// Numbers of rounds in which two points have no pair of values, by cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LostRounds {
    /// A value is missing.
    pub missing: usize,
    /// The cores were near each other in one sample and far apart in the other.
    pub other_class: usize,
    /// A busy SMT sibling shared the core in one sample and not in the other, or in a part of one of them.
    pub other_sharing: usize,
    /// Different sessions measured the two samples, at times that may be far apart.
    pub other_session: usize,
}

impl LostRounds {
    /// Returns the number of all lost rounds.
    pub fn total(&self) -> usize {
        self.missing + self.other_class + self.other_sharing + self.other_session
    }
}

impl Ratio {
    /// Returns half the width of the interval as a share of the ratio; see
    /// [`Interval::relative_half_width`].
    pub fn relative_half_width(&self) -> f64 {
        self.interval.relative_half_width(self.ratio)
    }
}

/// Returns the ratio from one pair (numerator, denominator) per round. `lost` are the rounds without
/// a pair.
///
/// # Errors
/// Returns an error without pairs, or if a value is not finite and positive.
pub fn paired_ratio(pairs: &[(f64, f64)], lost: LostRounds) -> Result<Ratio, StatisticsError> {
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

/// Noise floor: the ratio of twins, two measurements of one point in each round.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct NoiseFloor {
    /// Interval of the ratio of the twins.
    pub interval: Interval,
    /// Maximum distance of its ends from 1, as the absolute value of a natural logarithm: 0.02 is
    /// 2%.
    pub floor: f64,
}

impl NoiseFloor {
    /// Returns the highest floor of some twins; `None` if none has a 95% interval, which takes 6
    /// rounds.
    pub fn from_twins(twins: &[Ratio]) -> Option<Self> {
        twins
            .iter()
            .filter(|twins| twins.rounds >= ORDER_STATISTIC_ROUNDS)
            .map(|Ratio { interval, .. }| Self {
                interval: *interval,
                floor: interval.low.ln().abs().max(interval.high.ln().abs()),
            })
            .max_by(|a, b| a.floor.total_cmp(&b.floor))
    }
}

/// Whether a ratio differs from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resolution {
    /// The numerator is larger.
    Higher,
    /// The numerator is smaller.
    Lower,
    /// The rounds do not decide.
    Unresolved {
        /// The reason.
        why: Unresolved,
    },
}

/// Why a ratio is unresolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unresolved {
    /// A single round has no interval.
    SingleRound,
    /// A range of 2 to 5 rounds is not a 95% interval.
    TooFewRounds,
    /// The interval includes 1.
    IncludesOne,
    /// The difference is smaller than that between twins.
    BelowFloor,
}

impl fmt::Display for Unresolved {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::SingleRound => "a single round has no interval",
            Self::TooFewRounds => "too few rounds",
            Self::IncludesOne => "the interval includes 1",
            Self::BelowFloor => "the difference is below the noise floor",
        })
    }
}

/// Returns whether a ratio differs from 1: its interval must exclude 1, and the difference must be
/// at least the noise floor, if there is one.
pub fn resolve(ratio: &Ratio, floor: Option<&NoiseFloor>) -> Resolution {
    let unresolved = |why| Resolution::Unresolved { why };
    match ratio.interval.kind {
        IntervalKind::Single => return unresolved(Unresolved::SingleRound),
        IntervalKind::Range => return unresolved(Unresolved::TooFewRounds),
        IntervalKind::OrderStatistic | IntervalKind::Bootstrap => {}
    }
    if ratio.interval.includes(1.0) {
        return unresolved(Unresolved::IncludesOne);
    }
    if floor.is_some_and(|noise| ratio.ratio.ln().abs() < noise.floor) {
        return unresolved(Unresolved::BelowFloor);
    }
    if ratio.ratio > 1.0 { Resolution::Higher } else { Resolution::Lower }
}
