//! A list of points: a row each, with all that is known of it.

use lab::point::Point;
use lab::statistics::{Estimate, IntervalKind};
use lab::summary::Row;

use super::best::Judge;
use super::cell::{Figure, Rows, Writing, aligned, ends};
use super::notes::{Notes, half};
use super::page::{Entry, GAP, Head, Page, Tone};
use super::section::{Axis, Section};

/// Under this the minimum says what a body costs undisturbed, ns.
const SHORT: f64 = 1000.0;
/// What a narrow page goes without, first to last: JSON has it all.
const SPARE: [&str; 4] = ["outliers", "void", "MAD", "min"];

/// A section as a list.
pub(crate) fn flat(
    section: &Section,
    rows: &Rows<'_>,
    writing: &Writing<'_>,
    judge: &Judge<'_>,
    notes: &mut Notes,
    page: Page,
) -> String {
    let points = section.in_order();
    let best = match section.axes.as_slice() {
        [axis] if axis.is_choice() => judge.best(&points.iter().collect::<Vec<_>>()),
        _ => None,
    };
    let rows: Vec<Option<&Row>> = points.iter().map(|point| rows.get(point).copied()).collect();
    let figure = |(point, row): (&Point, &Option<&Row>)| {
        Some(Figure::of(*row, best == Some(point), writing, notes))
    };
    let figures: Vec<Option<Figure>> = points.iter().zip(&rows).map(figure).collect();
    let mut columns: Vec<Column> = section.axes.iter().map(|axis| factor(axis, &points)).collect();
    columns.push(Column { head: Head::right("median"), entries: aligned(&figures) });
    columns.extend(spread(&rows, writing));
    columns.extend(counts(&rows));
    fit(&mut columns, page);
    let heads: Vec<Head> = columns.iter().map(|column| column.head.clone()).collect();
    let line = |at: usize| columns.iter().map(|column| column.entries[at].clone()).collect();
    page.table(&heads, (0..points.len()).map(line).collect())
}

/// A column of a list.
struct Column {
    head: Head,
    entries: Vec<Entry>,
}

impl Column {
    fn width(&self) -> usize {
        let widths = self.entries.iter().map(|entry| entry.text.chars().count());
        widths.fold(self.head.title.chars().count(), usize::max)
    }
}

fn factor(axis: &Axis, points: &[Point]) -> Column {
    let number = axis.levels.iter().all(|level| level.number().is_some());
    let head = if number { Head::right(&axis.factor) } else { Head::left(&axis.factor) };
    Column { head, entries: points.iter().map(|p| p.text(&axis.factor).into()).collect() }
}

/// Leaves out what says least until the rest fits without wrapping.
fn fit(columns: &mut Vec<Column>, page: Page) {
    for spare in SPARE {
        let width: usize = columns.iter().map(|column| column.width() + GAP).sum();
        if width <= page.columns() + GAP {
            return;
        }
        columns.retain(|column| column.head.title != spare);
    }
}

/// Interval, MAD and, for short bodies, the minimum.
fn spread(rows: &[Option<&Row>], writing: &Writing<'_>) -> Vec<Column> {
    let estimate = |row: &Option<&Row>| row.and_then(|row| row.estimate);
    let of = |text: &dyn Fn(Estimate) -> String| -> Vec<Entry> {
        rows.iter().map(|row| estimate(row).map(text).unwrap_or_default().into()).collect()
    };
    let mut columns = Vec::new();
    let known: Vec<Estimate> = rows.iter().filter_map(estimate).collect();
    let is = |kind| known.iter().any(|e: &Estimate| e.interval.kind == kind);
    let intervals = is(IntervalKind::Bootstrap) || is(IntervalKind::OrderStatistic);
    let title = match (intervals, is(IntervalKind::Range)) {
        (true, true) => Some("95% interval or range"),
        (true, false) => Some("95% interval"),
        (false, true) => Some("range"),
        (false, false) => None,
    };
    if let Some(title) = title {
        columns.push(Column { head: Head::right(title), entries: of(&|e| ends(&e, writing)) });
        let mad = |e: Estimate| writing.number(e.mad, Some(e.mad / 10.0).filter(|m| *m > 0.0));
        columns.push(Column { head: Head::right("MAD"), entries: of(&mad) });
    }
    let short =
        |row: &Row| row.estimate.is_some_and(|e| nanoseconds(row, e.median, writing) < SHORT);
    if rows.iter().flatten().any(|row| short(row)) {
        let minimum = |row: &Option<&Row>| -> Entry {
            let row = row.filter(|row| short(row));
            let estimate = row.and_then(|row| row.estimate);
            let text = estimate.map(|e| writing.number(e.minimum, half(&e)));
            text.unwrap_or_default().into()
        };
        columns
            .push(Column { head: Head::right("min"), entries: rows.iter().map(minimum).collect() });
    }
    columns
}

/// A median as a time, where it is one.
fn nanoseconds(row: &Row, median: f64, writing: &Writing<'_>) -> f64 {
    let by = |hertz: Option<f64>| hertz.map_or(f64::INFINITY, |hertz| median * 1e9 / hertz);
    match writing.unit {
        "ns" => median,
        "s" => median * 1e9,
        "ticks" => by(row.tsc_hertz),
        "cycles" => by(row.core_hertz),
        _ => f64::INFINITY,
    }
}

/// Rounds and, where there are any, void rounds and outliers.
fn counts(rows: &[Option<&Row>]) -> Vec<Column> {
    let column = |title: &str, count: &dyn Fn(&Row) -> usize| {
        let cell = |row: &Option<&Row>| {
            let tone = if title == "rounds" { Tone::Plain } else { Tone::Doubtful };
            Entry::new(row.map(|row| count(row).to_string()).unwrap_or_default(), tone)
        };
        Column { head: Head::right(title), entries: rows.iter().map(cell).collect() }
    };
    let any = |count: &dyn Fn(&Row) -> usize| rows.iter().flatten().any(|row| count(row) > 0);
    let mut columns = vec![column("rounds", &|row| row.rounds)];
    if any(&|row| row.voids) {
        columns.push(column("void", &|row| row.voids));
    }
    if any(&|row| row.outliers.len()) {
        columns.push(column("outliers", &|row| row.outliers.len()));
    }
    columns
}
