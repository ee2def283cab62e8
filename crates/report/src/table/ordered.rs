//! The list of an experiment's points in a requested order.

use lab::point::Point;
use lab::table::{ColumnHeader, TableCell};

use super::cell::{BestSelector, Rows, ValueCell, ValueFormat, aligned};
use super::notes::{Notes, difference};
use super::order::RowOrder;
use super::point_list::{Column, MEDIAN, factor, point_list};
use super::section::{Section, whole};
use super::show::{ShownExperiment, ShownTable, TableContent, caption};

/// Maximum number of factors that have columns.
const MAX_LABELS: usize = 3;

impl ShownExperiment<'_> {
    /// Returns the list of all points in a requested order, with the metric that they are sorted by.
    pub(super) fn ordered_table(
        &self,
        mut points: Vec<&Point>,
        order: &RowOrder<'_>,
        rows: &Rows<'_>,
        selector: &BestSelector<'_>,
        notes: &mut Notes,
    ) -> ShownTable {
        points.dedup();
        let section = whole(&points, self.experiment);
        let all = points.len();
        order.apply(&mut points, &rows.values().copied().collect::<Vec<_>>());
        let format = |rows: &Rows<'_>, unit| {
            let shown = points.iter().filter_map(|point| rows.get(*point).copied());
            ValueFormat::of_rows(shown, unit)
        };
        let shown: Vec<Point> = points.iter().copied().cloned().collect();
        let values = format(rows, &self.summary.record.unit);
        let title = match order.other_metric() {
            Some(_) => values.label(&self.summary.metric),
            None => values.label(MEDIAN),
        };
        let list = point_list(&section, &shown, rows, &values, selector, notes);
        let mut list = list.with_median_as(&title);
        let mut caption = caption(&section, &values);
        if section.axes.len() > MAX_LABELS {
            list = list.with_labels(self.labels(&section, order, &shown));
            caption = "points by their differences from the baseline".into();
        }
        if let Some(other) = order.other_metric() {
            let rows: Rows<'_> = other.rows.iter().map(|row| (&row.point, row)).collect();
            let format = format(&rows, &other.record.unit);
            let cell = |point: &&Point| {
                // A point without values of this metric may have values of the shown one.
                let row = rows.get(*point).copied().filter(|row| row.estimate.is_some());
                row.map(|row| ValueCell::new(Some(row), false, &format, notes))
            };
            let cells: Vec<Option<ValueCell>> = points.iter().map(cell).collect();
            list = list.with_column(&format.label(&other.metric), aligned(&cells));
        }
        ShownTable {
            caption: Some(format!("{caption}; {}", order.caption(all))),
            part: String::new(),
            content: TableContent::List(list),
        }
    }

    /// Returns the columns that name points of many factors: the sorted factor, and the differences from the baseline.
    fn labels(&self, section: &Section, order: &RowOrder<'_>, points: &[Point]) -> Vec<Column> {
        let sorted =
            section.axes.iter().filter(|axis| Some(axis.factor.as_str()) == order.factor());
        let mut labels: Vec<Column> = sorted.map(|axis| factor(axis, points)).collect();
        let baseline = self.experiment.map(|it| it.baseline.clone()).unwrap_or_default();
        let defaults = self.experiment.map(|it| it.defaults.clone()).unwrap_or_default();
        let text = |point: &Point| difference(&point.without_levels(&defaults), &baseline);
        let cells: Vec<TableCell> = points.iter().map(|point| text(point).into()).collect();
        labels.push(Column { header: ColumnHeader::left("point"), cells });
        labels
    }
}
