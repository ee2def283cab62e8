//! Ratios paired within rounds, and whether they differ from 1.
//!
//! Two points of a round are measured close together, so that drift of the machine cancels in their
//! ratio. On the logarithmic scale a ratio and its inverse are symmetric.

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;
use statrs::distribution::{Binomial, DiscreteCDF};

use super::correlation::{inflation, lag_1};
use super::estimate::{median_of_sorted, sorted};
use super::interval::deflated;
use super::{CONFIDENCE, Censored, INTERVAL_ROUNDS, Interval, IntervalKind, StatisticsError};

/// Ratio of two points.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Ratio {
    /// Exponential of the median of the logarithms of the rounds' ratios.
    pub ratio: f64,
    /// Its interval, computed on the logarithmic scale like that of any median.
    pub interval: Interval,
    /// Correlation of the logarithms of successive rounds; see [`lag_1`].
    pub lag_1: Option<f64>,
    /// Number of rounds with a pair.
    pub rounds: usize,
    /// Rounds without a pair.
    pub lost: LostRounds,
}

/// Numbers of rounds in which two points have no pair of values, by cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
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

/// Why a round has no pair of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostRound {
    /// See [`LostRounds::missing`].
    Missing,
    /// See [`LostRounds::other_class`].
    OtherClass,
    /// See [`LostRounds::other_sharing`].
    OtherSharing,
    /// See [`LostRounds::other_session`].
    OtherSession,
}

impl LostRounds {
    /// Counts a round.
    pub fn add(&mut self, cause: LostRound) {
        let count = match cause {
            LostRound::Missing => &mut self.missing,
            LostRound::OtherClass => &mut self.other_class,
            LostRound::OtherSharing => &mut self.other_sharing,
            LostRound::OtherSession => &mut self.other_session,
        };
        *count += 1;
    }

    /// Returns the sum of two counts.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            missing: self.missing + other.missing,
            other_class: self.other_class + other.other_class,
            other_sharing: self.other_sharing + other.other_sharing,
            other_session: self.other_session + other.other_session,
        }
    }

    /// Returns the number of all lost rounds.
    pub fn total(&self) -> usize {
        self.missing + self.other_class + self.other_sharing + self.other_session
    }
}

impl Ratio {
    /// Returns the ratio of values with a limited resolution, as a share of the ratio: the interval is
    /// at least as wide on either side.
    #[must_use]
    pub fn with_resolution(self, share: f64) -> Self {
        let (low, high) = (self.ratio * (-share).exp(), self.ratio * share.exp());
        Self { interval: self.interval.including(low, high), ..self }
    }

    /// Returns the ratio with a wide interval in place of a range of enough rounds that are too correlated for one;
    /// see [`Estimate::widened_if_correlated`](super::Estimate::widened_if_correlated).
    #[must_use]
    pub fn widened_if_correlated(self, confidence: f64) -> Self {
        let inflation = inflation(self.lag_1, self.rounds);
        let on_log = self.interval.map(f64::ln);
        let widened = on_log.widened_if_correlated(self.rounds, inflation, confidence);
        match widened.kind == self.interval.kind {
            true => self,
            false => Self { interval: widened.map(f64::exp), ..self },
        }
    }

    /// Returns the ratio of censored pairs, in the order of the rounds, of which this is the ratio with `confidence`.
    /// `censored` are the directions in which the true ratios may differ; ends of the interval are infinite if they are
    /// open.
    #[must_use]
    pub fn with_censored(
        self,
        pairs: &[(f64, f64)],
        censored: &[Censored],
        confidence: f64,
    ) -> Self {
        let Ok(logarithms) = logarithms(pairs) else { return self };
        let inflation = inflation(self.lag_1, pairs.len());
        let on_log = self.interval.map(f64::ln);
        let widened = on_log.with_censored(&logarithms, censored, inflation, confidence);
        let end = |end: f64| if end.is_finite() { end.exp() } else { end };
        // Ends that did not move keep their value.
        let moved = |new: f64, old: f64, kept: f64| if new == old { kept } else { end(new) };
        let low = moved(widened.low, on_log.low, self.interval.low);
        let high = moved(widened.high, on_log.high, self.interval.high);
        Self { interval: Interval { low, high, ..self.interval }, ..self }
    }

    /// Returns half the width of the interval as a share of the ratio; see
    /// [`Interval::relative_half_width`].
    pub fn relative_half_width(&self) -> f64 {
        self.interval.relative_half_width(self.ratio)
    }
}

/// Returns the ratio from one pair (numerator, denominator) per round, in the order of the rounds.
/// `lost` are the rounds without a pair.
///
/// # Errors
/// Returns an error without pairs, or if a value is not finite and positive.
pub fn paired_ratio(pairs: &[(f64, f64)], lost: LostRounds) -> Result<Ratio, StatisticsError> {
    paired_ratio_at(CONFIDENCE, pairs, lost)
}

/// Returns the same with an interval that covers the ratio with a probability of `confidence`.
///
/// # Errors
/// See [`paired_ratio`].
pub fn paired_ratio_at(
    confidence: f64,
    pairs: &[(f64, f64)],
    lost: LostRounds,
) -> Result<Ratio, StatisticsError> {
    let logarithms = logarithms(pairs)?;
    let lag_1 = lag_1(&logarithms);
    let sorted = sorted(&logarithms)?;
    let interval = Interval::of_sorted(&sorted, inflation(lag_1, sorted.len()), confidence);
    Ok(Ratio {
        ratio: median_of_sorted(&sorted).exp(),
        interval: interval.map(f64::exp),
        lag_1,
        rounds: pairs.len(),
        lost,
    })
}

/// Returns the logarithm of each pair's ratio.
fn logarithms(pairs: &[(f64, f64)]) -> Result<Vec<f64>, StatisticsError> {
    let logarithm = |(index, &(numerator, denominator)): (usize, &(f64, f64))| {
        let usable = |value: f64| value.is_finite() && value > 0.0;
        if usable(numerator) && usable(denominator) {
            Ok(numerator.ln() - denominator.ln())
        } else {
            Err(StatisticsError::NotPositive { index, numerator, denominator })
        }
    };
    pairs.iter().enumerate().map(logarithm).collect()
}

/// Returns the two-sided p-value of the sign test that the ratio is 1: the probability that as many
/// pairs of equal points differ in one direction. Pairs without a difference count against one, and
/// correlation of the rounds raises the probability as it widens the interval.
///
/// # Errors
/// Returns an error without pairs, or if a value is not finite and positive.
pub fn sign_test(pairs: &[(f64, f64)]) -> Result<f64, StatisticsError> {
    let logarithms = logarithms(pairs)?;
    let coin = Binomial::new(0.5, pairs.len() as u64).ok().filter(|_| !pairs.is_empty());
    let coin = coin.ok_or(StatisticsError::Empty)?;
    let above = logarithms.iter().filter(|log| **log > 0.0).count();
    let below = logarithms.iter().filter(|log| **log < 0.0).count();
    let p = match above.max(below) {
        0 => 1.0,
        most => (2.0 * coin.sf(most as u64 - 1)).min(1.0),
    };
    let inflation = inflation(lag_1(&logarithms), pairs.len());
    Ok(if inflation > 1.0 { 1.0 - deflated(1.0 - p, inflation) } else { p })
}

/// Returns which of several hypotheses are rejected at `level` in total, given their p-values:
/// the probability that any true one is rejected is at most `level` (Holm, 1979, Scandinavian
/// Journal of Statistics 6).
pub fn holm(p_values: &[f64], level: f64) -> Vec<bool> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|&a, &b| p_values[a].total_cmp(&p_values[b]));
    let mut rejected = vec![false; p_values.len()];
    for (smaller, &index) in order.iter().enumerate() {
        if p_values[index] > level / (p_values.len() - smaller) as f64 {
            break;
        }
        rejected[index] = true;
    }
    rejected
}

/// Noise floor: the ratio of twins, two measurements of one point in each round.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct NoiseFloor {
    /// Interval of the ratio of the twins.
    pub interval: Interval,
    /// Maximum distance of its ends from 1, as the absolute value of a natural logarithm: 0.02 is
    /// 2%. `null` in JSON if it is infinite.
    #[schemars(with = "Option<f64>")]
    pub floor: f64,
}

impl NoiseFloor {
    /// Returns the highest floor of some twins; `None` if none has a 95% interval, which takes 6
    /// rounds.
    pub fn from_twins(twins: &[Ratio]) -> Option<Self> {
        twins
            .iter()
            .filter(|twins| twins.rounds >= INTERVAL_ROUNDS)
            .map(|Ratio { interval, .. }| Self {
                interval: *interval,
                floor: interval.low.ln().abs().max(interval.high.ln().abs()),
            })
            .max_by(|a, b| a.floor.total_cmp(&b.floor))
    }

    /// Returns the floor as a share: the ratio of the twins may differ from 1 by as much.
    pub fn share(&self) -> f64 {
        self.floor.exp_m1()
    }

    /// Returns the floor of a product of two ratios, each with its floor.
    #[must_use]
    pub fn and(self, other: &Self) -> Self {
        let (low, high) =
            (self.interval.low * other.interval.low, self.interval.high * other.interval.high);
        let interval = Interval { low, high, ..self.interval };
        Self { interval, floor: self.floor + other.floor }
    }
}

/// Whether a ratio differs from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Unresolved {
    /// A single round has no interval.
    SingleRound,
    /// A range of too few rounds is not a 95% interval.
    TooFewRounds,
    /// The interval includes 1.
    IncludesOne,
    /// No twins with 6 rounds measure the noise floor.
    NoFloor,
    /// The difference is smaller than that between twins.
    BelowFloor,
}

impl fmt::Display for Unresolved {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::SingleRound => "a single round has no interval",
            Self::TooFewRounds => "too few rounds",
            Self::IncludesOne => "the interval includes 1",
            Self::NoFloor => "no noise floor",
            Self::BelowFloor => "the difference is below the noise floor",
        })
    }
}

/// Returns whether a ratio differs from 1: its 95% interval must exclude 1, and the difference must
/// be at least the noise floor.
pub fn resolve(ratio: &Ratio, floor: Option<&NoiseFloor>) -> Resolution {
    let unresolved = |why| Resolution::Unresolved { why };
    match ratio.interval.kind {
        IntervalKind::Single => return unresolved(Unresolved::SingleRound),
        IntervalKind::Range => return unresolved(Unresolved::TooFewRounds),
        IntervalKind::Confidence => {}
    }
    if ratio.interval.includes(1.0) {
        return unresolved(Unresolved::IncludesOne);
    }
    match floor {
        None => unresolved(Unresolved::NoFloor),
        Some(noise) if ratio.ratio.ln().abs() < noise.floor => unresolved(Unresolved::BelowFloor),
        Some(_) if ratio.ratio > 1.0 => Resolution::Higher,
        Some(_) => Resolution::Lower,
    }
}
