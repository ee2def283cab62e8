//! Tables of two factors: one row per level of the first, one column per level of the second.

use std::collections::BTreeSet;

use lab::point::{Level, Point};

use super::cell::{BestSelector, Rows, ValueCell, ValueFormat, aligned};
use super::groups::{self, Group};
use super::notes::Notes;
use super::section::{Axis, Section};
use lab::table::{COLUMN_GAP, ColumnHeader, Page, TableCell};

/// Table of two factors.
pub(crate) struct Pivot {
    pub(crate) down: Axis,
    pub(crate) across: Axis,
    /// Cells by column, then by row; `None` if the experiment has no such point.
    pub(crate) columns: Vec<Vec<Option<ValueCell>>>,
    /// Groups of rows; empty if the table is not divided.
    pub(crate) groups: Vec<Group>,
}

/// Returns the table of a section of two factors.
pub(crate) fn pivot(
    section: &Section,
    (first, second): (&Axis, &Axis),
    rows: &Rows<'_>,
    format: &ValueFormat<'_>,
    selector: &BestSelector<'_>,
    notes: &mut Notes,
) -> Pivot {
    let known: BTreeSet<&Point> = section.points.iter().collect();
    let point = |down: &Level, across: &Level| {
        let point = section.fixed.with(&first.factor, down.clone());
        let point = point.with(&second.factor, across.clone());
        known.contains(&point).then_some(point)
    };
    let best_across = |down: &Level| {
        let points: Vec<Point> = second.levels.iter().filter_map(|it| point(down, it)).collect();
        selector.best(&points)
    };
    let best_down = |across: &Level| {
        let points: Vec<Point> = first.levels.iter().filter_map(|it| point(it, across)).collect();
        selector.best(&points)
    };
    let bests: BTreeSet<Point> = match (selector.chooses(first), selector.chooses(second)) {
        (_, true) => first.levels.iter().filter_map(best_across).collect(),
        (true, _) => second.levels.iter().filter_map(best_down).collect(),
        (false, false) => BTreeSet::new(),
    };
    let mut cell = |across: &Level, down: &Level| {
        let point = point(down, across)?;
        let is_best = bests.contains(&point);
        Some(ValueCell::new(rows.get(&point).copied(), is_best, format, notes))
    };
    let columns = second
        .levels
        .iter()
        .map(|across| first.levels.iter().map(|down| cell(across, down)).collect())
        .collect();
    Pivot { down: first.clone(), across: second.clone(), columns, groups: Vec::new() }
}

impl Pivot {
    /// Divides a long table by the group of each row, e.g. the class of its instruction.
    pub(crate) fn divided<'g>(
        self,
        group: impl Fn(&Point) -> Option<&'g str>,
        fixed: &Point,
    ) -> Self {
        let point = |down: &Level| {
            let across = self.across.levels.first().cloned();
            let point = fixed.with(&self.down.factor, down.clone());
            across.map_or(point.clone(), |across| point.with(&self.across.factor, across))
        };
        let points: Vec<Point> = self.down.levels.iter().map(point).collect();
        let groups = groups::divide(points.iter().map(group));
        Self { groups, ..self }
    }

    /// Renders the table, transposed or split by columns if it is too wide.
    pub(crate) fn text(&self, page: Page) -> String {
        // The groups are those of its rows.
        if self.parts(page).len() == 1 || !self.groups.is_empty() {
            return self.in_parts(page);
        }
        let transposed = self.transposed();
        if transposed.parts(page).len() == 1 {
            transposed.in_parts(page)
        } else {
            self.in_parts(page)
        }
    }

    fn transposed(&self) -> Self {
        let row = |at: usize| self.columns.iter().map(|column| column[at].clone()).collect();
        Pivot {
            down: self.across.clone(),
            across: self.down.clone(),
            columns: (0..self.down.levels.len()).map(row).collect(),
            groups: Vec::new(),
        }
    }

    fn labels_width(&self) -> usize {
        let title = self.title().chars().count();
        let widths = self.down.levels.iter().map(|level| level.as_str().chars().count());
        widths.fold(title, usize::max)
    }

    /// Returns the title of the column of labels.
    pub(crate) fn title(&self) -> String {
        format!("{} \\ {}", self.down.factor, self.across.factor)
    }

    fn column_width(&self, at: usize) -> usize {
        let title = self.across.levels[at].as_str().chars().count();
        let cells = aligned(&self.columns[at]);
        cells.iter().map(|cell| cell.text.chars().count()).fold(title, usize::max)
    }

    /// Splits the columns into parts that fit the page; each part has at least one column.
    fn parts(&self, page: Page) -> Vec<Vec<usize>> {
        let available = page.columns().saturating_sub(self.labels_width());
        let mut parts: Vec<Vec<usize>> = Vec::new();
        let mut used = 0;
        for at in 0..self.columns.len() {
            let width = self.column_width(at) + COLUMN_GAP;
            match parts.last_mut() {
                Some(part) if used + width <= available => part.push(at),
                _ => {
                    parts.push(vec![at]);
                    used = 0;
                }
            }
            used += width;
        }
        parts
    }

    fn in_parts(&self, page: Page) -> String {
        let parts = self.parts(page);
        let tables = parts.iter().map(|part| self.part(part, page));
        tables.collect::<Vec<_>>().join("\n")
    }

    fn part(&self, part: &[usize], page: Page) -> String {
        let mut headers = vec![ColumnHeader::left(self.title())];
        headers.extend(part.iter().map(|at| ColumnHeader::right(self.across.levels[*at].as_str())));
        let columns: Vec<Vec<TableCell>> =
            part.iter().map(|at| aligned(&self.columns[*at])).collect();
        let line = |(at, level): (usize, &Level)| {
            let label = std::iter::once(TableCell::from(level.as_str()));
            label.chain(columns.iter().map(|column| column[at].clone())).collect()
        };
        let lines: Vec<Vec<TableCell>> = self.down.levels.iter().enumerate().map(line).collect();
        match self.groups.as_slice() {
            [] => page.table(&headers, lines),
            groups => groups::text(groups, &headers, &lines, page),
        }
    }
}
