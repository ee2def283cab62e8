//! Notes under a table: each distinct cause once, and what the marks mean.

use std::collections::{BTreeMap, BTreeSet};

use lab::point::Point;
use lab::sample::FailureKind;
use lab::summary::{FailureCount, Row};

use super::page::{Page, Tone};
use super::section::phrase;
use crate::format;

/// What is said under the tables of one experiment.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    causes: Vec<(FailureKind, String)>,
    marks: BTreeSet<Mark>,
}

/// What a mark in a cell says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mark {
    /// The best of those beside it, and resolved.
    Best,
    /// Under six rounds: what stands behind ± is half of a range.
    Range,
    /// Rounds of two covariate classes are in one median.
    Mixed,
    /// Declared, but not measured yet.
    Pending,
}

impl Mark {
    pub(crate) fn sign(self) -> &'static str {
        match self {
            Self::Best => "*",
            Self::Range => "r",
            Self::Mixed => "~",
            Self::Pending => "…",
        }
    }

    fn means(self) -> &'static str {
        match self {
            Self::Best => {
                "best of those it is compared with: chosen on half of the rounds, resolved on the \
                 other half"
            }
            Self::Range => "range: under 6 rounds there is no interval",
            Self::Mixed => "rounds with near and with far cores in one median",
            Self::Pending => "not measured yet: run again to resume",
        }
    }
}

impl Notes {
    /// Sees to it that the mark is explained, and gives its sign.
    pub(crate) fn mark(&mut self, mark: Mark) -> &'static str {
        self.marks.insert(mark);
        mark.sign()
    }

    /// The numbers of a point's failures, as `¹` or `¹ ²`.
    pub(crate) fn faults(&mut self, errors: &BTreeMap<FailureKind, FailureCount>) -> String {
        let mut signs = Vec::new();
        for (kind, fault) in errors {
            let remedy = fault.remedy.as_deref().map(|r| format!("; {r}")).unwrap_or_default();
            let cause = (*kind, format!("{}: {}{remedy}", kind.name(), fault.why));
            let place = self.causes.iter().position(|known| *known == cause);
            let place = place.unwrap_or_else(|| {
                self.causes.push(cause);
                self.causes.len() - 1
            });
            signs.push(superscript(place + 1));
        }
        signs.join(" ")
    }

    /// The notes as lines.
    pub(crate) fn text(&self, page: Page) -> String {
        let mut text = String::new();
        for mark in &self.marks {
            let line = format!("{} {}", mark.sign(), mark.means());
            text += &page.paragraph(&line, 2, Tone::Faint);
        }
        for (index, (kind, cause)) in self.causes.iter().enumerate() {
            let tone = if kind.is_fault() { Tone::Bad } else { Tone::Doubtful };
            text += &page.paragraph(&format!("{} {cause}", superscript(index + 1)), 2, tone);
        }
        text
    }
}

/// What all rows together say of void and outlying samples and of mixed classes.
pub(crate) fn remarks(rows: &[&Row], baseline: &Point, unit: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let voids: usize = rows.iter().map(|row| row.voids).sum();
    if voids > 0 {
        let mut causes: BTreeMap<&str, usize> = BTreeMap::new();
        for (cause, count) in rows.iter().flat_map(|row| &row.void_causes) {
            *causes.entry(cause).or_default() += count;
        }
        let causes: Vec<_> = causes.iter().map(|(cause, n)| format!("{cause}: {n}")).collect();
        let again = match rows.iter().map(|row| row.void_rounds).sum() {
            0 => "all measured again".into(),
            lost => format!("{} void after the last try", format::count(lost, "round")),
        };
        let samples = format::count(voids, "sample");
        lines.push(format!("void: {samples} ({}); {again}", causes.join("; ")));
    }
    let steps = rows.iter().filter(|row| row.estimate.is_some()).filter_map(|row| row.step);
    if let (Some(step), true) = (steps.reduce(f64::max), is_time(unit)) {
        let step = format::value(step, None, unit);
        lines.push(format!("values come in steps of the counter: {step} each"));
    }
    let outliers: usize = rows.iter().map(|row| row.outliers.len()).sum();
    if outliers > 0 {
        let points = rows.iter().filter(|row| !row.outliers.is_empty()).count();
        let at = format::count(points, "point");
        lines.push(format!("outliers: {} at {at}, kept", format::count(outliers, "value")));
    }
    lines.extend(rows.iter().filter(|row| !row.by_class.is_empty()).map(|row| {
        let class = |(name, e): (&String, &lab::statistics::Estimate)| {
            let value = format::value(e.median, half(e), unit);
            format!("{name} {value} ({})", format::count(e.rounds, "round"))
        };
        let classes: Vec<_> = row.by_class.iter().map(class).collect();
        format!("{}: {}", apart(&row.point, baseline), classes.join(", "))
    }));
    lines
}

fn is_time(unit: &str) -> bool {
    matches!(unit, "ns" | "ticks" | "cycles")
}

/// A point by what sets it apart from the baseline.
fn apart(point: &Point, baseline: &Point) -> String {
    let own = point.0.iter().filter(|(factor, level)| baseline.get(factor) != Some(level));
    let own: Vec<_> = own.map(|(factor, level)| phrase(factor, level)).collect();
    if own.is_empty() { "baseline".into() } else { own.join(", ") }
}

/// Half of an estimate's interval, in its unit; nothing for one round.
pub(crate) fn half(estimate: &lab::statistics::Estimate) -> Option<f64> {
    let share = estimate.relative_half_width();
    share.is_finite().then(|| share * estimate.median.abs())
}

fn superscript(number: usize) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let digit = |c: char| c.to_digit(10).map(|d| DIGITS[d as usize]);
    number.to_string().chars().filter_map(digit).collect()
}
