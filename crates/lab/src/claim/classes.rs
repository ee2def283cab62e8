//! Separate judgements on the rounds in which the cores were near each other, and on those in which they were far.
//!
//! A value, a choice or a noise floor never mixes rounds of different classes. A class counts if it has enough rounds.
//! If several count and their results differ, the result is inconclusive.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use machine::proximity::Class;
use schemars::JsonSchema;
use serde::Serialize;

use super::VerdictKind;
use super::evidence::Evidence;
use super::reason::{Reason, leave_out};
use super::verdict::Judgement;
use crate::point::Point;
use crate::statistics::{LostRounds, StatisticsError};
use crate::summary::{Observation, Observed, Rounds};

/// Result of the rounds of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ClassResult {
    /// Proximity of the cores.
    pub class: Class,
    /// Result.
    pub kind: VerdictKind,
}

impl Evidence<'_> {
    /// Returns the classes of the cores in the claimed points; none if each used a single core.
    pub(super) fn classes(&self) -> BTreeSet<Class> {
        let rounds = self.observed.points.values().flat_map(Rounds::values);
        rounds.filter_map(|one| one.class).collect()
    }

    /// Returns the evidence restricted to a class, given all values of the experiment. Rounds without a class belong to
    /// every class, unless the claim names one.
    pub(super) fn of_class(&self, class: Class, mut all: Observed) -> Self {
        let is_of_class =
            |one: &Observation| one.class.map_or(self.claim.class.is_none(), |of| of == class);
        let others = |(point, rounds): (&Point, &Rounds)| {
            let others = rounds.iter().filter(|(_, one)| !is_of_class(one));
            (point.clone(), others.map(|(round, _)| *round).collect())
        };
        let others = all.points.iter().map(others).collect();
        all.keep(is_of_class);
        let mut part = self.clone();
        (part.class, part.others) = (Some(class), others);
        part.with_values(all)
    }

    /// Judges the rounds of each class separately.
    pub(super) fn by_class(&self, judge: impl Fn(&Self) -> Judgement) -> Judgement {
        let judged: Vec<(Class, Judgement)> =
            self.parts.iter().filter_map(|part| Some((part.class?, judge(part)))).collect();
        let mut measured = judged
            .iter()
            .flat_map(|(_, one)| &one.values)
            .filter(|value| value.value.is_some())
            .peekable();
        let has_no_class = measured.peek().is_some() && measured.all(|one| one.class.is_none());
        if judged.is_empty() || has_no_class {
            judge(self)
        } else {
            combined(judged, self.claim.rounds_needed())
        }
    }

    /// Returns the class of a value that some rounds gave; `None` if they used a single core.
    pub(super) fn class_of<'r>(
        &self,
        rounds: impl IntoIterator<Item = &'r Rounds>,
    ) -> Option<Class> {
        let mut all = rounds.into_iter().flat_map(Rounds::values);
        self.class.filter(|_| all.any(|one| one.class.is_some()))
    }

    /// Counts lost rounds as such of another class if one of the points was measured with cores of another class.
    pub(super) fn with_other_class(
        &self,
        lost: LostRounds,
        above: (&Point, &Rounds),
        below: (&Point, &Rounds),
    ) -> LostRounds {
        let lost_of = |present: &Rounds, (point, absent): (&Point, &Rounds)| {
            let others = self.others.get(point);
            let is_other = |round: &&u32| {
                !absent.contains_key(round) && others.is_some_and(|it| it.contains(round))
            };
            present.keys().filter(is_other).count()
        };
        let others = lost_of(above.1, below) + lost_of(below.1, above);
        let (missing, other_class) = (lost.missing - others, lost.other_class + others);
        LostRounds { missing, other_class, ..lost }
    }
}

/// Combines the judgements on each class. Those with too few rounds do not count, unless all have too few: then the one
/// with the most rounds counts.
fn combined(judged: Vec<(Class, Judgement)>, needed: usize) -> Judgement {
    let rounds = |judgement: &Judgement| -> usize {
        judgement.values.iter().map(|value| value.rounds).sum()
    };
    let (mut enough, mut few): (Vec<_>, Vec<_>) =
        judged.into_iter().partition(|(_, judgement)| has_enough_rounds(judgement, needed));
    if enough.is_empty() {
        few.sort_by_key(|(_, judgement)| Reverse(rounds(judgement)));
        enough.extend((!few.is_empty()).then(|| few.remove(0)));
    }
    let results: Vec<_> =
        enough.iter().map(|(class, one)| ClassResult { class: *class, kind: one.kind }).collect();
    let mut combined = Judgement::of_all(Vec::new());
    for (_, judgement) in enough {
        combined.kind = judgement.kind;
        for value in judgement.values {
            // What cannot be measured is the same for every class.
            if !combined.values.contains(&value) {
                combined.values.push(value);
            }
        }
        combined.reasons.extend(judgement.reasons);
        for left_out in judgement.left_out {
            leave_out(&mut combined.left_out, left_out.why, left_out.names);
        }
    }
    if results.iter().any(|one| one.kind != combined.kind) {
        combined.kind = VerdictKind::Inconclusive;
        combined.reasons.insert(0, Reason::ClassesDiffer { results });
    }
    let most = |judgement: &Judgement| judgement.values.iter().map(|value| value.rounds).max();
    for (class, judgement) in few {
        if let Some(rounds) = most(&judgement).filter(|rounds| *rounds > 0) {
            combined.reasons.push(Reason::ClassNotJudged { class, rounds });
        }
    }
    combined
}

/// Returns whether a judgement is not limited by the number of rounds of its class.
fn has_enough_rounds(judgement: &Judgement, needed: usize) -> bool {
    let values = &judgement.values;
    match judgement.kind {
        VerdictKind::Reproduced | VerdictKind::Contradicted => true,
        VerdictKind::Incomparable => values.iter().all(|value| value.rounds >= needed),
        VerdictKind::Inconclusive | VerdictKind::NotMeasured | VerdictKind::Unmeasurable => {
            let of_values = values.iter().flat_map(|value| &value.reasons);
            !of_values.chain(&judgement.reasons).any(is_lack_of_rounds)
        }
    }
}

fn is_lack_of_rounds(reason: &Reason) -> bool {
    match reason {
        Reason::At { why, .. } => is_lack_of_rounds(why),
        Reason::NotSummarised { error } => *error == StatisticsError::Empty,
        Reason::TooFewRounds { .. }
        | Reason::TooFewBoots { .. }
        | Reason::Correlated { .. }
        | Reason::NoFloor { .. }
        | Reason::NotMeasured { .. }
        | Reason::OtherClass { .. }
        | Reason::NoCommonRound { .. }
        | Reason::NoTwins
        | Reason::NeverIdle => true,
        _ => false,
    }
}
