//! Agreement of our values with those of another source.

use lab::statistics::{Estimate, IntervalKind};
use schemars::JsonSchema;
use serde::Serialize;

use crate::source::Stated;

/// Tolerance of latencies and throughputs, in cycles; the larger of both counts.
const TOLERANCE_CYCLES: f64 = 0.05;
/// The same as a share of the stated value.
const TOLERANCE_SHARE: f64 = 0.02;

/// The rule, for people.
pub(crate) const RULE: &str = "within 0.05 cycles or 2%, whichever is larger";

/// Whether our value agrees with that of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Agreement {
    /// Our median is within the tolerance of the stated value or range.
    Agrees,
    /// Our 95% interval is outside of the tolerance.
    Differs,
    /// Our median is outside of the tolerance, but our interval is not, or there are too few rounds for one.
    Unresolved,
}

/// Number of values by agreement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AgreementCount {
    /// Metric.
    pub metric: String,
    /// Values that agree.
    pub agrees: usize,
    /// Values that differ and for which a reason is known.
    pub differs_with_reason: usize,
    /// Values that differ for no known reason.
    pub differs: usize,
    /// Values whose interval reaches into the tolerance.
    pub unresolved: usize,
    /// Stated values of forms that the run has, but without value or not comparable.
    pub not_compared: usize,
}

impl Agreement {
    /// Returns its name, as in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::Differs => "differs",
            Self::Unresolved => "unresolved",
        }
    }

    /// Compares an estimate with a stated value or range.
    pub(crate) fn of(ours: &Estimate, theirs: &Stated) -> Self {
        let reference = if ours.median > theirs.high { theirs.high } else { theirs.low };
        let tolerance = TOLERANCE_CYCLES.max(TOLERANCE_SHARE * reference.abs());
        if theirs.distance(ours.median) <= tolerance {
            return Self::Agrees;
        }
        let interval = &ours.interval;
        let is_outside = interval.low > theirs.high + tolerance
            || (!theirs.is_upper_bound && interval.high < theirs.low - tolerance);
        match interval.kind {
            IntervalKind::Confidence if is_outside => Self::Differs,
            IntervalKind::Confidence | IntervalKind::Range | IntervalKind::Single => {
                Self::Unresolved
            }
        }
    }
}

impl AgreementCount {
    pub(crate) fn new(metric: &str) -> Self {
        let metric = metric.into();
        let [agrees, differs_with_reason, differs, unresolved, not_compared] = [0; 5];
        Self { metric, agrees, differs_with_reason, differs, unresolved, not_compared }
    }

    /// Counts a value.
    pub(crate) fn add(&mut self, agreement: Option<Agreement>, has_reason: bool) {
        let count = match agreement {
            None => &mut self.not_compared,
            Some(Agreement::Agrees) => &mut self.agrees,
            Some(Agreement::Unresolved) => &mut self.unresolved,
            Some(Agreement::Differs) if has_reason => &mut self.differs_with_reason,
            Some(Agreement::Differs) => &mut self.differs,
        };
        *count += 1;
    }

    /// Returns the number of compared values.
    pub(crate) fn compared(&self) -> usize {
        self.agrees + self.differs + self.differs_with_reason + self.unresolved
    }
}

#[cfg(test)]
mod tests {
    use lab::statistics::estimate;
    use proptest::prelude::*;

    use super::*;

    /// Returns an estimate of eight rounds with a median and about this half-width.
    fn ours(median: f64, half: f64) -> Estimate {
        // Not in order, because successive rounds that are alike count as fewer.
        let values: Vec<f64> =
            [-1.0, 0.9, 0.0, -0.8, 0.8, 0.0, -0.9, 1.0].map(|step| median + step * half).to_vec();
        estimate(&values).unwrap()
    }

    #[test]
    fn the_larger_tolerance_counts() {
        let agreement = |ours: Estimate, theirs: f64| Agreement::of(&ours, &Stated::exact(theirs));
        for (median, theirs, expected) in [
            (1.04, 1.0, Agreement::Agrees),
            (1.06, 1.0, Agreement::Differs),
            (0.20, 0.25, Agreement::Agrees),
            (10.19, 10.0, Agreement::Agrees),
            (10.21, 10.0, Agreement::Differs),
            (9.79, 10.0, Agreement::Differs),
        ] {
            assert_eq!(agreement(ours(median, 1e-6), theirs), expected, "{median} {theirs}");
        }
        assert_eq!(agreement(ours(1.3, 0.4), 1.0), Agreement::Unresolved);
        // Few rounds have no 95% interval.
        for few in [&[1.3][..], &[1.3, 1.31]] {
            assert_eq!(agreement(estimate(few).unwrap(), 1.0), Agreement::Unresolved);
        }
    }

    #[test]
    fn a_range_and_an_upper_bound_agree_with_what_they_contain() {
        let range = Stated { low: 3.0, high: 5.0, ..Stated::exact(4.0) };
        let agreement = |median, stated: &Stated| Agreement::of(&ours(median, 1e-6), stated);
        assert_eq!(agreement(4.0, &range), Agreement::Agrees);
        assert_eq!(agreement(5.09, &range), Agreement::Agrees);
        assert_eq!(agreement(2.9, &range), Agreement::Differs);
        let bound = Stated { is_upper_bound: true, ..range };
        assert_eq!(agreement(0.5, &bound), Agreement::Agrees);
        assert_eq!(agreement(6.0, &bound), Agreement::Differs);
    }

    proptest! {
        #[test]
        fn a_value_agrees_with_itself(median in 0.01f64..1e4, half in 0.0f64..10.0) {
            prop_assert_eq!(Agreement::of(&ours(median, half), &Stated::exact(median)), Agreement::Agrees);
        }

        #[test]
        fn a_wider_range_never_agrees_less(median in 0.0f64..10.0, low in 0.0f64..10.0, width in 0.0f64..5.0) {
            let ours = ours(median, 1e-6);
            let narrow = Agreement::of(&ours, &Stated::exact(low));
            let wide = Agreement::of(&ours, &Stated { low, high: low + width, ..Stated::exact(low) });
            prop_assert!(narrow != Agreement::Agrees || wide == Agreement::Agrees);
        }
    }
}
