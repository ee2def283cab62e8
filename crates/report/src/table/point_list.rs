//! Lists of points: one row per point with its median, interval, MAD, minimum and counts.

use lab::point::Point;
use lab::statistics::{Estimate, IntervalKind};
use lab::summary::Row;

use super::cell::{BestSelector, Rows, ValueCell, ValueFormat, aligned};
use super::groups::{self, Group};
use super::notes::{Notes, half};
use super::section::{Axis, Section};
use lab::table::{COLUMN_GAP, ColumnHeader, Emphasis, Page, TableCell};

/// Time in ns below which the minimum is shown: the cost of a short body without disturbance.
const MAX_SHORT: f64 = 1000.0;
/// Columns that a narrow page omits, in this order; JSON has all.
const OPTIONAL: [&str; 5] = ["outliers", "void", "MAD", "min", WITH_VOIDS];
/// Title of the column of medians.
pub(crate) const MEDIAN: &str = "median";
/// Title of the column of the median of the first attempts, void or not.
const WITH_VOIDS: &str = "with voids";

/// List of points, with all columns.
pub(crate) struct PointList {
    pub(crate) columns: Vec<Column>,
    /// Number of columns at the left that contain levels.
    pub(crate) labels: usize,
    /// Groups of rows; empty if the list is not divided.
    pub(crate) groups: Vec<Group>,
    /// Title of the column of medians with the unit, for a list so long that the caption is far away.
    title: String,
}

/// Column of a list.
#[derive(Clone)]
pub(crate) struct Column {
    pub(crate) header: ColumnHeader,
    pub(crate) cells: Vec<TableCell>,
}

/// Returns a list of some points of a section.
pub(crate) fn point_list(
    section: &Section,
    points: &[Point],
    rows: &Rows<'_>,
    format: &ValueFormat<'_>,
    selector: &BestSelector<'_>,
    notes: &mut Notes,
) -> PointList {
    let best = match section.axes.as_slice() {
        [axis] if selector.chooses(axis) => selector.best(&section.points),
        _ => None,
    };
    let rows: Vec<Option<&Row>> = points.iter().map(|point| rows.get(point).copied()).collect();
    let cell = |(point, row): (&Point, &Option<&Row>)| {
        Some(ValueCell::new(*row, best.as_ref() == Some(point), format, notes))
    };
    let cells: Vec<Option<ValueCell>> = points.iter().zip(&rows).map(cell).collect();
    let mut columns: Vec<Column> = section.axes.iter().map(|axis| factor(axis, points)).collect();
    columns.push(Column { header: ColumnHeader::right(MEDIAN), cells: aligned(&cells) });
    columns.extend(spread(&rows, format));
    columns.extend(counts(&rows));
    PointList {
        columns,
        labels: section.axes.len(),
        groups: Vec::new(),
        title: format.label(MEDIAN),
    }
}

impl PointList {
    /// Returns the number of points.
    pub(crate) fn points(&self) -> usize {
        self.columns.first().map_or(0, |column| column.cells.len())
    }

    /// Divides a long list by the groups of its points.
    pub(crate) fn divided<'a>(self, groups: impl Iterator<Item = Option<&'a str>>) -> Self {
        let groups = groups::divide(groups);
        let title = self.title.clone();
        if groups.is_empty() { self } else { Self { groups, ..self.with_median_as(&title) } }
    }

    /// Changes the title of the column of medians.
    pub(crate) fn with_median_as(mut self, title: &str) -> Self {
        let medians = self.columns.iter_mut().find(|column| column.header.title == MEDIAN);
        if let Some(column) = medians {
            column.header.title = title.to_owned();
        }
        self
    }

    /// Replaces the columns of levels.
    pub(crate) fn with_labels(mut self, labels: Vec<Column>) -> Self {
        let count = labels.len();
        self.columns.splice(..self.labels.min(self.columns.len()), labels);
        Self { labels: count, ..self }
    }

    /// Adds a column after those of the levels.
    pub(crate) fn with_column(mut self, title: &str, cells: Vec<TableCell>) -> Self {
        let column = Column { header: ColumnHeader::right(title), cells };
        self.columns.insert(self.labels.min(self.columns.len()), column);
        self
    }

    /// Renders the columns that fit the page.
    pub(crate) fn text(&self, page: Page) -> String {
        let mut columns = self.columns.clone();
        fit(&mut columns, page);
        let headers: Vec<ColumnHeader> =
            columns.iter().map(|column| column.header.clone()).collect();
        let line = |at: usize| columns.iter().map(|column| column.cells[at].clone()).collect();
        let lines: Vec<Vec<TableCell>> = (0..self.points()).map(line).collect();
        match self.groups.as_slice() {
            [] => page.table(&headers, lines),
            groups => groups::text(groups, &headers, &lines, page),
        }
    }
}

impl Column {
    fn width(&self) -> usize {
        let widths = self.cells.iter().map(|cell| cell.text.chars().count());
        widths.fold(self.header.title.chars().count(), usize::max)
    }
}

/// Returns the column of a factor's levels.
pub(crate) fn factor(axis: &Axis, points: &[Point]) -> Column {
    let is_number = axis.levels.iter().all(|level| level.number().is_some());
    let header = if is_number {
        ColumnHeader::right(&axis.factor)
    } else {
        ColumnHeader::left(&axis.factor)
    };
    Column { header, cells: points.iter().map(|p| p.text(&axis.factor).into()).collect() }
}

/// Omits optional columns until the others fit the page.
fn fit(columns: &mut Vec<Column>, page: Page) {
    for optional in OPTIONAL {
        let width: usize = columns.iter().map(|column| column.width() + COLUMN_GAP).sum();
        if width <= page.columns() + COLUMN_GAP {
            return;
        }
        columns.retain(|column| column.header.title != optional);
    }
}

/// Returns the columns of interval, MAD and, if needed, of the median with void samples and the minimum of short
/// times.
fn spread(rows: &[Option<&Row>], format: &ValueFormat<'_>) -> Vec<Column> {
    let estimate = |row: &Option<&Row>| row.and_then(|row| row.estimate);
    let of = |text: &dyn Fn(Estimate) -> String| -> Vec<TableCell> {
        rows.iter().map(|row| estimate(row).map(text).unwrap_or_default().into()).collect()
    };
    let mut columns = Vec::new();
    let known: Vec<Estimate> = rows.iter().filter_map(estimate).collect();
    let has = |kind| known.iter().any(|e: &Estimate| e.interval.kind == kind);
    let has_interval = has(IntervalKind::Confidence);
    let title = match (has_interval, has(IntervalKind::Range)) {
        (true, true) => Some("95% interval or range"),
        (true, false) => Some("95% interval"),
        (false, true) => Some("range"),
        (false, false) => None,
    };
    if let Some(title) = title {
        columns.push(Column {
            header: ColumnHeader::right(title),
            cells: of(&|e| format.interval(&e)),
        });
        let mad = |e: Estimate| format.number(e.mad, Some(e.mad / 10.0).filter(|m| *m > 0.0));
        columns.push(Column { header: ColumnHeader::right("MAD"), cells: of(&mad) });
    }
    let with_voids = |row: &Option<&Row>| row.and_then(|row| row.with_voids);
    if rows.iter().any(|row| with_voids(row).is_some()) {
        let median = |row| with_voids(row).map(|e| format.number(e.median, half(&e)));
        columns.push(Column {
            header: ColumnHeader::right(WITH_VOIDS),
            cells: rows.iter().map(|row| median(row).unwrap_or_default().into()).collect(),
        });
    }
    let is_short =
        |row: &Row| row.estimate.is_some_and(|e| nanoseconds(row, e.median, format) < MAX_SHORT);
    if rows.iter().flatten().any(|row| is_short(row)) {
        let minimum = |row: &Option<&Row>| -> TableCell {
            let row = row.filter(|row| is_short(row));
            let estimate = row.and_then(|row| row.estimate);
            let text = estimate.map(|e| format.number(e.minimum, half(&e)));
            text.unwrap_or_default().into()
        };
        columns.push(Column {
            header: ColumnHeader::right("min"),
            cells: rows.iter().map(minimum).collect(),
        });
    }
    columns
}

/// Converts a median to ns; infinity if it is not a time.
fn nanoseconds(row: &Row, median: f64, format: &ValueFormat<'_>) -> f64 {
    let at = |hertz: Option<f64>| hertz.map_or(f64::INFINITY, |hertz| median * 1e9 / hertz);
    match format.unit {
        "ns" => median,
        "s" => median * 1e9,
        "ticks" => at(row.tsc_hertz),
        "cycles" => at(row.core_hertz),
        _ => f64::INFINITY,
    }
}

/// Returns the columns of rounds and, if any, void samples and outliers.
fn counts(rows: &[Option<&Row>]) -> Vec<Column> {
    let column = |title: &str, count: &dyn Fn(&Row) -> usize| {
        let cell = |row: &Option<&Row>| {
            let emphasis = if title == "rounds" { Emphasis::Plain } else { Emphasis::Doubtful };
            TableCell::new(row.map(|row| count(row).to_string()).unwrap_or_default(), emphasis)
        };
        Column { header: ColumnHeader::right(title), cells: rows.iter().map(cell).collect() }
    };
    let any = |count: &dyn Fn(&Row) -> usize| rows.iter().flatten().any(|row| count(row) > 0);
    let mut columns = vec![column("rounds", &|row| row.rounds)];
    if any(&|row| row.voids) {
        columns.push(column("void", &|row| row.voids));
    }
    if any(&|row| row.outliers.len()) {
        columns.push(column("outliers", &|row| row.outliers.len()));
    }
    columns
}
