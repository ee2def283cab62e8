//! Long lists: an experiment with many points in groups, e.g. all instructions, as a table that a reader searches, filters
//! and sorts. A row is a point, a column a factor or a metric.

use std::collections::{BTreeMap, BTreeSet};

use lab::method::AnyMethod;
use lab::point::Point;
use lab::suite;
use lab::summary::Row;
use maud::{Markup, html};
use serde::Serialize;

use super::{RunPage, short, slug};
use crate::figure::Summaries;
use crate::table::{Notes, ValueCell, ValueFormat};

/// Minimum number of points of a list: with fewer, the tables are read at a glance.
const MIN_POINTS: usize = 40;
/// Maximum number of levels of a factor that a reader chooses from; others are searched.
const MAX_CHOICES: usize = 12;

/// A list.
#[derive(Serialize)]
pub(super) struct ListData {
    columns: Vec<ListColumn>,
    rows: Vec<Vec<ListCell>>,
    /// Marks of its values and why others are missing.
    #[serde(skip)]
    notes: Notes,
}

/// Column of a list: its title and what it contains.
#[derive(Serialize)]
struct ListColumn(String, ColumnKind);

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum ColumnKind {
    /// Texts that are searched.
    Text,
    /// Texts that a reader also chooses from.
    Choice,
    /// Values, sorted by their numbers.
    Value,
}

/// Cell of a list: a text, or the text of a value with its number.
#[derive(Clone, Serialize)]
#[serde(untagged)]
enum ListCell {
    Text(String),
    Value(String, f64),
}

impl ListData {
    /// Returns the list of an experiment; `None` if its points are few or have no groups.
    pub(super) fn new(page: &RunPage, id: &str, summaries: &Summaries) -> Option<Self> {
        let experiment = page.run.record.experiments.get(id)?;
        let method = suite::find_method(page.suites, &experiment.suite, &experiment.method).ok()?;
        let main = summaries.of(id, None).ok()?;
        let mut seen = BTreeSet::new();
        let points: Vec<&Point> =
            main.rows.iter().map(|row| &row.point).filter(|point| seen.insert(*point)).collect();
        let groups = groups(method, &points)?;
        let mut list = Self {
            columns: Vec::new(),
            rows: vec![Vec::new(); points.len()],
            notes: Notes::default(),
        };
        list.add_texts("group", ColumnKind::Choice, groups);
        for (factor, levels) in varying(&points) {
            let is_choice = levels.len() <= MAX_CHOICES;
            let kind = if is_choice { ColumnKind::Choice } else { ColumnKind::Text };
            let text = |point: &&Point| point.text(factor).to_owned();
            list.add_texts(factor, kind, points.iter().map(text).collect());
        }
        let shown = page.shown_metrics(id);
        let declared = method.metrics().iter().map(|metric| metric.name);
        let others = declared.filter(|one| shown.contains(*one) && *one != experiment.metric);
        for metric in [experiment.metric.as_str()].into_iter().chain(others) {
            let Ok(summary) = summaries.of(id, Some(metric)) else { continue };
            let rows: BTreeMap<&Point, &Row> =
                summary.rows.iter().rev().map(|row| (&row.point, row)).collect();
            list.add_values(metric, &summary.record.unit, &points, &rows);
        }
        Some(list)
    }

    /// Returns the number of rows.
    fn len(&self) -> usize {
        self.rows.len()
    }

    fn add_texts(&mut self, title: &str, kind: ColumnKind, texts: Vec<String>) {
        self.columns.push(ListColumn(title.into(), kind));
        for (row, text) in self.rows.iter_mut().zip(texts) {
            row.push(ListCell::Text(text));
        }
    }

    /// Adds the medians of a metric, unless there are none.
    fn add_values(
        &mut self,
        metric: &str,
        unit: &str,
        points: &[&Point],
        rows: &BTreeMap<&Point, &Row>,
    ) {
        let of_points = || points.iter().filter_map(|point| rows.get(point).copied());
        if of_points().all(|row| row.estimate.is_none()) {
            return;
        }
        let format = ValueFormat::of_rows(of_points(), unit);
        let unit = format.caption();
        let title = if unit.is_empty() { metric.into() } else { format!("{metric} ({unit})") };
        self.columns.push(ListColumn(title, ColumnKind::Value));
        for (cells, point) in self.rows.iter_mut().zip(points) {
            let row = rows.get(point).copied();
            let cell = ValueCell::new(row, false, &format, &mut self.notes);
            let parts = [cell.number, cell.half_width, cell.mark];
            let text = parts.into_iter().filter(|it| !it.is_empty()).collect::<Vec<_>>().join(" ");
            cells.push(match row.and_then(|row| row.estimate) {
                Some(estimate) => ListCell::Value(text, short(estimate.median)),
                None => ListCell::Text(text),
            });
        }
    }
}

/// Returns the group of each point; `None` if there are too few points, or fewer than two groups.
fn groups(method: &dyn AnyMethod, points: &[&Point]) -> Option<Vec<String>> {
    if points.len() < MIN_POINTS {
        return None;
    }
    let groups: Vec<String> =
        points.iter().map(|point| method.group(point).unwrap_or_default()).collect();
    (groups.iter().collect::<BTreeSet<_>>().len() > 1).then_some(groups)
}

/// Returns the factors of which points have different levels: those with the most levels first.
fn varying<'p>(points: &[&'p Point]) -> Vec<(&'p str, BTreeSet<&'p str>)> {
    let mut levels: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (factor, level) in points.iter().flat_map(|point| point.levels()) {
        levels.entry(factor).or_default().insert(level.as_str());
    }
    let mut varying: Vec<_> = levels.into_iter().filter(|(_, levels)| levels.len() > 1).collect();
    varying.sort_by_key(|(_, levels)| std::cmp::Reverse(levels.len()));
    varying
}

/// Renders the frame of a list, which scripts fill when a reader opens it.
pub(super) fn frame(id: &str, list: &ListData) -> Markup {
    html! {
        details.list id={ "list-" (slug(id)) } data-list=(slug(id)) {
            summary { "Search, filter and sort " (list.len()) " points" }
            noscript { p { "The list needs JavaScript; " code { "tollgate show " (id) } " prints tables." } }
            ul.notes { @for line in list.notes.lines() { li { (line) } } }
        }
    }
}
