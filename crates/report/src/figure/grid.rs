//! Grids: one cell per pair of levels of two factors, in panels that share their rows.

use lab::figure::{Figure, PublishedValue};
use lab::format;
use lab::point::{Level, Point};
use lab::statistics::{Ratio, Resolution, resolve};
use lab::summary::{Row, Summary, pairs};

use super::cell::{Cell, CellFormat, CellValue};
use super::notes::{self, MissingValues, provenance};
use super::select::{Selection, summary};
use super::{FigureError, Summaries};

/// A grid ready to be drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct Grid {
    /// Base name of its files.
    pub id: String,
    /// The title.
    pub title: String,
    /// Factor of the rows.
    pub factor: String,
    /// Rows from top to bottom, without those that have no value.
    pub rows: Vec<GridRow>,
    /// Panels from left to right.
    pub panels: Vec<Panel>,
    /// Notes: host, CPU, rounds, noise floor, missing values with their reasons.
    pub notes: Vec<String>,
}

/// Row of all panels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GridRow {
    /// Level of the row.
    pub name: String,
    /// Whether this is the first row of a group.
    pub starts_group: bool,
}

/// Columns of one metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// The metric with its unit.
    pub label: String,
    /// Factor of the columns; empty for a single column, whose title is the label.
    pub factor: String,
    /// Column titles from left to right.
    pub columns: Vec<String>,
    /// Cells by row, then by column.
    pub cells: Vec<Vec<Cell>>,
    /// Values of the cells with their intervals; empty without a value.
    pub details: Vec<Vec<String>>,
}

/// Returns the grid of a figure: its main panel, and the side panels of which the run has samples.
///
/// # Errors
/// Returns an error if the main panel cannot be made, or if a side panel names an unknown factor or
/// leaves several points per cell.
pub(super) fn grid(
    figure: &Figure,
    summaries: &Summaries,
    main_summary: &Summary,
    main: &Selection<'_>,
) -> Result<Grid, FigureError> {
    let run = summaries.run();
    let (mut notes, mut missing_panels) = (provenance(run, main_summary, main), Vec::new());
    let mut side_panels = Vec::new();
    for side_panel in &figure.side_panels {
        let side = figure.side_panel(side_panel);
        match summary(&side, summaries, &side.experiment, side.metric.as_deref()) {
            Ok(summary) => side_panels.push((side, summary)),
            Err(FigureError::Summary { why, .. }) => missing_panels.push(why.to_string()),
            Err(error) => return Err(error),
        }
    }
    let mut selections = Vec::new();
    for (side, summary) in &side_panels {
        match Selection::new(side, run, summary) {
            Ok(selection) => selections.push((side, summary, selection)),
            // A metric that this machine cannot measure omits its panel only.
            Err(FigureError::Nothing { why, .. }) => {
                missing_panels.push(format!("no {}: {why}", summary.metric));
            }
            Err(error) => return Err(error),
        }
    }
    let mut sources = vec![PanelSource::new(figure, main_summary, main)];
    sources.extend(selections.iter().map(|(side, it, rows)| PanelSource::new(side, it, rows)));
    let levels = rows(figure, &sources);
    let mut missing = MissingValues::default();
    let panels = sources.iter().map(|it| it.panels(&levels, &mut missing));
    let panels = panels.collect::<Result<Vec<_>, _>>()?.concat();
    notes.extend(published_notes(&levels, &sources));
    notes.extend(sources[1..].iter().filter_map(|it| it.differences(&sources[0])));
    if !figure.groups.is_empty() {
        notes.push(
            "×: median of the ratios within rounds to the first row of the group; grey: unresolved"
                .into(),
        );
    }
    notes.extend(missing.into_lines().chain(missing_panels));
    let starts = |level: &Level| figure.groups.iter().any(|group| group.first() == Some(level));
    let row = |level: &Level| GridRow { name: level.to_string(), starts_group: starts(level) };
    Ok(Grid {
        id: figure.id.clone(),
        title: figure.title.clone(),
        factor: figure.series.clone().unwrap_or_default(),
        rows: levels.iter().map(row).collect(),
        panels,
        notes,
    })
}

/// Names the sources of the published values that panels show.
fn published_notes(rows: &[Level], sources: &[PanelSource<'_>]) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    let shown = sources.iter().flat_map(|it| rows.iter().flat_map(|row| it.published(row)));
    for value in shown {
        let note = format!("published: {}", value.described());
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    notes
}

/// Returns the rows that have a measured or published value in any panel: rows of groups first, then the others.
fn rows(figure: &Figure, sources: &[PanelSource<'_>]) -> Vec<Level> {
    let mut rows: Vec<Level> = figure.groups.concat();
    for level in sources.iter().flat_map(|it| it.selection.levels(|(row, _)| row)) {
        if !rows.contains(&level) {
            rows.push(level);
        }
    }
    let has_value = |level: &Level| {
        let cells = sources.iter().flat_map(|source| &source.selection.rows);
        cells.into_iter().any(|((row, _), it)| row == level && it.estimate.is_some())
            || sources.iter().any(|source| source.published(level).next().is_some())
    };
    rows.retain(has_value);
    rows
}

/// Data from which a panel is made.
struct PanelSource<'a> {
    figure: &'a Figure,
    summary: &'a Summary,
    selection: &'a Selection<'a>,
}

impl<'a> PanelSource<'a> {
    fn new(figure: &'a Figure, summary: &'a Summary, selection: &'a Selection<'a>) -> Self {
        Self { figure, summary, selection }
    }

    /// Returns a note if the rounds or fixed levels differ from those of `main`.
    fn differences(&self, main: &Self) -> Option<String> {
        let facts = self.facts();
        let differ = facts != main.facts();
        let label = self.figure.label(&self.summary.metric).text();
        differ.then(|| format!("{label}: {}", facts.join(", ")))
    }

    fn facts(&self) -> Vec<String> {
        let fixed =
            self.selection.fixed.levels().map(|(factor, level)| format!("{factor}={level}"));
        std::iter::once(notes::rounds(self.selection, self.summary)).chain(fixed).collect()
    }

    /// Returns the published values of a row that the panel can show: a ratio is to the first row of a group.
    fn published(&self, row: &Level) -> impl Iterator<Item = &'a PublishedValue> {
        let figure = self.figure;
        let row = row.clone();
        let group = figure.groups.iter().find(|group| group.contains(&row));
        let base = group.and_then(|group| group.first());
        figure.published.iter().filter(move |value| {
            let is_shown = match &value.relative_to {
                None => base.is_none_or(|base| *base == row),
                Some((of, x)) => Some(of) == base && *x == value.x,
            };
            value.series == row && is_shown
        })
    }

    /// Returns the panel, and one of the published values if there are any.
    fn panels(
        &self,
        rows: &[Level],
        missing: &mut MissingValues,
    ) -> Result<Vec<Panel>, FigureError> {
        missing.add(self.selection, &self.summary.metric);
        let columns = self.selection.levels(|(_, column)| column);
        let mut values = |row| -> Vec<CellValue> {
            columns.iter().map(|column| self.value(row, column, missing)).collect()
        };
        let values: Vec<Vec<CellValue>> = rows.iter().map(&mut values).collect();
        let Summary { metric, record, .. } = self.summary;
        let format = CellFormat::new(self.figure, (metric, &record.unit), &values)?;
        let label = format.label();
        let title = |column: &Level| match self.figure.x.as_str() {
            "" => label.clone(),
            _ => column.to_string(),
        };
        let row = |row: &Vec<CellValue>| row.iter().map(|value| format.cell(value)).collect();
        let details = |row: &Vec<CellValue>| row.iter().map(|value| format.detail(value)).collect();
        let ours = Panel {
            factor: self.figure.x.clone(),
            columns: columns.iter().map(title).collect(),
            cells: values.iter().map(row).collect(),
            details: values.iter().map(details).collect(),
            label: label.clone(),
        };
        Ok(std::iter::once(ours).chain(self.published_panel(rows, &columns, &format)).collect())
    }

    /// Returns the panel of the published values next to ours; `None` if no row has one.
    fn published_panel(
        &self,
        rows: &[Level],
        columns: &[Level],
        format: &CellFormat<'_>,
    ) -> Option<Panel> {
        let all: Vec<Vec<&PublishedValue>> =
            rows.iter().map(|row| self.published(row).collect()).collect();
        let has_value = |column: &&Level| all.iter().flatten().any(|value| value.x == **column);
        let columns: Vec<&Level> = columns.iter().filter(has_value).collect();
        let text = |value: &PublishedValue| match value.relative_to {
            Some(_) => format!("{}×", format::published(value.value, "1")),
            None => format.published(value.value),
        };
        let at = |row: &[&'a PublishedValue], column: &Level| {
            row.iter().find(|value| value.x == *column).copied()
        };
        let cell = |value: Option<&PublishedValue>| {
            value.map_or(Cell::Blank, |value| Cell::Plain(text(value)))
        };
        let detail = |value: Option<&PublishedValue>| {
            let text = |value: &PublishedValue| {
                format!("published: {}; {}; {}", text(value), value.described(), value.claim)
            };
            value.map_or_else(String::new, text)
        };
        let label = match self.figure.x.as_str() {
            "" => format!("published {}", self.figure.label(&self.summary.metric).text()),
            _ => "published".into(),
        };
        let title = |column: &&Level| match self.figure.x.as_str() {
            "" => label.clone(),
            _ => column.to_string(),
        };
        let cells = all.iter().map(|row| columns.iter().map(|it| cell(at(row, it))).collect());
        let details = all.iter().map(|row| columns.iter().map(|it| detail(at(row, it))).collect());
        (!columns.is_empty()).then(|| Panel {
            factor: self.figure.x.clone(),
            columns: columns.iter().map(title).collect(),
            cells: cells.collect(),
            details: details.collect(),
            label: label.clone(),
        })
    }

    fn value(&self, row: &Level, column: &Level, missing: &mut MissingValues) -> CellValue {
        let Some(found) = self.row(row, column) else { return CellValue::NoPoint };
        let Some(estimate) = found.estimate else { return CellValue::Missing };
        let group = self.figure.groups.iter().find(|group| group.contains(row));
        let Some(base) = group.and_then(|group| group.first()).filter(|base| *base != row) else {
            return CellValue::Value(estimate);
        };
        match self.row(base, column).and_then(|base| self.ratio(&found.point, &base.point)) {
            Some((ratio, resolution)) => CellValue::Ratio(ratio, resolution),
            None => {
                missing.add_name(format!("no round has both it and {base}"), row.as_str());
                CellValue::Missing
            }
        }
    }

    fn row(&self, row: &Level, column: &Level) -> Option<&'a Row> {
        self.selection.rows.get(&(row.clone(), column.clone())).copied()
    }

    fn ratio(&self, point: &Point, base: &Point) -> Option<(Ratio, Resolution)> {
        let points = &self.summary.observed.points;
        let pairs = pairs(points.get(point)?, points.get(base)?);
        let ratio = pairs.ratio().ok()?;
        let floor = self.summary.floors.near(&[point, base], pairs.state);
        Some((ratio, resolve(&ratio, floor)))
    }
}
