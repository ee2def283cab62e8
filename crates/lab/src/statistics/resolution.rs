//! Whether a ratio differs from 1 by more than the machine differs from itself.

use std::fmt;

use serde::Serialize;

use super::{Interval, IntervalKind, ORDER_STATISTIC_ROUNDS, Ratio};

/// What the machine makes of no difference at all: the ratio of twins, one thing measured under
/// two names.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct NoiseFloor {
    /// The interval of the twins' ratio.
    pub interval: Interval,
    /// How far from 1 its ends reach, as the absolute value of a natural logarithm: 0.02 is 2%.
    pub floor: f64,
}

impl NoiseFloor {
    /// The floor of an experiment with these twins: that of the pair that reaches furthest.
    /// `None` if no pair has an interval of 95%, which takes 6 rounds.
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

/// What a ratio says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resolution {
    /// The numerator is larger.
    Higher,
    /// The numerator is smaller.
    Lower,
    /// These rounds cannot tell.
    Unresolved {
        /// The reason.
        why: Unresolved,
    },
}

/// Why a ratio is unresolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unresolved {
    /// One round has no interval.
    SingleRound,
    /// A range of 2 to 5 rounds is no interval of 95%.
    TooFewRounds,
    /// The interval includes 1.
    IncludesOne,
    /// The difference is smaller than that between twins.
    BelowFloor,
}

impl fmt::Display for Unresolved {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::SingleRound => "one round has no interval",
            Self::TooFewRounds => "too few rounds",
            Self::IncludesOne => "the interval includes 1",
            Self::BelowFloor => "the difference is below the noise floor",
        })
    }
}

/// Whether the ratio differs from 1: its interval must exclude 1, and the difference must reach
/// the noise floor where there is one.
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
