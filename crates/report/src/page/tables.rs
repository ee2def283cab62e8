//! Tables of experiments as data, from which the scripts make elements when a reader opens them.

use lab::table::{Emphasis, TableCell};
use serde::Serialize;

use crate::table::{ComparedTable, Pivot, PointList, ShownTable, TableContent, ValueCell};

/// A table.
#[derive(Serialize)]
pub(super) struct TableData {
    /// Caption of a sweep; empty for all of its tables but the first.
    caption: String,
    /// Levels of this table of a sweep with several.
    part: String,
    /// Titles of the columns, and whether each is of numbers.
    columns: Vec<(String, bool)>,
    /// Number of columns at the left that name a row.
    labels: usize,
    rows: Vec<Vec<CellData>>,
}

/// A cell: its text, and whether it is the best of the alternatives.
#[derive(Serialize)]
#[serde(untagged)]
enum CellData {
    Plain(String),
    Best([String; 1]),
}

impl CellData {
    fn new(text: String, emphasis: Emphasis) -> Self {
        if emphasis == Emphasis::Good { Self::Best([text]) } else { Self::Plain(text) }
    }
}

impl TableData {
    pub(super) fn new(table: &ShownTable) -> Self {
        let empty = Self {
            caption: table.caption.clone().unwrap_or_default(),
            part: table.part.clone(),
            columns: Vec::new(),
            labels: 0,
            rows: Vec::new(),
        };
        match &table.content {
            TableContent::Pivot(pivot) => empty.with_pivot(pivot),
            TableContent::List(list) => empty.with_list(list),
        }
    }

    /// Returns a table of a comparison.
    pub(super) fn compared(table: &ComparedTable) -> Self {
        let columns = table.headers.iter().map(|it| (it.title.clone(), it.is_right));
        Self {
            caption: table.caption.clone(),
            part: String::new(),
            columns: columns.collect(),
            labels: table.labels,
            rows: table.rows.iter().map(|row| row.iter().map(text).collect()).collect(),
        }
    }

    fn with_pivot(self, pivot: &Pivot) -> Self {
        let levels = pivot.across.levels.iter().map(|level| (level.to_string(), true));
        let row = |(at, level): (usize, &lab::point::Level)| {
            let label = CellData::Plain(level.to_string());
            let values = pivot.columns.iter().map(|column| value(column[at].as_ref()));
            std::iter::once(label).chain(values).collect()
        };
        Self {
            columns: std::iter::once((pivot.title(), false)).chain(levels).collect(),
            labels: 1,
            rows: pivot.down.levels.iter().enumerate().map(row).collect(),
            ..self
        }
    }

    fn with_list(self, list: &PointList) -> Self {
        let columns = || list.columns.iter();
        let row = |at: usize| columns().map(|column| text(&column.cells[at])).collect();
        Self {
            columns: columns().map(|it| (it.header.title.clone(), it.header.is_right)).collect(),
            labels: list.labels,
            rows: (0..list.points()).map(row).collect(),
            ..self
        }
    }
}

fn value(cell: Option<&ValueCell>) -> CellData {
    let Some(cell) = cell else { return CellData::Plain(String::new()) };
    let parts = [&cell.number, &cell.half_width, &cell.mark];
    let parts: Vec<&str> =
        parts.into_iter().map(String::as_str).filter(|it| !it.is_empty()).collect();
    CellData::new(parts.join(" "), cell.emphasis)
}

/// Returns a cell without the padding that aligns texts of a terminal.
fn text(cell: &TableCell) -> CellData {
    CellData::new(
        cell.text.split(['\u{a0}', ' ']).filter(|it| !it.is_empty()).collect::<Vec<_>>().join(" "),
        cell.emphasis,
    )
}
