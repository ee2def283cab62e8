//! Two factors crossed: rows of the first, columns of the other.

use std::collections::BTreeSet;

use lab::point::{Level, Point};

use super::best::Judge;
use super::cell::{Figure, Rows, Writing, aligned};
use super::notes::Notes;
use super::page::{Entry, GAP, Head, Page};
use super::section::{Axis, Section};

/// A pivot in the making: a figure for each row of each column.
struct Pivot<'a> {
    down: &'a Axis,
    across: &'a Axis,
    /// By column, then by row; nothing where the experiment has no such point.
    columns: Vec<Vec<Option<Figure>>>,
}

/// A section of two factors as a table, turned or in parts where it is too wide.
pub(crate) fn pivot(
    section: &Section,
    (first, second): (&Axis, &Axis),
    rows: &Rows<'_>,
    writing: &Writing<'_>,
    judge: &Judge<'_>,
    notes: &mut Notes,
    page: Page,
) -> String {
    let known: BTreeSet<&Point> = section.points.iter().collect();
    let point = |down: &Level, across: &Level| {
        let point = section.fixed.with(&first.factor, down.clone());
        let point = point.with(&second.factor, across.clone());
        known.contains(&point).then_some(point)
    };
    // Of kinds of a thing one may be best; of quantities, such as lengths, none is.
    let best = |down: &Level| -> Option<Point> {
        let points: Vec<Point> = second.levels.iter().filter_map(|a| point(down, a)).collect();
        let choice = second.is_choice().then(|| judge.best(&points.iter().collect::<Vec<_>>()));
        choice.flatten().cloned()
    };
    let bests: Vec<Option<Point>> = first.levels.iter().map(best).collect();
    let mut cell = |across: &Level, (down, best): (&Level, &Option<Point>)| {
        let point = point(down, across)?;
        let is_best = best.as_ref() == Some(&point);
        Some(Figure::of(rows.get(&point).copied(), is_best, writing, notes))
    };
    let columns = second
        .levels
        .iter()
        .map(|across| first.levels.iter().zip(&bests).map(|line| cell(across, line)).collect())
        .collect();
    let pivot = Pivot { down: first, across: second, columns };
    if pivot.parts(page).len() == 1 {
        return pivot.text(page);
    }
    let turned = pivot.turned();
    if turned.parts(page).len() == 1 { turned.text(page) } else { pivot.text(page) }
}

impl Pivot<'_> {
    fn turned(&self) -> Self {
        let row = |at: usize| self.columns.iter().map(|column| column[at].clone()).collect();
        Pivot {
            down: self.across,
            across: self.down,
            columns: (0..self.down.levels.len()).map(row).collect(),
        }
    }

    fn labels_width(&self) -> usize {
        let title = self.title().chars().count();
        let widths = self.down.levels.iter().map(|level| level.as_str().chars().count());
        widths.fold(title, usize::max)
    }

    fn title(&self) -> String {
        format!("{} \\ {}", self.down.factor, self.across.factor)
    }

    fn column_width(&self, at: usize) -> usize {
        let title = self.across.levels[at].as_str().chars().count();
        let entries = aligned(&self.columns[at]);
        entries.iter().map(|entry| entry.text.chars().count()).fold(title, usize::max)
    }

    /// Columns in parts that fit the page beside the labels; at least one column a part.
    fn parts(&self, page: Page) -> Vec<Vec<usize>> {
        let room = page.columns().saturating_sub(self.labels_width());
        let mut parts: Vec<Vec<usize>> = Vec::new();
        let mut taken = 0;
        for at in 0..self.columns.len() {
            let width = self.column_width(at) + GAP;
            match parts.last_mut() {
                Some(part) if taken + width <= room => part.push(at),
                _ => {
                    parts.push(vec![at]);
                    taken = 0;
                }
            }
            taken += width;
        }
        parts
    }

    fn text(&self, page: Page) -> String {
        let parts = self.parts(page);
        let tables = parts.iter().map(|part| self.part(part, page));
        tables.collect::<Vec<_>>().join("\n")
    }

    fn part(&self, part: &[usize], page: Page) -> String {
        let mut heads = vec![Head::left(self.title())];
        heads.extend(part.iter().map(|at| Head::right(self.across.levels[*at].as_str())));
        let columns: Vec<Vec<Entry>> = part.iter().map(|at| aligned(&self.columns[*at])).collect();
        let line = |(at, level): (usize, &Level)| {
            let label = std::iter::once(Entry::from(level.as_str()));
            label.chain(columns.iter().map(|column| column[at].clone())).collect()
        };
        page.table(&heads, self.down.levels.iter().enumerate().map(line).collect())
    }
}
