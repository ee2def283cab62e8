//! Verdicts, and how those on parts make one on the whole.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{Published, Quantifier, words};
use crate::statistics::Interval;

/// What a run says to a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum VerdictKind {
    /// It holds here.
    Reproduced,
    /// It does not hold here.
    Contradicted,
    /// These rounds cannot tell, or nothing is measured yet.
    Inconclusive,
    /// An absolute value of other hardware.
    Incomparable,
    /// It cannot be measured here.
    Unmeasurable,
}

impl VerdictKind {
    /// The word for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::Contradicted => "contradicted",
            Self::Inconclusive => "inconclusive",
            Self::Incomparable => "incomparable",
            Self::Unmeasurable => "unmeasurable",
        }
    }

    /// Of two that must both hold.
    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Contradicted, _) | (_, Self::Contradicted) => Self::Contradicted,
            (Self::Unmeasurable, _) | (_, Self::Unmeasurable) => Self::Unmeasurable,
            (Self::Reproduced, other) => other,
            (own, _) => own,
        }
    }
}

/// The verdict on a claim.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// What the run says.
    pub kind: VerdictKind,
    /// Why, in one line with figures.
    pub why: String,
    /// Our values, one for each part that was judged.
    pub ours: Vec<MeasuredValue>,
    /// The value as published.
    pub published: Option<Published>,
}

/// One of our values, and what it says.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MeasuredValue {
    /// The point, or the two points of a ratio.
    pub label: String,
    /// In `unit`; nothing where it could not be measured.
    pub value: Option<f64>,
    /// Its interval; nothing for a single round.
    pub interval: Option<Interval>,
    /// The metric's unit, or `1` for a ratio.
    pub unit: String,
    /// How many rounds it rests on.
    pub rounds: usize,
    /// How many rounds were lost to missing values and differing classes.
    pub lost: usize,
    /// What this part alone says.
    pub kind: VerdictKind,
    /// Why, in one line with figures.
    pub why: String,
}

impl MeasuredValue {
    /// A part with no value.
    pub(super) fn nothing(label: impl Into<String>, lack: NoVerdict) -> Self {
        Self {
            label: label.into(),
            value: None,
            interval: None,
            unit: String::new(),
            rounds: 0,
            lost: 0,
            kind: lack.kind,
            why: lack.why,
        }
    }
}

/// Why a part has no value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NoVerdict {
    /// Unmeasurable or inconclusive.
    pub(super) kind: VerdictKind,
    pub(super) why: String,
}

impl NoVerdict {
    pub(super) fn inconclusive(why: impl Into<String>) -> Self {
        let kind = VerdictKind::Inconclusive;
        Self { kind, why: why.into() }
    }

    pub(super) fn unmeasurable(why: impl Into<String>) -> Self {
        let kind = VerdictKind::Unmeasurable;
        Self { kind, why: why.into() }
    }
}

/// What this machine cannot measure and a verdict leaves out: names by the reason.
pub(super) type LeftOut = BTreeMap<String, BTreeSet<String>>;

/// Adds what else is left out.
pub(super) fn join(left_out: &mut LeftOut, more: LeftOut) {
    for (reason, names) in more {
        left_out.entry(reason).or_default().extend(names);
    }
}

/// What is judged as one: a point, or one combination of the levels of the `each` factors.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Judgement {
    pub(super) kind: VerdictKind,
    pub(super) why: String,
    pub(super) ours: Vec<MeasuredValue>,
    pub(super) left_out: LeftOut,
}

impl Judgement {
    /// Of parts that must all hold, at least one.
    pub(super) fn of_all(ours: Vec<MeasuredValue>) -> Self {
        let kinds = ours.iter().map(|part| part.kind);
        let kind = kinds.reduce(VerdictKind::and).unwrap_or(VerdictKind::Inconclusive);
        let deciding: Vec<_> = ours.iter().filter(|part| part.kind == kind).collect();
        // What holds is shown by a few, what does not by its first.
        let shown = if kind == VerdictKind::Reproduced { 3 } else { 1 };
        let mut told: Vec<_> = deciding.iter().take(shown).map(|part| part.told()).collect();
        if deciding.len() > told.len() {
            told.push(format!("and {} more", deciding.len() - told.len()));
        }
        let why = match told.is_empty() {
            true => "there is nothing to judge".into(),
            false => told.join("; "),
        };
        Self { kind, why, ours, left_out: LeftOut::new() }
    }
}

impl MeasuredValue {
    fn told(&self) -> String {
        match self.label.is_empty() {
            true => self.why.clone(),
            false => format!("{}: {}", self.label, self.why),
        }
    }
}

/// The whole from its outcomes. Where something must hold everywhere, what cannot be measured here
/// is said and the rest decides; where it must hold somewhere, it might hold there.
pub(super) fn combine(
    outcomes: Vec<Judgement>,
    hold: Quantifier,
) -> (VerdictKind, String, Vec<MeasuredValue>) {
    use VerdictKind::{Contradicted, Inconclusive, Reproduced, Unmeasurable};
    let count = |kind| outcomes.iter().filter(|outcome| outcome.kind == kind).count();
    let (all, absent) = (outcomes.len(), count(Unmeasurable));
    let any = |kind| count(kind) > 0;
    let kind = match hold {
        _ if all == absent && all > 0 => Unmeasurable,
        Quantifier::Share(share) => {
            let needed = needed(share, all - absent);
            let may = all - absent - count(Contradicted);
            match all > 0 {
                true if count(Reproduced) >= needed => Reproduced,
                true if may < needed => Contradicted,
                _ => Inconclusive,
            }
        }
        Quantifier::All if any(Contradicted) => Contradicted,
        Quantifier::Some if any(Reproduced) => Reproduced,
        _ if any(Inconclusive) || all == 0 => Inconclusive,
        Quantifier::All => Reproduced,
        Quantifier::Some if any(Unmeasurable) => Inconclusive,
        Quantifier::Some => Contradicted,
    };
    let deciding = outcomes.iter().find(|outcome| outcome.kind == kind).or(outcomes.first());
    let told = deciding.map_or("there is nothing to judge", |outcome| &outcome.why);
    let mut why = match all {
        0 | 1 => told.to_string(),
        _ => format!("{}; {told}", counted(&outcomes)),
    };
    if let (Quantifier::Share(share), true) = (hold, any(Contradicted)) {
        let against = outcomes.iter().filter(|outcome| outcome.kind == Contradicted);
        let labels = against.flat_map(|outcome| &outcome.ours).map(|part| part.label.as_str());
        let labels = labels.collect::<Vec<_>>().join("; ");
        why += &format!(" (claimed of {}); it does not hold for: {labels}", words::percent(share));
    }
    let mut left_out = LeftOut::new();
    for outcome in &outcomes {
        join(&mut left_out, outcome.left_out.clone());
    }
    for (reason, names) in left_out {
        let names = names.into_iter().collect::<Vec<_>>().join(", ");
        why += &format!("; left out: {names}: {reason}");
    }
    why = why.split_whitespace().collect::<Vec<_>>().join(" ");
    (kind, why, outcomes.into_iter().flat_map(|outcome| outcome.ours).collect())
}

/// The smallest count that is at least a share of `all`. The product of 28% and 25 is just above 7
/// in floating point, and means 7.
fn needed(share: f64, all: usize) -> usize {
    (share * all as f64 - 1e-9).ceil() as usize
}

/// `3 of 5 hold, 1 does not, 1 cannot be measured here`
fn counted(outcomes: &[Judgement]) -> String {
    let words = [
        (VerdictKind::Contradicted, "contradicted"),
        (VerdictKind::Inconclusive, "undecided"),
        (VerdictKind::Unmeasurable, "not measurable here"),
    ];
    let count = |kind| outcomes.iter().filter(|outcome| outcome.kind == kind).count();
    let mut text = format!("{} of {} hold", count(VerdictKind::Reproduced), outcomes.len());
    for (kind, word) in words {
        if count(kind) > 0 {
            text += &format!(", {} {word}", count(kind));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(kind: VerdictKind, label: &str) -> Judgement {
        let part =
            MeasuredValue { kind, ..MeasuredValue::nothing(label, NoVerdict::inconclusive("so")) };
        Judgement { why: "so".into(), ..Judgement::of_all(vec![part]) }
    }

    /// The verdict where so many hold, do not hold, are undecided and cannot be measured.
    fn verdict(counts: [usize; 4], share: f64) -> (VerdictKind, String) {
        let kinds = [
            VerdictKind::Reproduced,
            VerdictKind::Contradicted,
            VerdictKind::Inconclusive,
            VerdictKind::Unmeasurable,
        ];
        let of = |(kind, count)| (0..count).map(move |at| outcome(kind, &format!("{at}")));
        let outcomes = kinds.into_iter().zip(counts).flat_map(of).collect();
        let (kind, why, _) = combine(outcomes, Quantifier::Share(share));
        (kind, why)
    }

    #[test]
    fn a_share_is_of_what_can_be_measured() {
        assert_eq!(verdict([19, 1, 0, 500], 0.95).0, VerdictKind::Reproduced);
        assert_eq!(verdict([18, 2, 0, 0], 0.95).0, VerdictKind::Contradicted);
        assert_eq!(verdict([18, 0, 2, 0], 0.95).0, VerdictKind::Inconclusive);
        assert_eq!(verdict([7, 18, 0, 0], 0.28).0, VerdictKind::Reproduced);
        assert_eq!(verdict([7, 18, 0, 0], 0.280_001).0, VerdictKind::Contradicted);
        assert_eq!(verdict([6, 18, 1, 0], 0.28).0, VerdictKind::Inconclusive);
        assert_eq!(verdict([0, 0, 0, 3], 0.95).0, VerdictKind::Unmeasurable);
        assert_eq!(verdict([0, 0, 0, 0], 0.95).0, VerdictKind::Inconclusive);
    }

    #[test]
    fn what_does_not_hold_is_listed() {
        let why = verdict([38, 2, 0, 0], 0.95).1;
        assert!(why.contains("claimed of 95%") && why.ends_with("for: 0; 1"), "{why}");
    }

    #[test]
    fn a_share_is_read() {
        let hold = |text: &str| Quantifier::try_from(crate::point::Level::from(text));
        assert_eq!(hold("95%"), Ok(Quantifier::Share(0.95)));
        assert_eq!((hold("all"), hold("some")), (Ok(Quantifier::All), Ok(Quantifier::Some)));
        assert!(hold("most").unwrap_err().contains("'most' is not all, some or a share"));
    }
}
