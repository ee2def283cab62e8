//! Comparison of repeated runs.

use std::collections::BTreeMap;

use lab::compare::{Compared, Comparison, Difference};
use lab::experiment::Experiment;
use lab::format::{self, Scale};
use lab::journal::Run;
use lab::metric::Better;
use lab::point::Point;
use lab::schema::JsonOutput;
use lab::table::{ColumnHeader, Emphasis, Page, TableCell};
use machine::proximity::Class;
use schemars::JsonSchema;
use serde::Serialize;

use super::cell::ValueFormat;
use super::section::{Section, sections};
use super::show::caption;

/// Renders comparisons as tables: the geometric means of both sides, the ratio B / A with its interval, and whether B is
/// better, worse or unresolved. `first` is the first run of A.
pub fn compare(comparisons: &[Comparison], first: &Run, page: Page) -> String {
    let table = |comparison: &Comparison| {
        let experiment = first.record.experiments.get(&comparison.experiment);
        comparison_text(comparison, experiment, page)
    };
    comparisons.iter().map(table).collect::<Vec<_>>().join("\n")
}

/// JSON output of `tollgate compare`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CompareOutput<'a> {
    /// A comparison per experiment.
    pub comparisons: &'a [Comparison],
}

impl JsonOutput for CompareOutput<'_> {
    const NAME: &'static str = "compare";
    const WRITTEN_BY: &'static str = "tollgate compare A B --json";
    const VERSION: u64 = 1;
}

fn comparison_text(comparison: &Comparison, experiment: Option<&Experiment>, page: Page) -> String {
    let mut text = page.paragraph(&comparison.experiment, 0, Emphasis::Strong);
    let facts = [
        comparison.metric.clone(),
        format!("A is {}", comparison.a.join(", ")),
        format!("B is {}", comparison.b.join(", ")),
    ];
    text += &page.paragraph(&facts.join("; "), 0, Emphasis::Plain);
    for table in compared_tables(comparison, experiment, "B") {
        text.push('\n');
        text += &page.paragraph(&table.caption, 2, Emphasis::Faint);
        text += &page.table(&table.headers, table.rows);
    }
    text += &page.paragraph(&counts(comparison), 2, Emphasis::Plain);
    for note in &comparison.notes {
        text += &page.paragraph(note, 2, Emphasis::Plain);
    }
    text
}

/// Table of the points of a sweep, or of other points, with the values of both sides.
pub(crate) struct ComparedTable {
    pub(crate) caption: String,
    pub(crate) headers: Vec<ColumnHeader>,
    /// Number of columns at the left that name a row.
    pub(crate) labels: usize,
    pub(crate) rows: Vec<Vec<TableCell>>,
}

/// Returns the tables of a comparison with A; `b` is the name of the other side.
pub(crate) fn compared_tables(
    comparison: &Comparison,
    experiment: Option<&Experiment>,
    b: &str,
) -> Vec<ComparedTable> {
    let points: Vec<&Point> = comparison.rows.iter().map(|row| &row.point).collect();
    let sections = sections(points, experiment);
    sections.iter().map(|section| ComparedTable::new(comparison, section, b)).collect()
}

impl ComparedTable {
    fn new(comparison: &Comparison, section: &Section, b: &str) -> Self {
        let record = &comparison.record;
        let of_point = |point: Point| comparison.rows.iter().filter(move |row| row.point == point);
        let rows: Vec<&Compared> = section.in_order().into_iter().flat_map(of_point).collect();
        let values = rows.iter().flat_map(|row| [centre(&row.a), centre(&row.b)]);
        let format = ValueFormat { unit: &record.unit, scale: Scale::common(values, &record.unit) };
        let mut headers: Vec<ColumnHeader> =
            section.axes.iter().map(|axis| ColumnHeader::left(&axis.factor)).collect();
        let has_classes = rows.iter().any(|row| row.class.is_some());
        headers.extend(has_classes.then(|| ColumnHeader::left("cores")));
        let labels = headers.len();
        headers.extend(["A", b, &format!("{b} / A"), "95% interval"].map(ColumnHeader::right));
        headers.push(ColumnHeader::left(format!("{b} is")));
        let line = |row: &&Compared| {
            let mut cells: Vec<TableCell> =
                section.axes.iter().map(|axis| row.point.text(&axis.factor).into()).collect();
            cells.extend(has_classes.then(|| row.class.map_or("", Class::name).into()));
            cells.extend(cells_of(row, &format).map(TableCell::from));
            cells.push(verdict(row.difference, record.better));
            cells
        };
        let rows = rows.iter().map(line).collect();
        Self { caption: caption(section, &format), headers, labels, rows }
    }
}

/// Returns the cells of a row whose values have their own units: both means, the ratio, its interval, and what B is.
pub(crate) fn compared_cells(row: &Compared, comparison: &Comparison) -> [TableCell; 5] {
    let record = &comparison.record;
    let format = ValueFormat { unit: &record.unit, scale: None };
    let [a, b, ratio, interval] = cells_of(row, &format).map(TableCell::from);
    [a, b, ratio, interval, verdict(row.difference, record.better)]
}

/// Returns the geometric mean, or the arithmetic one if a value is not positive.
fn centre(values: &[f64]) -> f64 {
    let count = values.len().max(1) as f64;
    match values.iter().all(|value| *value > 0.0) {
        true => (values.iter().map(|value| value.ln()).sum::<f64>() / count).exp(),
        false => values.iter().sum::<f64>() / count,
    }
}

/// Returns both means, the ratio and its interval.
fn cells_of(row: &Compared, format: &ValueFormat<'_>) -> [String; 4] {
    let mean = |values: &[f64]| format.number(centre(values), None);
    let (a, b) = (mean(&row.a), mean(&row.b));
    let Some(ratio) = row.ratio else { return [a, b, "—".into(), String::new()] };
    let Some((low, high)) = row.interval else {
        return [a, b, format::value(ratio, None, "1"), String::new()];
    };
    let width = (high - low) / 2.0;
    let width = (width > 0.0).then_some(width);
    let number = |value| format::value(value, width, "1");
    [a, b, number(ratio), format!("{} to {}", number(low), number(high))]
}

fn verdict(difference: Difference, better: Better) -> TableCell {
    let (good, bad) = (("better", Emphasis::Good), ("worse", Emphasis::Bad));
    let (word, emphasis) = match (difference, better) {
        (Difference::Unresolved | Difference::Chance | Difference::NoSpread, _) => {
            ("unresolved", Emphasis::Faint)
        }
        (
            Difference::TooFewRuns(_)
            | Difference::NotPositive
            | Difference::OtherState
            | Difference::OtherClass
            | Difference::TooManyFailed { .. },
            _,
        ) => ("not judged", Emphasis::Faint),
        (Difference::Higher, Better::Higher) | (Difference::Lower, Better::Lower) => good,
        (Difference::Higher, Better::Lower) | (Difference::Lower, Better::Higher) => bad,
        (Difference::Higher, Better::Neither) => ("higher", Emphasis::Plain),
        (Difference::Lower, Better::Neither) => ("lower", Emphasis::Plain),
    };
    TableCell::new(word, emphasis)
}

/// Counts points by verdict, with the reasons of those without one, and points of one side only.
pub(crate) fn counts(comparison: &Comparison) -> String {
    let better = comparison.record.better;
    let mut words: BTreeMap<String, usize> = BTreeMap::new();
    for row in &comparison.rows {
        let word = match row.difference {
            Difference::Higher | Difference::Lower => verdict(row.difference, better).text,
            _ => row.difference.to_string(),
        };
        *words.entry(word).or_default() += 1;
    }
    let mut parts: Vec<_> = words.iter().map(|(word, count)| format!("{count} {word}")).collect();
    for (count, side) in [(comparison.only_a, "A"), (comparison.only_b, "B")] {
        if count > 0 {
            parts.push(format!("{} only in {side}", format::count(count, "point")));
        }
    }
    if parts.is_empty() { "no common point".into() } else { parts.join("; ") }
}
