//! What stands in a table for one point.

use std::collections::BTreeMap;

use lab::point::Point;
use lab::statistics::{Estimate, IntervalKind};
use lab::summary::Row;

use super::notes::{Mark, Notes, half};
use super::page::{Entry, Tone};
use crate::format::{self, Scale};

/// A point's value in parts, so that the numbers of a column stand under each other.
#[derive(Debug, Clone, Default)]
pub(crate) struct Figure {
    number: String,
    half_width: String,
    mark: String,
    tone: Tone,
}

/// How the values of one table are written.
#[derive(Debug, Clone)]
pub(crate) struct Writing<'a> {
    /// The unit of the values.
    pub(crate) unit: &'a str,
    /// One scale for all; without one each value has its own.
    pub(crate) scale: Option<Scale>,
}

impl<'a> Writing<'a> {
    /// How the values of these rows are written.
    pub(crate) fn of<'r>(rows: impl Iterator<Item = &'r Row>, unit: &'a str) -> Self {
        let medians = rows.filter_map(|row| Some(row.estimate?.median));
        Self { unit, scale: Scale::common(medians, unit) }
    }

    /// A number of the table: without its unit where that stands in the caption.
    pub(crate) fn number(&self, value: f64, half_width: Option<f64>) -> String {
        match &self.scale {
            Some(scale) => scale.number(value, half_width),
            None => format::value(value, half_width, self.unit),
        }
    }

    /// The unit for the caption; empty where each value has its own.
    pub(crate) fn caption(&self) -> &str {
        self.scale.as_ref().map_or("", Scale::unit)
    }
}

impl Figure {
    /// What is known of a point that the experiment holds. `row` is nothing where no sample is.
    pub(crate) fn of(
        row: Option<&Row>,
        best: bool,
        writing: &Writing<'_>,
        notes: &mut Notes,
    ) -> Self {
        let Some(row) = row else {
            return Self { number: notes.mark(Mark::Pending).into(), ..Self::default() };
        };
        let faults = notes.faults(&row.errors);
        let Some(estimate) = &row.estimate else {
            let fault = row.errors.keys().any(|kind| kind.is_fault());
            let tone = if fault { Tone::Bad } else { Tone::Faint };
            let mark = match (row.errors.is_empty(), row.void_rounds) {
                (false, _) => faults,
                // Its samples count, and have no value of this metric.
                (true, 0) => String::new(),
                (true, _) => "void".into(),
            };
            return Self { number: "—".into(), mark, tone, ..Self::default() };
        };
        let mut mark = String::new();
        if best {
            mark += notes.mark(Mark::Best);
        }
        if estimate.interval.kind == IntervalKind::Range {
            mark += notes.mark(Mark::Range);
        }
        if !row.by_class.is_empty() {
            mark += notes.mark(Mark::Mixed);
        }
        Self {
            number: writing.number(estimate.median, half(estimate)),
            half_width: format::half_width(estimate.relative_half_width()),
            mark: mark + &faults,
            tone: if best { Tone::Good } else { Tone::Plain },
        }
    }

    fn widths(&self) -> (usize, usize) {
        (self.half_width.chars().count(), self.mark.chars().count())
    }
}

/// The figures of one column as texts of which the numbers end at the same place.
pub(crate) fn aligned(figures: &[Option<Figure>]) -> Vec<Entry> {
    let widths = figures.iter().flatten().map(Figure::widths);
    let (half, mark) = widths.fold((0, 0), |a, b| (a.0.max(b.0), a.1.max(b.1)));
    let text = |figure: &Option<Figure>| {
        let Some(figure) = figure else { return Entry::default() };
        // No-break spaces: padding must not be taken for a place to wrap or to trim.
        let space = |gap: usize| if gap > 0 { "\u{a0}" } else { "" };
        let pad = |text: &str, width: usize| {
            let lacks = width.saturating_sub(text.chars().count());
            format!("{text}{}", "\u{a0}".repeat(lacks))
        };
        let behind = if figure.half_width.is_empty() {
            // A missing number has its mark beside it.
            pad(&figure.mark, half + space(mark).chars().count() + mark)
        } else {
            pad(&figure.half_width, half) + space(mark) + &pad(&figure.mark, mark)
        };
        Entry::new(format!("{}{}{behind}", figure.number, space(half + mark)), figure.tone)
    };
    figures.iter().map(text).collect()
}

/// Rows by their points.
pub(crate) type Rows<'a> = BTreeMap<&'a Point, &'a Row>;

/// Both ends of an interval; nothing for one round.
pub(crate) fn ends(estimate: &Estimate, writing: &Writing<'_>) -> String {
    let half = half(estimate);
    let end = |value| writing.number(value, half);
    match estimate.interval.kind {
        IntervalKind::Single => String::new(),
        _ => format!("{} to {}", end(estimate.interval.low), end(estimate.interval.high)),
    }
}
