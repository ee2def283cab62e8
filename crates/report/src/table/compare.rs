//! Two runs side by side.

use std::collections::BTreeMap;

use lab::compare::{Compared, Comparison};
use lab::journal::Run;
use lab::metric::Better;
use lab::point::Point;
use lab::statistics::{Estimate, IntervalKind, Resolution};
use serde_json::{Value, json};

use super::cell::Writing;
use super::notes::half;
use super::page::{Entry, Head, Page, Tone};
use super::section::{Section, sections};
use super::show::{caption, floor};
use crate::format::{self, Scale};

/// Comparisons as tables: both medians, the ratio B over A with its interval, and whether B is
/// better, worse or not resolved.
pub fn compare(comparisons: &[Comparison], a: &Run, b: &Run, page: Page) -> String {
    let table = |comparison| one(comparison, a, b, page);
    comparisons.iter().map(table).collect::<Vec<_>>().join("\n")
}

/// The same as data.
pub fn compare_json(comparisons: &[Comparison], a: &Run, b: &Run) -> Value {
    json!({ "a": a.record.name, "b": b.record.name, "comparisons": comparisons })
}

fn one(comparison: &Comparison, a: &Run, b: &Run, page: Page) -> String {
    let mut text = page.paragraph(&comparison.experiment, 0, Tone::Strong);
    let facts = [
        comparison.metric.clone(),
        format!("A is {}", a.record.name),
        format!("B is {}", b.record.name),
        floor(&comparison.floors),
    ];
    text += &page.paragraph(&facts.join("; "), 0, Tone::Plain);
    let points: Vec<&Point> = comparison.rows.iter().map(|row| &row.point).collect();
    for section in sections(points, a.record.experiments.get(&comparison.experiment)) {
        text.push('\n');
        text += &table(comparison, &section, page);
    }
    text += &page.paragraph(&counted(comparison), 2, Tone::Plain);
    for note in &comparison.notes {
        text += &page.paragraph(note, 2, Tone::Plain);
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
    let writing = Writing { unit: &record.unit, scale: Scale::common(medians, &record.unit) };
    let mut heads: Vec<Head> = section.axes.iter().map(|axis| Head::left(&axis.factor)).collect();
    heads.extend([Head::right("A"), Head::right("B"), Head::right("B / A")]);
    heads.extend([Head::right(interval_title(&rows)), Head::left("B is")]);
    let line = |row: &&Compared| {
        let mut entries: Vec<Entry> =
            section.axes.iter().map(|axis| row.point.text(&axis.factor).into()).collect();
        entries.extend(figures(row, &writing).map(Entry::from));
        entries.push(verdict(row, record.better));
        entries
    };
    let caption = page.paragraph(&caption(section, &writing), 2, Tone::Faint);
    caption + &page.table(&heads, rows.iter().map(line).collect())
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

/// Both medians, the ratio, its interval.
fn figures(row: &Compared, writing: &Writing<'_>) -> [String; 4] {
    let median = |estimate: &Estimate| {
        let number = writing.number(estimate.median, half(estimate));
        format!("{number} {}", format::half_width(estimate.relative_half_width()))
    };
    let Some(ratio) = &row.ratio else {
        return [median(&row.a), median(&row.b), "—".into(), String::new()];
    };
    let width = (ratio.interval.high - ratio.interval.low) / 2.0;
    let width = (width > 0.0).then_some(width);
    let number = |value| format::value(value, width, "1");
    let ends = match ratio.interval.kind {
        IntervalKind::Single => String::new(),
        _ => format!("{} to {}", number(ratio.interval.low), number(ratio.interval.high)),
    };
    [median(&row.a), median(&row.b), number(ratio.ratio), ends]
}

fn verdict(row: &Compared, better: Better) -> Entry {
    let resolution = row.resolution.as_ref();
    let (good, bad) = (("better", Tone::Good), ("worse", Tone::Bad));
    let (word, tone) = match (resolution, better) {
        (None | Some(Resolution::Unresolved { .. }), _) => ("unresolved", Tone::Faint),
        (Some(Resolution::Higher), Better::Higher) => good,
        (Some(Resolution::Lower), Better::Lower) => good,
        (Some(Resolution::Higher), Better::Neither) => ("higher", Tone::Plain),
        (Some(Resolution::Lower), Better::Neither) => ("lower", Tone::Plain),
        _ => bad,
    };
    Entry::new(word, tone)
}

/// How many points say what, why the unresolved are, and what could not be compared.
fn counted(comparison: &Comparison) -> String {
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
            parts.push(format!("{} in {run} alone", format::count(count, "point")));
        }
    }
    if parts.is_empty() { "no point is in both".into() } else { parts.join("; ") }
}
