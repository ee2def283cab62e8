//! Verdicts as data, and how the judgements on parts combine.

use std::collections::BTreeSet;

use machine::proximity::Class;
use schemars::JsonSchema;
use serde::Serialize;

use super::reason::{LeftOut, NoVerdict, Reason};
use super::{OtherVerdict, Published, Quantifier};
use crate::statistics::{Interval, LostRounds};
use crate::summary::TwinAlarm;

/// Result of judging a claim by a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum VerdictKind {
    /// The claim is true on this machine.
    Reproduced,
    /// The claim is false on this machine.
    Contradicted,
    /// The samples do not decide.
    Inconclusive,
    /// This run did not measure it.
    NotMeasured,
    /// An absolute value that does not apply to this machine, not judged.
    Incomparable,
    /// This machine cannot measure it.
    Unmeasurable,
}

impl VerdictKind {
    /// Returns the name in tables; in JSON its words are joined by hyphens.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::Contradicted => "contradicted",
            Self::Inconclusive => "inconclusive",
            Self::NotMeasured => "not measured",
            Self::Incomparable => "incomparable",
            Self::Unmeasurable => "unmeasurable",
        }
    }

    /// Returns the result if some points are not measured: only one that they cannot change remains.
    pub(super) fn without_all(self, quantifier: Quantifier) -> Self {
        match (self, quantifier) {
            (Self::Contradicted, Quantifier::All) | (Self::Reproduced, Quantifier::Some) => self,
            (Self::Reproduced | Self::Contradicted, _) => Self::Inconclusive,
            (
                Self::Inconclusive | Self::NotMeasured | Self::Incomparable | Self::Unmeasurable,
                _,
            ) => self,
        }
    }

    /// Combines two results that must both be true.
    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Contradicted, _) | (_, Self::Contradicted) => Self::Contradicted,
            (Self::Unmeasurable, _) | (_, Self::Unmeasurable) => Self::Unmeasurable,
            (Self::Reproduced, other) => other,
            (this, _) => this,
        }
    }
}

/// Verdict on a claim.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Verdict {
    /// Result.
    pub kind: VerdictKind,
    /// How the judgements combine.
    pub quantifier: Quantifier,
    /// Judgements on the points or combinations of levels.
    pub judgements: Vec<Judgement>,
    /// Value as published.
    pub published: Option<Published>,
    /// Twins of the experiment that differ.
    pub alarms: Vec<TwinAlarm>,
    /// Verdicts from the other environments of the run that measured the claim's points.
    pub elsewhere: Vec<OtherVerdict>,
    /// Why it is inconclusive although its judgements decide: samples of another environment speak against it.
    pub doubt: Option<Reason>,
}

impl Verdict {
    /// Returns the measured values of all judgements.
    pub fn values(&self) -> impl Iterator<Item = &MeasuredValue> {
        self.judgements.iter().flat_map(|judgement| &judgement.values)
    }
}

/// Judgement on a point, or on one combination of the levels of the `each` factors. All its values
/// must fit.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Judgement {
    /// Result.
    pub kind: VerdictKind,
    /// Measured values.
    pub values: Vec<MeasuredValue>,
    /// Reasons for the result as a whole; empty if those of the values decide.
    pub reasons: Vec<Reason>,
    /// Points or levels excluded because this machine cannot measure them.
    pub left_out: Vec<LeftOut>,
}

/// A measured value with its own result.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct MeasuredValue {
    /// The point, or the two points of a ratio.
    pub label: String,
    /// Value in `unit`; `None` if it could not be measured.
    pub value: Option<f64>,
    /// Interval of the value; `None` for a single round.
    pub interval: Option<Interval>,
    /// Unit of the metric, or `1` for a ratio.
    pub unit: String,
    /// Class of the cores in these rounds; `None` if they used a single core.
    pub class: Option<Class>,
    /// Number of rounds with a value.
    pub rounds: usize,
    /// Number of rounds that give no value although they were measured; [`Statistic`] has the causes.
    pub lost: usize,
    /// How the value was derived; `None` without a value.
    pub statistic: Option<Statistic>,
    /// Result of this value.
    pub kind: VerdictKind,
    /// Reasons for the result, the most important first.
    pub reasons: Vec<Reason>,
}

/// How a measured value was derived from rounds.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Statistic {
    /// Median over rounds.
    Median {
        /// Number of rounds that failed.
        failed: usize,
        /// Number of rounds that are void.
        void: usize,
        /// Number of rounds with the core in another state, shared or not.
        other_sharing: usize,
    },
    /// Ratio within rounds.
    Ratio {
        /// Whether a side has several points, of which the best counts.
        of_best: bool,
        /// Rounds without a pair.
        lost: LostRounds,
    },
    /// Ratio of points that different boots measured; each boot counts as one round.
    BetweenBoots,
    /// Difference of twins within rounds.
    TwinDifference,
    /// Width of the middle half of the rounds on an idle core.
    Spread {
        /// Step of the time-stamp counter in ns, if the width is a number of steps; else it is a share of the median.
        step: Option<f64>,
        /// Number of rounds on an idle core or not.
        recorded: usize,
    },
    /// Share of the valid samples whose value is outside the claimed bounds.
    Violations {
        /// Valid samples outside the bounds, and all valid samples, twins included.
        valid: Violations,
        /// The same of void samples, every attempt included.
        void: Violations,
        /// Exact 95% upper limit of the share of rounds with a violation, of the point at which it is highest; `None`
        /// if the claim is about these samples alone.
        upper_limit: Option<f64>,
        /// Points with valid samples outside the bounds.
        points: BTreeSet<String>,
    },
    /// Share of the valid samples whose value is as claimed for some samples.
    Occurrences {
        /// Valid samples with such a value, and all valid samples, twins included.
        valid: Violations,
        /// Exact 95% upper limit of the rate, as a share.
        upper_limit: f64,
    },
    /// Median of the level chosen as best.
    Best {
        /// Level along which the best changes.
        at: String,
        /// Levels that are not resolved worse than the best.
        candidates: Vec<String>,
    },
}

/// Samples whose value is outside bounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, JsonSchema)]
pub struct Violations {
    /// Number of samples outside.
    pub count: usize,
    /// Number of samples.
    pub of: usize,
    /// The value furthest outside, in the unit of the metric.
    pub worst: Option<f64>,
}

impl Verdict {
    /// Returns whether it is inconclusive because a value has too few rounds.
    pub fn lacks_rounds(&self) -> bool {
        let is_lacking = |reason: &Reason| matches!(reason, Reason::TooFewRounds { .. });
        let of_values = || self.values().flat_map(|value| &value.reasons);
        let of_judgements = || self.judgements.iter().flat_map(|one| &one.reasons);
        self.kind == VerdictKind::Inconclusive && of_values().chain(of_judgements()).any(is_lacking)
    }
}

impl MeasuredValue {
    /// Returns a measured value without a value, with its reason.
    pub(super) fn missing(label: impl Into<String>, no_verdict: NoVerdict) -> Self {
        Self {
            label: label.into(),
            value: None,
            interval: None,
            unit: String::new(),
            class: None,
            rounds: 0,
            lost: 0,
            statistic: None,
            kind: no_verdict.kind,
            reasons: vec![no_verdict.why],
        }
    }
}

impl Judgement {
    /// Judges values that must all fit; there must be at least one.
    pub(super) fn of_all(values: Vec<MeasuredValue>) -> Self {
        let kinds = values.iter().map(|value| value.kind);
        let kind = kinds.reduce(VerdictKind::and).unwrap_or(VerdictKind::Inconclusive);
        Self { kind, values, reasons: Vec::new(), left_out: Vec::new() }
    }

    /// Returns a judgement without a value.
    pub(super) fn missing(label: impl Into<String>, no_verdict: NoVerdict) -> Self {
        Self::of_all(vec![MeasuredValue::missing(label, no_verdict)])
    }

    /// Makes a contradiction incomparable, for a reason.
    pub(super) fn disregard_contradiction(&mut self, why: &str) {
        if self.kind != VerdictKind::Contradicted {
            return;
        }
        self.kind = VerdictKind::Incomparable;
        let values = self.values.iter_mut();
        for value in values.filter(|value| value.kind == VerdictKind::Contradicted) {
            value.kind = VerdictKind::Incomparable;
            value.reasons.push(Reason::NoEvidenceAgainst { why: why.into() });
        }
    }

    /// Returns whether none of its points has a sample.
    pub(super) fn is_not_measured(&self) -> bool {
        self.has_only(|reason| matches!(reason, Reason::NotMeasured { .. }))
    }

    /// Returns whether it is open because the run did not measure it: not its points, or with another profile.
    fn is_unmeasured(&self) -> bool {
        self.has_only(|it| matches!(it, Reason::NotMeasured { .. } | Reason::OtherProfile { .. }))
    }

    /// Returns whether each of its values has one reason, which matches a predicate.
    fn has_only(&self, is_wanted: impl Fn(&Reason) -> bool) -> bool {
        let is_only = |value: &MeasuredValue| matches!(&value.reasons[..], [one] if is_wanted(one));
        !self.values.is_empty() && self.values.iter().all(is_only)
    }

    /// States that the run did not measure it.
    fn set_not_measured(&mut self) {
        self.kind = VerdictKind::NotMeasured;
        self.values.iter_mut().for_each(|value| value.kind = VerdictKind::NotMeasured);
    }
}

/// Combines judgements. Those on values that are only shown do not count, unless all others cannot
/// be measured. With [`Quantifier::All`] and a share, those that cannot be measured do not
/// count; with [`Quantifier::Some`] they leave the result open.
pub(super) fn combine(judgements: &[Judgement], quantifier: Quantifier) -> VerdictKind {
    use VerdictKind::{Contradicted, Incomparable, Inconclusive, Reproduced, Unmeasurable};
    let count = |kind| judgements.iter().filter(|judgement| judgement.kind == kind).count();
    let (shown, absent) = (count(Incomparable), count(Unmeasurable));
    if shown > 0 && shown + absent == judgements.len() {
        return Incomparable;
    }
    let all = judgements.len() - shown;
    let any = |kind| count(kind) > 0;
    match quantifier {
        _ if all == absent && all > 0 => Unmeasurable,
        Quantifier::Share(share) => {
            let needed = needed(share, all - absent);
            let possible = all - absent - count(Contradicted);
            match all > 0 {
                true if count(Reproduced) >= needed => Reproduced,
                true if possible < needed => Contradicted,
                _ => Inconclusive,
            }
        }
        Quantifier::All if any(Contradicted) => Contradicted,
        Quantifier::Some if any(Reproduced) => Reproduced,
        _ if any(Inconclusive) || all == 0 => Inconclusive,
        Quantifier::All => Reproduced,
        Quantifier::Some if any(Unmeasurable) => Inconclusive,
        Quantifier::Some => Contradicted,
    }
}

/// Returns the result of judgements that leave a claim open: not measured if the run has values for none of them.
pub(super) fn of_open(judgements: &mut [Judgement]) -> VerdictKind {
    if judgements.is_empty() || !judgements.iter().all(Judgement::is_unmeasured) {
        return VerdictKind::Inconclusive;
    }
    judgements.iter_mut().for_each(Judgement::set_not_measured);
    VerdictKind::NotMeasured
}

/// Returns the smallest count that is at least a share of `all`. In floating point the product of
/// 28% and 25 is just above 7, and the count is 7.
fn needed(share: f64, all: usize) -> usize {
    (share * all as f64 - 1e-9).ceil() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Combines these numbers of reproduced, contradicted, inconclusive and unmeasurable
    /// judgements.
    fn verdict(counts: [usize; 4], share: f64) -> VerdictKind {
        let kinds = [
            VerdictKind::Reproduced,
            VerdictKind::Contradicted,
            VerdictKind::Inconclusive,
            VerdictKind::Unmeasurable,
        ];
        let judgement = |kind| Judgement { kind, ..Judgement::of_all(Vec::new()) };
        let of = |(kind, count)| std::iter::repeat_n(judgement(kind), count);
        let judgements: Vec<_> = kinds.into_iter().zip(counts).flat_map(of).collect();
        combine(&judgements, Quantifier::Share(share))
    }

    #[test]
    fn a_share_counts_only_what_can_be_measured() {
        assert_eq!(verdict([19, 1, 0, 500], 0.95), VerdictKind::Reproduced);
        assert_eq!(verdict([18, 2, 0, 0], 0.95), VerdictKind::Contradicted);
        assert_eq!(verdict([18, 0, 2, 0], 0.95), VerdictKind::Inconclusive);
        assert_eq!(verdict([7, 18, 0, 0], 0.28), VerdictKind::Reproduced);
        assert_eq!(verdict([7, 18, 0, 0], 0.280_001), VerdictKind::Contradicted);
        assert_eq!(verdict([6, 18, 1, 0], 0.28), VerdictKind::Inconclusive);
        assert_eq!(verdict([0, 0, 0, 3], 0.95), VerdictKind::Unmeasurable);
        assert_eq!(verdict([0, 0, 0, 0], 0.95), VerdictKind::Inconclusive);
    }

    #[test]
    fn quantifiers_are_all_some_or_a_share() {
        let parse = |text: &str| Quantifier::try_from(crate::point::Level::from(text));
        assert_eq!(parse("95%"), Ok(Quantifier::Share(0.95)));
        assert_eq!((parse("all"), parse("some")), (Ok(Quantifier::All), Ok(Quantifier::Some)));
        assert!(parse("most").unwrap_err().contains("'most' is not all, some or a share"));
    }
}
