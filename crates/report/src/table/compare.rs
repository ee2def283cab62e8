//! Comparison of two runs.

use std::collections::BTreeMap;

use lab::compare::{Compared, Comparison};
use lab::journal::Run;
use lab::metric::Better;
use lab::point::Point;
use lab::statistics::{Estimate, IntervalKind, Resolution};
use serde_json::{Value, json};

use super::cell::ValueFormat;
use super::notes::half;
use super::section::{Section, sections};
use super::show::{caption, noise_floor};
use lab::format::{self, Scale};
use lab::table::{ColumnHeader, Emphasis, Page, TableCell};

/// Renders comparisons as tables: both medians, the ratio B / A with its interval, and whether B is
/// better, worse or unresolved.
pub fn compare(comparisons: &[Comparison], a: &Run, b: &Run, page: Page) -> String {
    let table = |comparison| comparison_text(comparison, a, b, page);
    comparisons.iter().map(table).collect::<Vec<_>>().join("\n")
}

/// Returns comparisons as JSON.
pub fn compare_json(comparisons: &[Comparison], a: &Run, b: &Run) -> Value {
    json!({ "a": a.record.name, "b": b.record.name, "comparisons": comparisons })
}

fn comparison_text(comparison: &Comparison, a: &Run, b: &Run, page: Page) -> String {
    let mut text = page.paragraph(&comparison.experiment, 0, Emphasis::Strong);
    let facts = [
        comparison.metric.clone(),
        format!("A is {}", a.record.name),
        format!("B is {}", b.record.name),
        noise_floor(&comparison.floors),
    ];
    text += &page.paragraph(&facts.join("; "), 0, Emphasis::Plain);
    let points: Vec<&Point> = comparison.rows.iter().map(|row| &row.point).collect();
    for section in sections(points, a.record.experiments.get(&comparison.experiment)) {
        text.push('\n');
        text += &table(comparison, &section, page);
    }
    text += &page.paragraph(&counts(comparison), 2, Emphasis::Plain);
    for note in &comparison.notes {
        text += &page.paragraph(note, 2, Emphasis::Plain);
    }
    text
}

fn table(comparison: &Comparison, section: &Section, page: Page) -> String {
    let record = &comparison.record;
    let by_point: BTreeMap<&Point, &Compared> =
        comparison.rows.iter().map(|row| (&row.point, row)).collect();
    let row = |point: Point| by_point.get(&point).copied();
    let rows: Vec<&Compared> = section.in_order().into_iter().filter_map(row).collect();
    let medians = rows.iter().flat_map(|row| [row.a.median, row.b.median]);
    let format = ValueFormat { unit: &record.unit, scale: Scale::common(medians, &record.unit) };
    let mut headers: Vec<ColumnHeader> =
        section.axes.iter().map(|axis| ColumnHeader::left(&axis.factor)).collect();
    headers.extend([
        ColumnHeader::right("A"),
        ColumnHeader::right("B"),
        ColumnHeader::right("B / A"),
    ]);
    headers.extend([ColumnHeader::right(interval_title(&rows)), ColumnHeader::left("B is")]);
    let line = |row: &&Compared| {
        let mut cells: Vec<TableCell> =
            section.axes.iter().map(|axis| row.point.text(&axis.factor).into()).collect();
        cells.extend(values(row, &format).map(TableCell::from));
        cells.push(verdict(row, record.better));
        cells
    };
    let caption = page.paragraph(&caption(section, &format), 2, Emphasis::Faint);
    caption + &page.table(&headers, rows.iter().map(line).collect())
}

fn interval_title(rows: &[&Compared]) -> &'static str {
    let kinds = || rows.iter().filter_map(|row| Some(row.ratio.as_ref()?.interval.kind));
    let ranges = kinds().filter(|kind| *kind == IntervalKind::Range).count();
    match (ranges, kinds().count()) {
        (0, _) => "95% interval",
        (some, all) if some == all => "range",
        _ => "95% interval or range",
    }
}

/// Returns both medians, the ratio and its interval.
fn values(row: &Compared, format: &ValueFormat<'_>) -> [String; 4] {
    let median = |estimate: &Estimate| {
        let number = format.number(estimate.median, half(estimate));
        format!("{number} {}", format::half_width(estimate.relative_half_width()))
    };
    let Some(ratio) = &row.ratio else {
        return [median(&row.a), median(&row.b), "—".into(), String::new()];
    };
    let width = (ratio.interval.high - ratio.interval.low) / 2.0;
    let width = (width > 0.0).then_some(width);
    let number = |value| format::value(value, width, "1");
    let ends = format::ends(&ratio.interval, number);
    [median(&row.a), median(&row.b), number(ratio.ratio), ends]
}

fn verdict(row: &Compared, better: Better) -> TableCell {
    let resolution = row.resolution.as_ref();
    let (good, bad) = (("better", Emphasis::Good), ("worse", Emphasis::Bad));
    let (word, emphasis) = match (resolution, better) {
        (None | Some(Resolution::Unresolved { .. }), _) => ("unresolved", Emphasis::Faint),
        (Some(Resolution::Higher), Better::Higher) => good,
        (Some(Resolution::Lower), Better::Lower) => good,
        (Some(Resolution::Higher), Better::Neither) => ("higher", Emphasis::Plain),
        (Some(Resolution::Lower), Better::Neither) => ("lower", Emphasis::Plain),
        _ => bad,
    };
    TableCell::new(word, emphasis)
}

/// Counts points by verdict, with the reasons of unresolved ones, and points in one run only.
fn counts(comparison: &Comparison) -> String {
    let mut words: BTreeMap<String, usize> = BTreeMap::new();
    for row in &comparison.rows {
        let word = match &row.resolution {
            Some(Resolution::Unresolved { why }) => format!("unresolved ({why})"),
            None => "unresolved (a value is not above zero)".into(),
            Some(_) => verdict(row, comparison.record.better).text,
        };
        *words.entry(word).or_default() += 1;
    }
    let mut parts: Vec<_> = words.iter().map(|(word, count)| format!("{count} {word}")).collect();
    for (count, run) in [(comparison.only_a, "A"), (comparison.only_b, "B")] {
        if count > 0 {
            parts.push(format!("{} only in {run}", format::count(count, "point")));
        }
    }
    if parts.is_empty() { "no common point".into() } else { parts.join("; ") }
}
