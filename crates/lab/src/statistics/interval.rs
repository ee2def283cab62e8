//! Intervals of medians, by a rule that depends only on the number of rounds.

use serde::Serialize;

use super::bootstrap::{Binomial, percentile_interval};

/// Nominal coverage of an interval: 95%.
pub const CONFIDENCE: f64 = 0.95;
/// Minimum number of rounds of a bootstrap.
pub const BOOTSTRAP_ROUNDS: usize = 10;
/// Minimum number of rounds whose extremes cover the median with at least 95% (96.9% for six).
pub const ORDER_STATISTIC_ROUNDS: usize = 6;

/// Method by which an interval was computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum IntervalKind {
    /// 10 or more rounds: the percentile bootstrap over rounds.
    Bootstrap,
    /// 6 to 9 rounds: from the k-th lowest to the k-th highest value.
    OrderStatistic,
    /// 2 to 5 rounds: from the lowest to the highest value, to be called a range.
    Range,
    /// One round: no interval; both ends are the value, and neither is to be shown.
    Single,
}

/// Interval of a median, in the unit of the median.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Method.
    pub kind: IntervalKind,
    /// Probability (0 to 1) that such an interval contains the true median, if rounds are
    /// independent and identically distributed. Exact for an order statistic and a range, 0 for a
    /// single round. Nominal for a bootstrap: the tests find 92% (21 rounds) to 97% (15), and 94%
    /// at 10, 20 and 30.
    pub coverage: f64,
}

impl Interval {
    /// Returns the interval of the median of at least one sorted value.
    pub(super) fn of_sorted(sorted: &[f64]) -> Self {
        match sorted.len() {
            0 | 1 => {
                Self { low: sorted[0], high: sorted[0], kind: IntervalKind::Single, coverage: 0.0 }
            }
            rounds if rounds < ORDER_STATISTIC_ROUNDS => {
                Self::between_ranks(sorted, 1, IntervalKind::Range)
            }
            rounds if rounds < BOOTSTRAP_ROUNDS => {
                let covers = |rank: &usize| order_statistic_coverage(rounds, *rank) >= CONFIDENCE;
                let narrowest = (1..=rounds / 2).rev().find(covers).unwrap_or(1);
                Self::between_ranks(sorted, narrowest, IntervalKind::OrderStatistic)
            }
            _ => {
                let (low, high) = percentile_interval(sorted, (1.0 - CONFIDENCE) / 2.0);
                Self { low, high, kind: IntervalKind::Bootstrap, coverage: CONFIDENCE }
            }
        }
    }

    /// Returns the interval from the `rank`-th lowest to the `rank`-th highest value; ranks count
    /// from 1.
    fn between_ranks(sorted: &[f64], rank: usize, kind: IntervalKind) -> Self {
        Self {
            low: sorted[rank - 1],
            high: sorted[sorted.len() - rank],
            kind,
            coverage: order_statistic_coverage(sorted.len(), rank),
        }
    }

    /// Returns the interval on another scale; `scale` must be increasing.
    pub(super) fn map(self, scale: impl Fn(f64) -> f64) -> Self {
        Self { low: scale(self.low), high: scale(self.high), ..self }
    }

    /// Returns half the width as a share of `centre`: 0.02 is plus or minus 2%. Infinite for a
    /// single round and for a centre of 0, so that neither counts as narrow.
    pub fn relative_half_width(&self, centre: f64) -> f64 {
        if self.kind == IntervalKind::Single || centre == 0.0 {
            return f64::INFINITY;
        }
        (self.high - self.low) / 2.0 / centre.abs()
    }

    /// Returns whether `value` is inside, ends included.
    pub fn includes(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

/// Returns the probability that the `rank`-th lowest and `rank`-th highest of `rounds` values
/// enclose the true median: each value is below it with probability 1/2.
fn order_statistic_coverage(rounds: usize, rank: usize) -> f64 {
    1.0 - 2.0 * Binomial::new(rounds).at_least(rounds + 1 - rank, 0.5)
}
