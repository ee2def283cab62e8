//! Medians of repeated runs at one point, by the proximity of the cores and the state of the core.
//!
//! A run is near in more rounds than another, or had a busier neighbour, by chance. So rounds with near and with far
//! cores are compared separately, and all medians of a comparison are of the same state of the core.

use std::collections::BTreeSet;

use machine::proximity::Class;

use super::welch::compared;
use super::{Compared, Difference, side_counts};
use crate::point::Point;
use crate::sharing::Sharing;
use crate::statistics::median;
use crate::summary::{RoundCounts, Rounds, Summary, alike, in_state, resolution, state_counts};

/// The median of one run at a point.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunMedian {
    pub(super) value: f64,
    /// Resolution of the values, in their unit; 0 if it is not limited.
    pub(super) resolution: f64,
}

impl RunMedian {
    fn of(rounds: &Rounds) -> Option<Self> {
        let values: Vec<f64> = rounds.values().map(|one| one.value).collect();
        Some(Self { value: median(&values)?, resolution: resolution(rounds) })
    }
}

/// Returns the rows of a point: one per class of the cores with values in both sides, if there are several. Without a
/// common class, or if too many rounds of a side failed, its row is not judged; there is none if a side has no values.
pub(super) fn rows(point: &Point, a: &[Summary], b: &[Summary]) -> Vec<Compared> {
    let of_side = |runs: &[Summary]| -> Vec<Rounds> {
        runs.iter().filter_map(|run| run.observed.points.get(point).cloned()).collect()
    };
    let counts = [side_counts(point, a), side_counts(point, b)];
    let (a, b) = (of_side(a), of_side(b));
    if a.is_empty() || b.is_empty() {
        return Vec::new();
    }
    if counts.iter().any(RoundCounts::fails_too_often) {
        let (failed, rounds) = (counts.map(|one| one.failed), counts.map(|one| one.rounds()));
        return vec![not_judged(point, None, Difference::TooManyFailed { failed, rounds }, &a, &b)];
    }
    let classes: BTreeSet<Class> =
        a.iter().chain(&b).flat_map(Rounds::values).filter_map(|one| one.class).collect();
    if classes.len() < 2 {
        return vec![row(point, None, &a, &b)];
    }
    let of_class = |side: &[Rounds], class: Class| -> Vec<Rounds> {
        let is_of = |of: Option<Class>| of.is_none_or(|of| of == class);
        let of_run = |rounds: &Rounds| -> Rounds {
            let of_class = rounds.iter().filter(|(_, one)| is_of(one.class));
            of_class.map(|(round, one)| (*round, one.clone())).collect()
        };
        side.iter().map(of_run).filter(|rounds| !rounds.is_empty()).collect()
    };
    let of_each =
        classes.into_iter().map(|class| (class, of_class(&a, class), of_class(&b, class)));
    let common = of_each.filter(|(_, a, b)| !a.is_empty() && !b.is_empty());
    let rows: Vec<_> = common.map(|(class, a, b)| row(point, Some(class), &a, &b)).collect();
    match rows.is_empty() {
        true => vec![not_judged(point, None, Difference::OtherClass, &a, &b)],
        false => rows,
    }
}

/// Compares the medians of each run over its rounds in one state of the core.
fn row(point: &Point, class: Option<Class>, a: &[Rounds], b: &[Rounds]) -> Compared {
    let counts: Vec<_> = a.iter().chain(b).map(state_counts).collect();
    let Some(state) = Sharing::common(&counts) else {
        return not_judged(point, class, Difference::OtherState, a, b);
    };
    let medians = |side: &[Rounds]| -> Vec<RunMedian> {
        side.iter().filter_map(|rounds| RunMedian::of(&in_state(rounds, Some(state)))).collect()
    };
    let row = compared(point, &medians(a), &medians(b));
    Compared { class, state: Some(state), ..row }
}

/// Returns the medians of both sides without a ratio.
fn not_judged(
    point: &Point,
    class: Option<Class>,
    difference: Difference,
    a: &[Rounds],
    b: &[Rounds],
) -> Compared {
    let medians = |side: &[Rounds]| {
        side.iter().filter_map(|rounds| Some(RunMedian::of(&alike(rounds))?.value)).collect()
    };
    Compared {
        point: point.clone(),
        class,
        state: None,
        a: medians(a),
        b: medians(b),
        ratio: None,
        interval: None,
        p_value: None,
        difference,
    }
}
