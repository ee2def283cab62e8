//! Comparison of the two sides of a run.

use std::collections::BTreeMap;

use lab::compare::{ComparedSides, SideComparison};
use lab::experiment::Experiment;
use lab::format::{self, Scale};
use lab::journal::Run;
use lab::metric::Better;
use lab::point::Point;
use lab::schema::JsonOutput;
use lab::side::{LEVELS, SideRecord};
use lab::statistics::{Estimate, IntervalKind, Ratio, Resolution};
use lab::table::{ColumnHeader, Emphasis, Page, TableCell};
use machine::proximity::Class;
use schemars::JsonSchema;
use serde::Serialize;

use super::cell::ValueFormat;
use super::notes::half;
use super::section::{Section, sections};
use super::show::caption;

/// Maximum number of causes that are listed; JSON has all.
const MAX_LISTED: usize = 12;
/// Digits of a digest that are printed.
const DIGEST_DIGITS: usize = 12;

/// Renders the comparison of the sides of a run as tables: both values, the ratio new / old within rounds with its
/// interval, and whether the new side is better, worse or unresolved.
pub fn sides(comparisons: &[SideComparison], run: &Run, page: Page) -> String {
    let mut text = String::new();
    for (level, side) in LEVELS.iter().zip(&run.record.sides) {
        text += &page.item(level, Emphasis::Strong, 5, &describe(side));
    }
    for comparison in comparisons {
        text.push('\n');
        let experiment = run.record.experiments.get(&comparison.experiment);
        text += &comparison_text(comparison, experiment, page);
    }
    text
}

/// JSON output of `tollgate compare --run`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SidesOutput<'a> {
    /// Name of the run.
    run: &'a str,
    /// The sides, `old` and `new`.
    sides: BTreeMap<&'static str, &'a SideRecord>,
    /// A comparison per experiment.
    comparisons: &'a [SideComparison],
}

impl JsonOutput for SidesOutput<'_> {
    const NAME: &'static str = "compare-run";
    const WRITTEN_BY: &'static str = "tollgate compare --run OLD NEW --json";
    const VERSION: u64 = 1;
}

/// Returns the comparison of the sides of a run for JSON.
pub fn sides_output<'a>(comparisons: &'a [SideComparison], run: &'a Run) -> SidesOutput<'a> {
    let sides = LEVELS.into_iter().zip(&run.record.sides).collect();
    SidesOutput { run: &run.record.name, sides, comparisons }
}

/// `/path/to/tollgate; version 0.1.0, digest 0123456789ab`
fn describe(record: &SideRecord) -> String {
    let SideRecord { side, version, digest } = record;
    let digest: String =
        digest.as_deref().unwrap_or("unknown").chars().take(DIGEST_DIGITS).collect();
    format!("{side}; version {version}, digest {digest}")
}

fn comparison_text(
    comparison: &SideComparison,
    experiment: Option<&Experiment>,
    page: Page,
) -> String {
    let mut text = page.paragraph(&comparison.experiment, 0, Emphasis::Strong);
    text += &page.paragraph(&comparison.metric, 0, Emphasis::Plain);
    let points: Vec<&Point> = comparison.rows.iter().map(|row| &row.point).collect();
    for section in sections(points, experiment) {
        text += &table(comparison, &section, page);
    }
    text += &page.paragraph(&counts(comparison), 2, Emphasis::Plain);
    let is_resolved = |row: &ComparedSides| {
        matches!(row.resolution, Some(Resolution::Higher | Resolution::Lower))
    };
    if comparison.rows.iter().any(is_resolved) {
        let note = "note: of 20 equal points, up to 1 differs by chance";
        text += &page.paragraph(note, 2, Emphasis::Plain);
    }
    let is_open = |row: &ComparedSides| row.values.iter().flatten().any(is_limited);
    if comparison.rows.iter().any(is_open) {
        let note = "note: the instrument or the search limited some values; if it limited both sides, the \
                    ratio is that of the instrument, else a bound";
        text += &page.paragraph(note, 2, Emphasis::Plain);
    }
    for cause in causes(comparison, experiment) {
        text += &page.paragraph(&cause, 2, Emphasis::Plain);
    }
    for alarm in &comparison.alarms {
        text += &page.paragraph(&alarm.to_string(), 2, Emphasis::Plain);
    }
    text
}

/// Returns each cause of a missing ratio or a failed round with its points.
fn causes(comparison: &SideComparison, experiment: Option<&Experiment>) -> Vec<String> {
    let mut causes: Vec<(&str, Vec<&Point>)> = Vec::new();
    for row in &comparison.rows {
        let Some(why) = &row.lacks else { continue };
        match causes.iter_mut().find(|(cause, _)| cause == why) {
            Some((_, points)) => points.push(&row.point),
            None => causes.push((why, vec![&row.point])),
        }
    }
    let more = causes.len().saturating_sub(MAX_LISTED);
    let line = |(why, points): (&str, Vec<&Point>)| {
        let brief =
            |point: &Point| experiment.map_or_else(|| point.clone(), |one| one.brief(point));
        match points.as_slice() {
            [point] => format!("{}: {why}", brief(point)),
            points => format!("{} points, e.g. {}: {why}", points.len(), brief(points[0])),
        }
    };
    let mut lines: Vec<String> = causes.into_iter().take(MAX_LISTED).map(line).collect();
    lines.extend((more > 0).then(|| format!("… and {more} more causes; --json lists all")));
    lines
}

/// Renders the points of a section that have values.
fn table(comparison: &SideComparison, section: &Section, page: Page) -> String {
    let record = &comparison.record;
    let has_values = |row: &&ComparedSides| row.values.iter().any(Option::is_some);
    let of_point = |point: Point| comparison.rows.iter().filter(move |row| row.point == point);
    let rows = section.in_order().into_iter().flat_map(of_point);
    let rows: Vec<&ComparedSides> = rows.filter(has_values).collect();
    if rows.is_empty() {
        return String::new();
    }
    let medians = rows.iter().flat_map(|row| row.values).flatten().map(|value| value.median);
    let format = ValueFormat { unit: &record.unit, scale: Scale::common(medians, &record.unit) };
    let has_classes = rows.iter().any(|row| row.class.is_some());
    let mut headers: Vec<ColumnHeader> =
        section.axes.iter().map(|axis| ColumnHeader::left(&axis.factor)).collect();
    headers.extend(has_classes.then(|| ColumnHeader::left("cores")));
    headers.extend(["old", "new", "new / old", "95% interval", "rounds"].map(ColumnHeader::right));
    headers.push(ColumnHeader::left("new is"));
    let line = |row: &&ComparedSides| {
        let mut cells: Vec<TableCell> =
            section.axes.iter().map(|axis| row.point.text(&axis.factor).into()).collect();
        let class = || row.class.map_or("", Class::name).into();
        cells.extend(has_classes.then(class));
        cells.extend(row.values.map(|value| value_text(value, &format).into()));
        cells.extend(ratio_texts(row.ratio).map(TableCell::from));
        cells.push(verdict(row.resolution, record.better));
        cells
    };
    let caption = page.paragraph(&caption(section, &format), 2, Emphasis::Faint);
    format!("\n{caption}{}", page.table(&headers, rows.iter().map(line).collect()))
}

fn value_text(value: Option<Estimate>, format: &ValueFormat<'_>) -> String {
    value.map_or("—".into(), |value| {
        value.interval.open_sign().to_owned() + &format.number(value.median, half(&value))
    })
}

/// Returns whether an end of a value's interval is open.
fn is_limited(value: &Estimate) -> bool {
    value.interval.open_end().is_some()
}

/// Returns the ratio, its interval and the number of its rounds.
fn ratio_texts(ratio: Option<Ratio>) -> [String; 3] {
    let Some(ratio) = ratio else { return ["—".into(), String::new(), "0".into()] };
    let half = ratio.relative_half_width() * ratio.ratio;
    let number = |value| format::value(value, half.is_finite().then_some(half), "1");
    let ends = format::ends(&ratio.interval, number);
    let interval = match ratio.interval.kind {
        IntervalKind::Range => format!("range {ends}"),
        IntervalKind::Single | IntervalKind::Confidence => ends,
    };
    [number(ratio.ratio), interval, ratio.rounds.to_string()]
}

fn verdict(resolution: Option<Resolution>, better: Better) -> TableCell {
    let (good, bad) = (("better", Emphasis::Good), ("worse", Emphasis::Bad));
    let (word, emphasis) =
        match (resolution, better) {
            (None, _) => ("not judged", Emphasis::Faint),
            (Some(Resolution::Unresolved { .. }), _) => ("unresolved", Emphasis::Faint),
            (Some(Resolution::Higher), Better::Higher)
            | (Some(Resolution::Lower), Better::Lower) => good,
            (Some(Resolution::Higher), Better::Lower)
            | (Some(Resolution::Lower), Better::Higher) => bad,
            (Some(Resolution::Higher), Better::Neither) => ("higher", Emphasis::Plain),
            (Some(Resolution::Lower), Better::Neither) => ("lower", Emphasis::Plain),
        };
    TableCell::new(word, emphasis)
}

/// Counts rows by verdict, with the reasons of those without one.
fn counts(comparison: &SideComparison) -> String {
    let better = comparison.record.better;
    let mut words: BTreeMap<String, usize> = BTreeMap::new();
    for row in &comparison.rows {
        let word = match row.resolution {
            Some(Resolution::Unresolved { why }) => format!("unresolved ({why})"),
            resolution => verdict(resolution, better).text,
        };
        *words.entry(word).or_default() += 1;
    }
    let parts: Vec<_> = words.iter().map(|(word, count)| format!("{count} {word}")).collect();
    parts.join("; ")
}
