//! Intervals of medians by interpolated order statistics.
//!
//! The interval from the `k`-th lowest to the `k`-th highest of `n` independent values covers the
//! median with a known probability, whatever their distribution. Between the two such intervals
//! next to the wanted probability, each end is interpolated (Hettmansperger and Sheather, 1986,
//! Statistics & Probability Letters 4; Nyblom, 1992, Statistics & Probability Letters 14). The
//! result covers the median with nearly the wanted probability for any number of values from six.

use schemars::JsonSchema;
use serde::Serialize;
use statrs::distribution::{Binomial, ContinuousCDF, DiscreteCDF, Normal};

use super::MAX_PROJECTED_ROUNDS;

/// Nominal coverage of an interval: 95%.
pub const CONFIDENCE: f64 = 0.95;
/// Minimum number of rounds with an interval: the extremes of six values cover the median with
/// 96.9%, those of five with 93.8%.
pub const INTERVAL_ROUNDS: usize = 6;
/// Factor of the probability of error above which an interval is called a range: one of 95% that covers less than 90%.
const MAX_ERROR: f64 = 2.0;

/// Distance, as a multiple of their range, by which the interval of correlated rounds reaches beyond their extremes if
/// these cover the median with less than 90%.
const CORRELATED_REACH: f64 = 4.0;

/// Meaning of the ends of an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum IntervalKind {
    /// A confidence interval, of 95% unless [another coverage](super::estimate_at) is requested.
    Confidence,
    /// The lowest and the highest of too few rounds for a confidence interval: 2 to 5, or a few
    /// more that are correlated.
    Range,
    /// One round: no interval; both ends are the value, and neither is to be shown.
    Single,
}

/// Open ends of an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OpenEnd {
    /// The upper one: the median is at least something.
    High,
    /// The lower one: the median is at most something.
    Low,
    /// Both: the median is unknown.
    Both,
}

impl OpenEnd {
    /// Returns it in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::High => "at least",
            Self::Low => "at most",
            Self::Both => "unknown",
        }
    }

    /// Returns its sign before a number.
    pub fn sign(self) -> &'static str {
        match self {
            Self::High => "≥",
            Self::Low => "≤",
            Self::Both => "?",
        }
    }
}

/// Interval of a median, in the unit of the median.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Interval {
    /// Lower end; `null` in JSON if it is open.
    #[schemars(with = "Option<f64>")]
    pub low: f64,
    /// Upper end; `null` in JSON if it is open.
    #[schemars(with = "Option<f64>")]
    pub high: f64,
    /// Meaning of the ends.
    pub kind: IntervalKind,
    /// Probability (0 to 1) that such an interval contains the true median: that [requested](estimate_at), by default
    /// 0.95, or less if even the extremes cover it with less. It accounts for the correlation of the rounds, and is 0
    /// for a single round.
    pub coverage: f64,
    /// Half-width that the drift of the core clock adds in quadrature to that of the rounds, as a share of the median;
    /// 0 without.
    pub drift: f64,
}

impl Interval {
    /// Returns the interval of the median of at least one sorted value that covers it with a probability of
    /// `confidence`. `inflation` is the factor by which correlation of the rounds increases the variance of the median.
    pub(super) fn of_sorted(sorted: &[f64], inflation: f64, confidence: f64) -> Self {
        let (min, max) = (sorted[0], sorted[sorted.len() - 1]);
        if sorted.len() == 1 {
            let kind = IntervalKind::Single;
            return Self { low: min, high: max, kind, coverage: 0.0, drift: 0.0 };
        }
        let of_extremes = deflated(rank_coverage(sorted.len(), 1), inflation);
        let min_coverage = 1.0 - MAX_ERROR * (1.0 - confidence);
        if sorted.len() < INTERVAL_ROUNDS || of_extremes < min_coverage {
            let coverage = of_extremes;
            return Self { low: min, high: max, kind: IntervalKind::Range, coverage, drift: 0.0 };
        }
        let (low, high) = interpolated(sorted, inflated(confidence, inflation));
        let coverage = of_extremes.min(confidence);
        Self { low, high, kind: IntervalKind::Confidence, coverage, drift: 0.0 }
    }

    /// Returns a wide interval in place of the range of rounds that are enough for an interval, but too correlated. On
    /// drifting machines it misses the median in at most 5% of cases, as docs/method.md states.
    pub(super) fn widened_if_correlated(
        self,
        rounds: usize,
        inflation: f64,
        confidence: f64,
    ) -> Self {
        if self.kind != IntervalKind::Range || !are_correlated(rounds, inflation, confidence) {
            return self;
        }
        let reach = CORRELATED_REACH * (self.high - self.low);
        let (low, high) = (self.low - reach, self.high + reach);
        Self { low, high, kind: IntervalKind::Confidence, coverage: confidence, ..self }
    }

    /// Returns the interval extended to include two values; a single round has no interval.
    pub(super) fn including(self, low: f64, high: f64) -> Self {
        match self.kind {
            IntervalKind::Single => self,
            IntervalKind::Range | IntervalKind::Confidence => {
                Self { low: self.low.min(low), high: self.high.max(high), ..self }
            }
        }
    }

    /// Returns the interval of a median widened in quadrature by the share `drift` of the median. Equal values, such as
    /// counts and the limit of a search, do not depend on the clock and keep their interval.
    pub(super) fn with_drift(self, median: f64, drift: f64) -> Self {
        if self.kind == IntervalKind::Single || self.low == self.high {
            return self;
        }
        let wider = |width: f64| width.hypot(drift * median);
        let (low, high) = (median - wider(median - self.low), median + wider(self.high - median));
        Self { low, high, drift, ..self }
    }

    /// Returns the interval on another scale; `scale` must be increasing.
    pub(super) fn map(self, scale: impl Fn(f64) -> f64) -> Self {
        Self { low: scale(self.low), high: scale(self.high), ..self }
    }

    /// Returns half the width as a share of `centre`: 0.02 is plus or minus 2%. Infinite for a
    /// single round and for a centre of 0, so that neither counts as narrow. Of an interval with an open end, it is the
    /// distance of the other end; 0 if both are open, because more rounds narrow neither.
    pub fn relative_half_width(&self, centre: f64) -> f64 {
        if self.kind == IntervalKind::Single || centre == 0.0 {
            return f64::INFINITY;
        }
        let half = match (self.low.is_finite(), self.high.is_finite()) {
            (true, true) => (self.high - self.low) / 2.0,
            (true, false) => centre - self.low,
            (false, true) => self.high - centre,
            (false, false) => 0.0,
        };
        half / centre.abs()
    }

    /// Returns the part of [`relative_half_width`](Self::relative_half_width) that narrows with the number of rounds.
    pub fn half_width_of_rounds(&self, centre: f64) -> f64 {
        let half_width = self.relative_half_width(centre);
        if half_width.is_finite() {
            (half_width.powi(2) - self.drift.powi(2)).max(0.0).sqrt()
        } else {
            half_width
        }
    }

    /// Returns which ends are open, because the true values are only known to be beyond the recorded ones; `None` if
    /// none is.
    pub fn open_end(&self) -> Option<OpenEnd> {
        match (self.low.is_finite(), self.high.is_finite()) {
            (true, true) => None,
            (true, false) => Some(OpenEnd::High),
            (false, true) => Some(OpenEnd::Low),
            (false, false) => Some(OpenEnd::Both),
        }
    }

    /// Returns the sign before the median: that of its open ends, or none.
    pub fn open_sign(&self) -> &'static str {
        self.open_end().map_or("", OpenEnd::sign)
    }

    /// Returns whether `value` is inside, ends included.
    pub fn includes(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

/// Returns the coverage of the interval of a value that is looked at for the `looks`-th time, each time with more
/// rounds. If all looks together were to be wrong in 5%, each may be in the share `1 / looks` of it (Bonferroni). The
/// earlier ones had larger shares, but the looks are correlated; docs/claims.md states the resulting rate.
pub fn confidence_of_look(looks: usize) -> f64 {
    1.0 - (1.0 - CONFIDENCE) / looks.max(1) as f64
}

/// Returns the factor by which the interval is wider at the next look, with the same rounds.
pub fn widening_at_next_look(looks: usize) -> f64 {
    let deviate =
        |looks| Normal::standard().inverse_cdf(f64::midpoint(1.0, confidence_of_look(looks)));
    deviate(looks + 1) / deviate(looks)
}

/// Returns the interval of at least two sorted values that covers the median with probability
/// `confidence`: the extremes if they cover it with less.
pub(super) fn interpolated(sorted: &[f64], confidence: f64) -> (f64, f64) {
    let n = sorted.len();
    let covers = |rank: usize| rank_coverage(n, rank) >= confidence;
    // The largest rank that still covers, by a binary search.
    let (mut rank, mut beyond) = (1, n / 2 + 1);
    while beyond - rank > 1 {
        let middle = rank.midpoint(beyond);
        if covers(middle) { rank = middle } else { beyond = middle }
    }
    let (outer, inner) = (rank_coverage(n, rank), rank_coverage(n, rank + 1));
    let share = ((outer - confidence) / (outer - inner)).clamp(0.0, 1.0);
    let (n_, k) = (n as f64, rank as f64);
    let weight = (n_ - k) * share / (k + (n_ - 2.0 * k) * share);
    // Exact for equal values: no interval of a constant may be wider than its value.
    let between = |outer: f64, inner: f64| outer + weight * (inner - outer);
    let inner = rank.min(n - 1);
    (between(sorted[rank - 1], sorted[inner]), between(sorted[n - rank], sorted[n - 1 - inner]))
}

/// Returns the minimum number of independent rounds with an interval of `confidence`.
pub fn interval_rounds(confidence: f64) -> usize {
    let has_interval =
        |rounds: &usize| rank_coverage(*rounds, 1) >= 1.0 - MAX_ERROR * (1.0 - confidence);
    (INTERVAL_ROUNDS..MAX_PROJECTED_ROUNDS).find(has_interval).unwrap_or(MAX_PROJECTED_ROUNDS)
}

/// Returns whether rounds whose median varies by a factor `inflation` more than that of independent ones would have an
/// interval of `confidence` if they were independent, and have none.
pub(super) fn are_correlated(rounds: usize, inflation: f64, confidence: f64) -> bool {
    let min_coverage = 1.0 - MAX_ERROR * (1.0 - confidence);
    let of_extremes = rank_coverage(rounds, 1);
    rounds >= INTERVAL_ROUNDS
        && of_extremes >= min_coverage
        && deflated(of_extremes, inflation) < min_coverage
}

/// Returns the probability that the `rank`-th lowest and `rank`-th highest of `n` independent values
/// enclose the true median; 0 if they are in the wrong order. Each value is below the median with
/// probability 1/2.
fn rank_coverage(n: usize, rank: usize) -> f64 {
    let coin = Binomial::new(0.5, n as u64);
    coin.map_or(0.0, |coin| (1.0 - 2.0 * coin.cdf(rank as u64 - 1)).max(0.0))
}

/// Returns the confidence that independent rounds require for `confidence` of rounds whose median
/// varies by a factor `inflation` more.
pub(super) fn inflated(confidence: f64, inflation: f64) -> f64 {
    rescaled(confidence, inflation.sqrt())
}

/// Returns the confidence of such rounds that independent rounds would have as `confidence`.
pub(super) fn deflated(confidence: f64, inflation: f64) -> f64 {
    rescaled(confidence, 1.0 / inflation.sqrt())
}

/// Returns the two-sided probability of a normal deviate `factor` times as large.
fn rescaled(confidence: f64, factor: f64) -> f64 {
    let normal = Normal::standard();
    let deviate = normal.inverse_cdf(f64::midpoint(1.0, confidence)) * factor;
    1.0 - 2.0 * normal.sf(deviate)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_number_of_equal_values_has_an_interval_of_that_value(
            value in any::<f64>().prop_filter("finite", |it| it.is_finite()),
            count in 2usize..60,
        ) {
            prop_assert_eq!(interpolated(&vec![value; count], CONFIDENCE), (value, value));
        }
    }
}
