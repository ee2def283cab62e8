//! Notes under a table: each cause of failure once, and the meaning of the marks.

use std::collections::{BTreeMap, BTreeSet};

use lab::measure::BOTTLENECK;
use lab::point::Point;
use lab::sample::FailureKind;
use lab::statistics::{IntervalKind, NOTABLE_CORRELATION, OpenEnd};
use lab::summary::{CLASS, FailureCount, Limit, OtherEnvironment, Row};
use machine::proximity::Class;

use super::section::phrase;
use lab::format;
use lab::table::{Emphasis, Page};

/// Maximum number of levels of a covariate that a remark lists.
const MAX_LEVELS: usize = 6;
/// Maximum number of points with a bottleneck that are named.
const MAX_POINTS: usize = 4;
/// Coverage below which an interval is named. That of 6 rounds covers 96.9%, and of more the 95% that are wanted.
const LOW_COVERAGE: f64 = 0.945;
/// Smallest change of a median by void samples that is stated, as a share.
const SMALLEST_CHANGE: f64 = 0.001;

/// Notes on the tables of one experiment.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    causes: Vec<(FailureKind, String)>,
    marks: BTreeSet<Mark>,
}

/// Mark in a table cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mark {
    /// The best of the compared points, resolved from the others.
    Best,
    /// Too few rounds for an interval: the half-width is half the range.
    Range,
    /// The median is over rounds of two classes of cores.
    Mixed,
    /// The true value may be higher, lower, or both.
    Open(OpenEnd),
    /// Measured, but not this metric.
    OtherMetrics,
    /// Not measured yet.
    Pending,
}

impl Mark {
    pub(crate) fn sign(self) -> &'static str {
        match self {
            Self::Best => "*",
            Self::Range => "r",
            Self::Mixed => "~",
            Self::Open(end) => end.sign(),
            Self::OtherMetrics => "m",
            Self::Pending => "…",
        }
    }

    fn meaning(self) -> &'static str {
        match self {
            Self::Best => {
                "best of the alternatives: each other one is resolved worse, corrected for their number"
            }
            Self::Range => "range: too few independent rounds for a 95% interval",
            Self::Mixed => "median over rounds with near and with far cores",
            Self::Open(OpenEnd::High) => {
                "at least: the search or the instrument limited it, so the true value may be higher"
            }
            Self::Open(OpenEnd::Low) => {
                "at most: the search or the instrument limited it, so the true value may be lower"
            }
            Self::Open(OpenEnd::Both) => {
                "the search or the instrument limited it, so the true value may differ"
            }
            Self::OtherMetrics => {
                "measured, but without a value of this metric: --metric shows others"
            }
            Self::Pending => "not measured yet: run again to resume",
        }
    }

    /// Returns the meaning for a reader who has no command line.
    fn meaning_on_page(self) -> &'static str {
        match self {
            Self::OtherMetrics => {
                "measured, but without a value of this metric: the samples have others"
            }
            Self::Pending => "not measured in this run",
            other => other.meaning(),
        }
    }
}

impl Notes {
    /// Returns the sign of a mark and adds its meaning to the notes.
    pub(crate) fn mark(&mut self, mark: Mark) -> &'static str {
        self.marks.insert(mark);
        mark.sign()
    }

    /// Returns the numbers of a point's failures, e.g. `¹ ²`, and adds them to the notes.
    pub(crate) fn failures(&mut self, errors: &BTreeMap<FailureKind, FailureCount>) -> String {
        let mut signs = Vec::new();
        for (kind, failure) in errors {
            let remedy = failure.remedy.as_deref().map(|r| format!("; {r}")).unwrap_or_default();
            let cause = (*kind, format!("{}: {}{remedy}", kind.name(), failure.why));
            let index = self.causes.iter().position(|known| *known == cause);
            let index = index.unwrap_or_else(|| {
                self.causes.push(cause);
                self.causes.len() - 1
            });
            signs.push(superscript(index + 1));
        }
        signs.join(" ")
    }

    /// Returns the meaning of each mark and each cause of failure for readers who have no command line, one line each.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.emphasised(Mark::meaning_on_page).map(|(line, _)| line).collect()
    }

    /// Renders the notes.
    pub(crate) fn text(&self, page: Page) -> String {
        let lines = self.emphasised(Mark::meaning);
        lines.map(|(line, emphasis)| page.paragraph(&line, 2, emphasis)).collect()
    }

    fn emphasised(
        &self,
        meaning: fn(Mark) -> &'static str,
    ) -> impl Iterator<Item = (String, Emphasis)> {
        let mark =
            move |mark: &Mark| (format!("{} {}", mark.sign(), meaning(*mark)), Emphasis::Faint);
        let cause = |(index, (kind, cause)): (usize, &(FailureKind, String))| {
            let emphasis = if kind.is_fault() { Emphasis::Bad } else { Emphasis::Doubtful };
            (format!("{} {cause}", superscript(index + 1)), emphasis)
        };
        self.marks.iter().map(mark).chain(self.causes.iter().enumerate().map(cause))
    }
}

/// Returns remarks on void samples, counter resolution, correlation, covariates, outliers and mixed classes of all rows.
pub(crate) fn remarks(rows: &[&Row], baseline: &Point, unit: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let voids: usize = rows.iter().map(|row| row.voids).sum();
    if voids > 0 {
        let mut causes: BTreeMap<&str, usize> = BTreeMap::new();
        for (cause, count) in rows.iter().flat_map(|row| &row.void_causes) {
            *causes.entry(cause).or_default() += count;
        }
        let causes: Vec<_> = causes.iter().map(|(cause, n)| format!("{cause}: {n}")).collect();
        let repeated = match rows.iter().map(|row| row.void_rounds).sum() {
            0 => "all repeated".into(),
            lost => format!("{} void after the last attempt", format::count(lost, "round")),
        };
        let samples = format::count(voids, "sample");
        let change = |row: &&Row| {
            let (without, with) = (row.estimate?.median, row.with_voids?.median);
            Some((with / without - 1.0).abs()).filter(|change| change.is_finite())
        };
        let largest = rows.iter().filter_map(change).reduce(f64::max);
        let change = largest.map_or(String::new(), |change| match change < SMALLEST_CHANGE {
            true => "; with void samples, medians change by less than 0.1%".into(),
            false => format!("; with void samples, medians change by up to {:.1}%", change * 100.0),
        });
        lines.push(format!("void: {samples} ({}); {repeated}{change}", causes.join("; ")));
    }
    let steps = rows.iter().filter(|row| row.estimate.is_some()).filter_map(|row| row.step);
    if let (Some(step), true) = (steps.reduce(f64::max), is_time(unit)) {
        let step = format::value(step, None, unit);
        lines.push(format!("counter resolution: {step}"));
    }
    let drifts = rows.iter().filter_map(|row| Some(row.estimate?.interval.drift));
    if let Some(drift) = drifts.reduce(f64::max).filter(|drift| *drift > 0.0) {
        let share = format::half_width(drift);
        lines
            .push(format!("clock drift: {share} of another run, part of each interval of a value"));
    }
    lines.extend(correlation(rows));
    lines.extend(coverage(rows));
    lines.extend(covariates(rows));
    lines.extend(bottlenecks(rows, baseline));
    lines.extend(limits(rows));
    let outliers: usize = rows.iter().map(|row| row.outliers.len()).sum();
    if outliers > 0 {
        let points = rows.iter().filter(|row| !row.outliers.is_empty()).count();
        let at = format::count(points, "point");
        lines.push(format!("outliers: {} at {at}, kept", format::count(outliers, "value")));
    }
    lines.extend(rows.iter().filter(|row| !row.by_class.is_empty()).map(|row| {
        let class = |(class, e): (&Class, &lab::statistics::Estimate)| {
            let value = format::value(e.median, half(e), unit);
            format!("{} {value} ({})", class.name(), format::count(e.rounds, "round"))
        };
        let classes: Vec<_> = row.by_class.iter().map(class).collect();
        format!("{}: {}", difference(&row.point, baseline), classes.join(", "))
    }));
    lines
}

/// Returns a remark on each covariate: its levels, and the number of points with rounds of each, e.g.
/// `memory_type: uncached-minus (4 points), write-back (1 point)`. The class of the cores and the bottleneck have their own
/// remarks.
fn covariates(rows: &[&Row]) -> Vec<String> {
    let mut points: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for (name, levels) in rows.iter().flat_map(|row| &row.covariates) {
        for (level, _) in levels.iter().filter(|_| name != CLASS && name != BOTTLENECK) {
            *points.entry(name).or_default().entry(level.as_str()).or_default() += 1;
        }
    }
    let listed = |(name, levels): (&str, BTreeMap<&str, usize>)| {
        let more = levels.len().saturating_sub(MAX_LEVELS);
        let shown = levels.iter().take(MAX_LEVELS);
        let mut shown: Vec<_> = shown
            .map(|(level, count)| format!("{level} ({})", format::count(*count, "point")))
            .collect();
        if more > 0 {
            shown.push(format!("{more} more: --json"));
        }
        format!("{name}: {}", shown.join(", "))
    };
    points.into_iter().map(listed).collect()
}

/// Returns a remark on the part that limited each point, in some or all of its rounds, e.g. `bottleneck: NIC (baseline; 2
/// pipes), application (4 of 6 points)`.
fn bottlenecks(rows: &[&Row], baseline: &Point) -> Option<String> {
    let mut points: BTreeMap<&str, Vec<&Point>> = BTreeMap::new();
    let known: Vec<_> = rows.iter().filter(|row| row.covariates.contains_key(BOTTLENECK)).collect();
    for row in &known {
        for (level, _) in &row.covariates[BOTTLENECK] {
            points.entry(level.as_str()).or_default().push(&row.point);
        }
    }
    let part = |(part, points): (&&str, &Vec<&Point>)| {
        let named = || points.iter().map(|point| difference(point, baseline)).collect::<Vec<_>>();
        let at = match (points.len(), known.len()) {
            (some, all) if some == all => "all points".into(),
            (some, _) if some <= MAX_POINTS => named().join("; "),
            (some, all) => format!("{some} of {all} points"),
        };
        format!("{part} ({at})")
    };
    let parts: Vec<_> = points.iter().map(part).collect();
    (!parts.is_empty()).then(|| format!("bottleneck: {}", parts.join(", ")))
}

/// Returns remarks on the rounds whose value the search or the instrument limited.
fn limits(rows: &[&Row]) -> impl Iterator<Item = String> {
    let text = |(limit, what): (Limit, &str)| {
        let counts: Vec<usize> =
            rows.iter().filter_map(|row| row.limited.get(&limit)).copied().collect();
        let (rounds, points) = (counts.iter().sum(), counts.len());
        (points > 0).then(|| {
            let (rounds, points) = (format::count(rounds, "round"), format::count(points, "point"));
            format!("{what} in {rounds} at {points}: true values may be better")
        })
    };
    let limits = [
        (Limit::Instrument, "the instrument may have limited the value"),
        (Limit::Search, "the highest load passed"),
    ];
    limits.map(text).into_iter().flatten()
}

/// Returns a remark on points whose rounds are correlated.
fn correlation(rows: &[&Row]) -> Option<String> {
    let known: Vec<f64> = rows.iter().filter_map(|row| row.estimate?.lag_1).collect();
    let notable = known.iter().filter(|lag_1| **lag_1 > NOTABLE_CORRELATION);
    let (count, highest) = (notable.clone().count(), notable.copied().reduce(f64::max)?);
    Some(format!(
        "correlated rounds: lag-1 above {NOTABLE_CORRELATION} at {count} of {}, at most {highest:.2}; \
         intervals are widened for it",
        format::count(known.len(), "point")
    ))
}

/// Returns a remark on intervals and ranges that cover the median with less than 95%, because their rounds are few or
/// correlated.
fn coverage(rows: &[&Row]) -> Option<String> {
    let intervals = || rows.iter().filter_map(|row| Some(row.estimate.as_ref()?.interval));
    let parts = [(IntervalKind::Confidence, "interval"), (IntervalKind::Range, "range")];
    let part = |(kind, name): (IntervalKind, &str)| {
        let of_kind = intervals().filter(|one| one.kind == kind).map(|one| one.coverage);
        let covered: Vec<f64> = of_kind.filter(|covered| *covered < LOW_COVERAGE).collect();
        let low = covered.iter().copied().reduce(f64::min)?;
        let high = covered.iter().copied().reduce(f64::max)?;
        let (low, high) = (format::percent(low), format::percent(high));
        let share = if low == high { low } else { format!("{low} to {high}") };
        let verb = if covered.len() == 1 { "covers" } else { "cover" };
        Some(format!("{} {verb} the median with {share}", format::count(covered.len(), name)))
    };
    let parts: Vec<_> = parts.into_iter().filter_map(part).collect();
    (!parts.is_empty()).then(|| format!("coverage: {}", parts.join(", ")))
}

/// Returns which rounds of other environments are left out, e.g. `12 rounds of another environment (differing in libc
/// tunables) are`; `None` if there are none.
pub(crate) fn others_left_out(others: &[OtherEnvironment]) -> Option<String> {
    let environments = match others.len() {
        0 => return None,
        1 => "another environment".into(),
        several => format!("{several} other environments"),
    };
    let rounds = others.iter().map(|other| other.rounds).sum();
    let verb = if rounds == 1 { "is" } else { "are" };
    let rounds = format::count(rounds, "round");
    let failed = match others.iter().map(|other| other.failed).sum() {
        0 => String::new(),
        failed => format!(" ({failed} failed)"),
    };
    Some(format!("{rounds}{failed} of {environments}{} {verb}", differing(others)))
}

/// Returns in which properties environments differ from the one in use, e.g. ` (differing in libc tunables)`; empty if in
/// none that is recorded.
pub fn differing(others: &[OtherEnvironment]) -> String {
    let differences: BTreeSet<&str> =
        others.iter().flat_map(|other| &other.differences).map(String::as_str).collect();
    let differences: Vec<_> = differences.into_iter().collect();
    match differences.is_empty() {
        true => String::new(),
        false => format!(" (differing in {})", differences.join(", ")),
    }
}

fn is_time(unit: &str) -> bool {
    matches!(unit, "ns" | "ticks" | "cycles")
}

/// Describes a point by its differences from the baseline.
pub(crate) fn difference(point: &Point, baseline: &Point) -> String {
    let levels = point.levels().filter(|(factor, level)| baseline.get(factor) != Some(level));
    let levels: Vec<_> = levels.map(|(factor, level)| phrase(factor, level)).collect();
    if levels.is_empty() { "baseline".into() } else { levels.join(", ") }
}

/// Returns half the interval of an estimate in its unit; `None` for a single round.
pub(crate) fn half(estimate: &lab::statistics::Estimate) -> Option<f64> {
    let share = estimate.relative_half_width();
    share.is_finite().then(|| share * estimate.median.abs())
}

fn superscript(number: usize) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let digit = |c: char| c.to_digit(10).map(|d| DIGITS[d as usize]);
    number.to_string().chars().filter_map(digit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_on_a_page_need_no_command_line() {
        let mut notes = Notes::default();
        for mark in [Mark::Best, Mark::OtherMetrics, Mark::Pending] {
            notes.mark(mark);
        }
        let lines = notes.lines();
        assert_eq!(lines.len(), 3);
        assert!(
            lines.iter().all(|line| !line.contains("--") && !line.contains("run again")),
            "{lines:?}"
        );
        assert!(notes.text(Page::default()).contains("--metric"));
    }
}
