//! Table cells of points: value, half-width and marks, aligned in columns; and the best of several points.

use std::collections::BTreeMap;

use lab::metric::Better;
use lab::point::Point;
use lab::statistics::{Estimate, IntervalKind};
use lab::summary::{Contest, Floors, Observed, Row};
use lab::table::{Emphasis, TableCell};

use super::notes::{Mark, Notes, half};
use super::section::Axis;
use lab::format::{self, Scale};

/// Rows by their points.
pub(crate) type Rows<'a> = BTreeMap<&'a Point, &'a Row>;

/// Value of a point in parts, so that the numbers of a column can be aligned.
#[derive(Debug, Clone, Default)]
pub(crate) struct ValueCell {
    pub(crate) number: String,
    pub(crate) half_width: String,
    pub(crate) mark: String,
    pub(crate) emphasis: Emphasis,
}

/// Format of the values of one table.
#[derive(Debug, Clone)]
pub(crate) struct ValueFormat<'a> {
    /// Unit of the values.
    pub(crate) unit: &'a str,
    /// Scale of all values; `None` if each value has its own.
    pub(crate) scale: Option<Scale>,
}

impl<'a> ValueFormat<'a> {
    /// Returns the format of the medians of some rows.
    pub(crate) fn of_rows<'r>(rows: impl Iterator<Item = &'r Row>, unit: &'a str) -> Self {
        let medians = rows.filter_map(|row| Some(row.estimate?.median));
        Self { unit, scale: Scale::common(medians, unit) }
    }

    /// Formats a number; its unit is omitted if the caption has it.
    pub(crate) fn number(&self, value: f64, half_width: Option<f64>) -> String {
        match &self.scale {
            Some(scale) => scale.number(value, half_width),
            None => format::value(value, half_width, self.unit),
        }
    }

    /// Formats both ends of an interval; empty for a single round.
    pub(crate) fn interval(&self, estimate: &Estimate) -> String {
        let half = half(estimate);
        format::ends(&estimate.interval, |end| self.number(end, half))
    }

    /// Returns a title with the unit, e.g. `median in cycles`; without it if each value has its own.
    pub(crate) fn label(&self, title: &str) -> String {
        self.scale.as_ref().map_or_else(|| title.to_owned(), |scale| scale.label(title))
    }

    /// Returns the unit for the caption; empty if each value has its own.
    pub(crate) fn caption(&self) -> &str {
        self.scale.as_ref().map_or("", Scale::unit)
    }
}

impl ValueCell {
    /// Returns the cell of a point of the experiment; `row` is `None` if it has no sample.
    pub(crate) fn new(
        row: Option<&Row>,
        is_best: bool,
        format: &ValueFormat<'_>,
        notes: &mut Notes,
    ) -> Self {
        let Some(row) = row else {
            return Self { number: notes.mark(Mark::Pending).into(), ..Self::default() };
        };
        let failures = notes.failures(&row.errors);
        let Some(estimate) = &row.estimate else {
            let is_fault = row.errors.keys().any(|kind| kind.is_fault());
            let emphasis = if is_fault { Emphasis::Bad } else { Emphasis::Faint };
            let mark = match (row.errors.is_empty(), row.void_rounds) {
                (false, _) => failures,
                (true, 0) => notes.mark(Mark::OtherMetrics).into(),
                (true, _) => "void".into(),
            };
            return Self { number: "—".into(), mark, emphasis, ..Self::default() };
        };
        let mut mark = String::new();
        if is_best {
            mark += notes.mark(Mark::Best);
        }
        if estimate.interval.kind == IntervalKind::Range {
            mark += notes.mark(Mark::Range);
        }
        if !row.by_class.is_empty() {
            mark += notes.mark(Mark::Mixed);
        }
        mark += estimate.interval.open_end().map_or("", |end| notes.mark(Mark::Open(end)));
        Self {
            number: format.number(estimate.median, half(estimate)),
            half_width: format::half_width(estimate.relative_half_width()),
            mark: mark + &failures,
            emphasis: if is_best { Emphasis::Good } else { Emphasis::Plain },
        }
    }

    fn widths(&self) -> (usize, usize) {
        (self.half_width.chars().count(), self.mark.chars().count())
    }
}

/// Formats the cells of one column so that their numbers end at the same position.
pub(crate) fn aligned(cells: &[Option<ValueCell>]) -> Vec<TableCell> {
    let widths = cells.iter().flatten().map(ValueCell::widths);
    let (half, mark) = widths.fold((0, 0), |a, b| (a.0.max(b.0), a.1.max(b.1)));
    let text = |cell: &Option<ValueCell>| {
        let Some(cell) = cell else { return TableCell::default() };
        // Padding is neither wrapped nor trimmed because its spaces are no-break spaces.
        let space = |gap: usize| if gap > 0 { "\u{a0}" } else { "" };
        let pad = |text: &str, width: usize| {
            let missing = width.saturating_sub(text.chars().count());
            format!("{text}{}", "\u{a0}".repeat(missing))
        };
        let suffix = if cell.half_width.is_empty() {
            pad(&cell.mark, half + space(mark).chars().count() + mark)
        } else {
            pad(&cell.half_width, half) + space(mark) + &pad(&cell.mark, mark)
        };
        TableCell::new(format!("{}{}{suffix}", cell.number, space(half + mark)), cell.emphasis)
    };
    cells.iter().map(text).collect()
}

/// Rule by which the best of several points is chosen.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BestSelector<'a> {
    /// Factor whose levels are alternatives; without one no point is the best.
    pub(crate) alternatives: Option<&'a str>,
    pub(crate) observed: &'a Observed,
    pub(crate) better: Better,
    pub(crate) floors: &'a Floors,
}

impl BestSelector<'_> {
    /// Returns whether the levels of a factor are alternatives.
    pub(crate) fn chooses(&self, axis: &Axis) -> bool {
        self.alternatives == Some(axis.factor.as_str())
    }

    /// Returns the best of some points: each other one is resolved worse, corrected for the number of
    /// comparisons. `None` if several points may be the best.
    pub(crate) fn best(&self, points: &[Point]) -> Option<Point> {
        let with_values =
            points.iter().filter_map(|point| self.observed.points.get_key_value(point));
        let contests = Contest::all(&[with_values.collect()], self.better, self.floors).ok()?;
        contests.first()?.best().cloned()
    }
}
