//! Panels of a grid: the columns of one metric.

use lab::journal::Run;
use lab::point::{Level, Point};
use lab::statistics::{Ratio, Resolution, resolve};
use lab::summary::{Observed, Row, Summary, Unit, paired, rounds};

use super::absent::Absent;
use super::cell::{Cell, Known, Writing};
use super::select::Selection;
use super::{FigureError, curve};
use crate::table::phrase;
use lab::figure::Figure;

/// Columns that show one metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// The metric with its unit.
    pub label: String,
    /// The factor of the columns; empty where there is one column, which the label names.
    pub factor: String,
    /// From left to right.
    pub columns: Vec<String>,
    /// By row, then by column.
    pub cells: Vec<Vec<Cell>>,
}

/// A panel in the making.
pub(super) struct Source<'a> {
    figure: &'a Figure,
    summary: &'a Summary,
    pub(super) selection: &'a Selection<'a>,
    observed: Observed,
}

impl<'a> Source<'a> {
    pub(super) fn of(
        figure: &'a Figure,
        run: &Run,
        summary: &'a Summary,
        selection: &'a Selection<'a>,
    ) -> Self {
        let Summary { experiment, metric, environment, .. } = summary;
        let observed = rounds(run, experiment, metric, environment, Unit::Own);
        Self { figure, summary, selection, observed }
    }

    /// What is to be said of a panel that is not as the first in rounds and levels.
    pub(super) fn unlike(&self, first: &Self) -> Option<String> {
        let facts = self.facts();
        let is_other = facts != first.facts();
        is_other.then(|| format!("{}: {}", self.summary.metric, facts.join(", ")))
    }

    fn facts(&self) -> Vec<String> {
        let fixed = self.selection.fixed.0.iter().map(|(factor, level)| phrase(factor, level));
        std::iter::once(curve::rounds(self.selection, self.summary)).chain(fixed).collect()
    }

    /// The panel with these rows.
    pub(super) fn panel(&self, rows: &[Level], absent: &mut Absent) -> Result<Panel, FigureError> {
        absent.add(self.selection, &self.summary.metric);
        let columns = self.selection.levels(|(_, column)| column);
        let mut known = |row| -> Vec<Known> {
            columns.iter().map(|column| self.known(row, column, absent)).collect()
        };
        let cells: Vec<Vec<Known>> = rows.iter().map(&mut known).collect();
        let Summary { metric, record, .. } = self.summary;
        let writing = Writing::of(self.figure, (metric, &record.unit), &cells)?;
        let label = writing.label();
        let head = |column: &Level| match self.figure.x.as_str() {
            "" => label.clone(),
            _ => column.to_string(),
        };
        let row = |row: &Vec<Known>| row.iter().map(|known| writing.cell(known)).collect();
        Ok(Panel {
            factor: self.figure.x.clone(),
            columns: columns.iter().map(head).collect(),
            cells: cells.iter().map(row).collect(),
            label,
        })
    }

    fn known(&self, row: &Level, column: &Level, absent: &mut Absent) -> Known {
        let Some(own) = self.row(row, column) else { return Known::Nothing };
        let Some(estimate) = own.estimate else { return Known::Failed };
        let group = self.figure.groups.iter().find(|group| group.contains(row));
        let Some(base) = group.and_then(|group| group.first()).filter(|base| *base != row) else {
            return Known::Value(estimate);
        };
        match self.row(base, column).and_then(|base| self.ratio(&own.point, &base.point)) {
            Some((ratio, resolution)) => Known::Ratio(ratio, resolution),
            None => {
                absent.say(format!("no round has both it and {base}"), row.as_str());
                Known::Failed
            }
        }
    }

    fn row(&self, row: &Level, column: &Level) -> Option<&'a Row> {
        self.selection.rows.get(&(row.clone(), column.clone())).copied()
    }

    fn ratio(&self, own: &Point, base: &Point) -> Option<(Ratio, Resolution)> {
        let points = &self.observed.points;
        let ratio = paired(points.get(own)?, points.get(base)?).ok()?;
        let floor = self.summary.floors.near(&[own, base]);
        Some((ratio, resolve(&ratio, floor)))
    }
}
