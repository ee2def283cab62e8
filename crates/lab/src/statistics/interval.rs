//! The interval of a median, by a rule that depends on the number of rounds alone.

use serde::Serialize;

use super::binomial::Binomial;
use super::bootstrap::percentile_interval;

/// What an interval is meant to cover: 95%.
pub const CONFIDENCE: f64 = 0.95;
/// From this many rounds up the interval is a bootstrap's.
pub const BOOTSTRAP_ROUNDS: usize = 10;
/// From this many rounds up the extremes cover the median with 95% or more (96.9% for six).
pub const ORDER_STATISTIC_ROUNDS: usize = 6;

/// How an interval was made, and so what it may be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum IntervalKind {
    /// 10 rounds or more: the percentile bootstrap over rounds.
    Bootstrap,
    /// 6 to 9 rounds: from the k-th lowest to the k-th highest value.
    OrderStatistic,
    /// 2 to 5 rounds: the lowest and the highest value. Call it a range.
    Range,
    /// One round: no interval. Both ends are the value; show neither.
    Single,
}

/// An interval of a median, in the unit of the median.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// How it was made.
    pub kind: IntervalKind,
    /// The chance (0 to 1) that such an interval holds the true median, if rounds are independent
    /// and alike. Exact for an order statistic and a range, 0 for a single round. Nominal for a
    /// bootstrap: the tests find 92% (21 rounds) to 97% (15), 94% at 10, 20 and 30.
    pub coverage: f64,
}

impl Interval {
    /// The interval of the median of sorted values, of which there is at least one.
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

    /// From the `rank`-th lowest to the `rank`-th highest value, ranks counted from 1.
    fn between_ranks(sorted: &[f64], rank: usize, kind: IntervalKind) -> Self {
        Self {
            low: sorted[rank - 1],
            high: sorted[sorted.len() - rank],
            kind,
            coverage: order_statistic_coverage(sorted.len(), rank),
        }
    }

    /// The same interval on another scale; `scale` must rise.
    pub(super) fn map(self, scale: impl Fn(f64) -> f64) -> Self {
        Self { low: scale(self.low), high: scale(self.high), ..self }
    }

    /// Half the width as a share of `centre`: 0.02 is plus or minus 2%. Infinite for a single
    /// round and for a centre of zero, so that neither passes for narrow.
    pub fn relative_half_width(&self, centre: f64) -> f64 {
        if self.kind == IntervalKind::Single || centre == 0.0 {
            return f64::INFINITY;
        }
        (self.high - self.low) / 2.0 / centre.abs()
    }

    /// Whether `value` lies inside, the ends included.
    pub fn includes(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

/// The chance that the `rank`-th lowest and `rank`-th highest of `rounds` values enclose the true
/// median: each value is below it with chance 1/2.
fn order_statistic_coverage(rounds: usize, rank: usize) -> f64 {
    1.0 - 2.0 * Binomial::new(rounds).at_least(rounds + 1 - rank, 0.5)
}
