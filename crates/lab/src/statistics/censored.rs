//! Censored values: the true ones may be higher, or lower, by an unknown amount.
//!
//! The interval of their median contains that of any true values. If enough of them are censored, an end is open: the
//! median is only known to be at least, or at most, something.

use schemars::JsonSchema;
use serde::Serialize;

use super::Interval;

/// Directions in which a true value may differ from the recorded one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Censored {
    /// It may be higher.
    pub may_be_higher: bool,
    /// It may be lower.
    pub may_be_lower: bool,
}

/// Value in place of an unknown one: above every value, and small enough that the sum of two is finite.
pub(crate) const EXTREME: f64 = f64::MAX / 4.0;
/// Limit beyond which an end of an interval depends on the unknown values.
const OPEN: f64 = 1e100;

impl Censored {
    /// Returns whether the true value may differ.
    pub fn is_censored(self) -> bool {
        self.may_be_higher || self.may_be_lower
    }

    /// Returns the directions in which a ratio may differ.
    #[must_use]
    pub fn ratio(above: Self, below: Self) -> Self {
        Self {
            may_be_higher: above.may_be_higher || below.may_be_lower,
            may_be_lower: above.may_be_lower || below.may_be_higher,
        }
    }
}

impl Interval {
    /// Returns the interval of a median extended to include the intervals of all values that the true ones may be. The
    /// other parameters are those of the interval.
    pub(super) fn with_censored(
        self,
        values: &[f64],
        censored: &[Censored],
        inflation: f64,
        confidence: f64,
    ) -> Self {
        if values.is_empty() || !censored.iter().any(|one| one.is_censored()) {
            return self;
        }
        let extreme = |may: fn(&Censored) -> bool, extreme: f64| {
            let replaced = values.iter().zip(censored);
            let mut sorted: Vec<f64> =
                replaced.map(|(value, one)| if may(one) { extreme } else { *value }).collect();
            sorted.sort_unstable_by(f64::total_cmp);
            Self::of_sorted(&sorted, inflation, confidence)
        };
        let open = |end: f64| if end.abs() > OPEN { end.signum() * f64::INFINITY } else { end };
        let low = extreme(|one| one.may_be_lower, -EXTREME).low;
        let high = extreme(|one| one.may_be_higher, EXTREME).high;
        // Of a single round too, which has no interval, but whose value is no more than a bound.
        Self { low: self.low.min(open(low)), high: self.high.max(open(high)), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CONFIDENCE, LostRounds, estimate, paired_ratio};
    use super::*;

    const HIGHER: Censored = Censored { may_be_higher: true, may_be_lower: false };
    const EXACT: Censored = Censored { may_be_higher: false, may_be_lower: false };

    /// Returns the interval of 20 values from 1 to 20 of which the first few are censored.
    fn ends(count: usize) -> (f64, f64) {
        let values: Vec<f64> = (0..20).map(f64::from).map(|it| (it * 7.0) % 20.0 + 1.0).collect();
        let censored: Vec<_> = (0..20).map(|at| if at < count { HIGHER } else { EXACT }).collect();
        let Interval { low, high, .. } =
            estimate(&values).unwrap().with_censored(&values, &censored, CONFIDENCE).interval;
        (low, high)
    }

    #[test]
    fn few_censored_values_widen_and_many_open_the_interval() {
        let exact = ends(0);
        assert!(exact.0 > 5.0 && exact.1 < 16.0, "{exact:?}");
        let few = ends(2);
        assert!(few.0 == exact.0 && few.1 >= exact.1 && few.1.is_finite(), "{few:?}");
        for many in [10, 20] {
            assert_eq!(ends(many), (exact.0, f64::INFINITY));
        }
    }

    #[test]
    fn a_single_censored_value_is_a_bound() {
        let of = |censored: Censored| {
            let one = estimate(&[7.0]).unwrap().with_censored(&[7.0], &[censored], CONFIDENCE);
            let pair = paired_ratio(&[(7.0, 2.0)], LostRounds::default()).unwrap();
            let pair = pair.with_censored(&[(7.0, 2.0)], &[censored], CONFIDENCE);
            assert_eq!(pair.interval.open_end(), one.interval.open_end());
            (one.interval.low, one.interval.high)
        };
        assert_eq!(of(EXACT), (7.0, 7.0));
        assert_eq!(of(HIGHER), (7.0, f64::INFINITY));
        assert_eq!(of(Censored { may_be_lower: true, ..EXACT }), (f64::NEG_INFINITY, 7.0));
    }

    #[test]
    fn a_ratio_is_open_in_the_direction_of_its_censored_side() {
        let pairs: Vec<_> = (0..20).map(|at| (2.0 + f64::from(at) / 100.0, 1.0)).collect();
        let exact = paired_ratio(&pairs, LostRounds::default()).unwrap();
        let ends = |above, below| {
            let censored = vec![Censored::ratio(above, below); pairs.len()];
            let Interval { low, high, .. } =
                exact.with_censored(&pairs, &censored, CONFIDENCE).interval;
            (low, high)
        };
        let Interval { low, high, .. } = exact.interval;
        assert_eq!(ends(EXACT, EXACT), (low, high));
        assert_eq!(ends(HIGHER, EXACT), (low, f64::INFINITY));
        assert_eq!(ends(EXACT, HIGHER), (f64::NEG_INFINITY, high));
        assert_eq!(ends(HIGHER, HIGHER), (f64::NEG_INFINITY, f64::INFINITY));
    }
}
