//! Grids: a cell for each level of two factors, in panels side by side that share their rows.

use lab::journal::Run;
use lab::point::Level;
use lab::summary::Summary;

use super::FigureError;
use super::absent::Absent;
use super::panel::{Panel, Source};
use super::picture::facts;
use super::select::{Selection, summary};
use lab::figure::Figure;

/// Cells in rows and columns.
#[derive(Debug, Clone, PartialEq)]
pub struct Grid {
    /// The name of its files.
    pub id: String,
    /// What stands above it.
    pub title: String,
    /// The factor of the rows.
    pub factor: String,
    /// From top to bottom; those without any value are left out.
    pub rows: Vec<GridRow>,
    /// From left to right.
    pub panels: Vec<Panel>,
    /// What stands under it: host, processor, rounds, noise floor, what is missing and why.
    pub notes: Vec<String>,
}

/// A row of all panels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GridRow {
    /// Its level.
    pub name: String,
    /// Whether a group of rows begins here.
    pub begins: bool,
}

/// A figure's own panel, and beside it those that the run has samples for.
pub(super) fn grid(
    figure: &Figure,
    run: &Run,
    summary_of_first: &Summary,
    first: &Selection<'_>,
) -> Result<Grid, FigureError> {
    let (mut notes, mut missing) = (facts(run, summary_of_first, first), Vec::new());
    let mut beside = Vec::new();
    for one in &figure.beside {
        let own = figure.side_panel(one);
        match summary(&own, run, &own.experiment, own.metric.as_deref()) {
            Ok(summary) => beside.push((own, summary)),
            Err(FigureError::Summary { why, .. }) => missing.push(why.to_string()),
            Err(fault) => return Err(fault),
        }
    }
    let mut selections = Vec::new();
    for (own, summary) in &beside {
        match Selection::of(own, run, summary) {
            Ok(selection) => selections.push((own, summary, selection)),
            // What this machine cannot measure costs its panel, not the figure.
            Err(FigureError::Nothing { why, .. }) => {
                missing.push(format!("no {}: {why}", summary.metric));
            }
            Err(fault) => return Err(fault),
        }
    }
    let mut sources = vec![Source::of(figure, run, summary_of_first, first)];
    sources.extend(selections.iter().map(|(own, summary, it)| Source::of(own, run, summary, it)));
    let levels = rows(figure, &sources);
    let mut absent = Absent::default();
    let panels = sources.iter().map(|it| it.panel(&levels, &mut absent));
    let panels = panels.collect::<Result<Vec<_>, _>>()?;
    notes.extend(sources[1..].iter().filter_map(|it| it.unlike(&sources[0])));
    if !figure.groups.is_empty() {
        notes.push(
            "×: median of the ratios inside rounds to the first row of the group; grey: unresolved"
                .into(),
        );
    }
    notes.extend(absent.told().chain(missing));
    let begins = |level: &Level| figure.groups.iter().any(|group| group.first() == Some(level));
    let row = |level: &Level| GridRow { name: level.to_string(), begins: begins(level) };
    Ok(Grid {
        id: figure.id.clone(),
        title: figure.title.clone(),
        factor: figure.series.clone().unwrap_or_default(),
        rows: levels.iter().map(row).collect(),
        panels,
        notes,
    })
}

/// The rows that have a value in some panel: those of groups in their order, then the others.
fn rows(figure: &Figure, sources: &[Source<'_>]) -> Vec<Level> {
    let mut rows: Vec<Level> = figure.groups.concat();
    for level in sources.iter().flat_map(|it| it.selection.levels(|(row, _)| row)) {
        if !rows.contains(&level) {
            rows.push(level);
        }
    }
    let has_value = |level: &Level| {
        let cells = sources.iter().flat_map(|source| &source.selection.rows);
        cells.into_iter().any(|((row, _), it)| row == level && it.estimate.is_some())
    };
    rows.retain(has_value);
    rows
}
