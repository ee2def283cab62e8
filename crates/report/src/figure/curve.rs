//! Curves of medians with their intervals, one per level of the series.

use lab::figure::{Axis, Figure};
use lab::point::{Level, Point};
use lab::statistics::IntervalKind;

use super::FigureError;
use super::notes::{MissingValues, limit_notes};
use super::published::absolute;
use super::select::Selection;

/// One curve.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// Name in the legend: the level, and the metric if the figure has several.
    pub name: String,
    /// Level of the series; empty if the figure has no series.
    pub level: String,
    /// The metric.
    pub metric: String,
    /// Values from left to right.
    pub marks: Vec<Mark>,
}

/// One value of a curve.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    /// Position on x: a number, or the index of the category.
    pub x: f64,
    /// Value in the unit of the y axis.
    pub y: f64,
    /// Lower and upper end of the interval; `None` for a single round and in a distribution.
    pub interval: Option<(f64, f64)>,
    /// Point of which it is the median; `None` in a distribution.
    pub point: Option<Point>,
}

/// Curves of a selection with their x axis.
pub(super) struct Curves {
    pub(super) curves: Vec<Curve>,
    /// Levels along x.
    pub(super) levels: Vec<Level>,
    pub(super) x_scale: Axis,
    /// Notes on the error bars and on missing values.
    pub(super) notes: Vec<String>,
}

impl Curves {
    /// Returns the curves of a metric of a selection; `main` is the first metric of the figure.
    pub(super) fn new(
        figure: &Figure,
        (metric, main): (&str, &str),
        selection: &Selection<'_>,
    ) -> Result<Self, FigureError> {
        let levels = levels(figure, selection);
        let x_scale = figure.x_scale.unwrap_or_else(|| default_scale(&levels));
        let positions = levels
            .iter()
            .enumerate()
            .map(|(index, level)| position(figure, x_scale, index, level))
            .collect::<Result<Vec<f64>, _>>()?;
        let curve = |series: &Level| {
            let mark = |(level, x): (&Level, &f64)| {
                let row = selection.rows.get(&(series.clone(), level.clone()))?;
                let estimate = row.estimate?;
                let is_single = estimate.interval.kind == IntervalKind::Single;
                // There is no bar towards an open end.
                let end = |end: f64| if end.is_finite() { end } else { estimate.median };
                let interval = (end(estimate.interval.low), end(estimate.interval.high));
                let interval = (!is_single).then_some(interval);
                let point = Some(row.point.clone());
                Some(Mark { x: *x, y: estimate.median, interval, point })
            };
            let marks = levels.iter().zip(&positions).filter_map(mark).collect();
            let name = figure.curve_name(series.as_str(), metric, main);
            Curve { name, level: series.to_string(), metric: metric.into(), marks }
        };
        let mut curves: Vec<Curve> = selection.levels(|(s, _)| s).iter().map(curve).collect();
        curves.retain(|curve| !curve.marks.is_empty());
        let mut missing = MissingValues::default();
        missing.add(selection, metric);
        let notes = error_bar_note(selection).into_iter().chain(limit_notes(selection));
        let notes = notes.chain(missing.into_lines()).collect();
        Ok(Self { curves, levels, x_scale, notes })
    }
}

/// Returns the levels along x of a selection, and of published values.
fn levels(figure: &Figure, selection: &Selection<'_>) -> Vec<Level> {
    let mut levels = selection.levels(|(_, x)| x);
    let has_position = |level: &Level| match figure.x_scale {
        None | Some(Axis::Category) => true,
        Some(Axis::Linear) => level.number().is_some(),
        Some(Axis::Log2 | Axis::Log10) => level.number().is_some_and(|number| number > 0.0),
    };
    for value in absolute(figure) {
        if has_position(&value.x) && !levels.contains(&value.x) {
            levels.push(value.x.clone());
        }
    }
    crate::table::sort_levels(&mut levels);
    levels
}

/// Returns a binary logarithmic axis for lengths, a linear one for other numbers, else categories.
fn default_scale(levels: &[Level]) -> Axis {
    let is_number = |level: &Level| level.number().is_some();
    let is_length = |level: &Level| is_number(level) && level.count().is_none();
    match levels {
        levels if !levels.iter().all(is_number) => Axis::Category,
        levels if levels.iter().any(is_length) => Axis::Log2,
        _ => Axis::Linear,
    }
}

fn position(figure: &Figure, scale: Axis, index: usize, level: &Level) -> Result<f64, FigureError> {
    if scale == Axis::Category {
        return Ok(index as f64);
    }
    let what = format!("{} = {level}", figure.x);
    match (level.number(), scale) {
        (None, _) => Err(FigureError::declaration(
            figure,
            format!("{what} is not a number; use x_scale = \"category\""),
        )),
        (Some(number), Axis::Log2 | Axis::Log10) if number <= 0.0 => {
            Err(FigureError::no_logarithm(figure, &what, "x_scale"))
        }
        (Some(number), _) => Ok(number),
    }
}

fn error_bar_note(selection: &Selection<'_>) -> Option<String> {
    let kinds: Vec<_> =
        selection.rows.values().filter_map(|row| Some(row.estimate?.interval.kind)).collect();
    let has = |kind| kinds.contains(&kind);
    let has_interval = has(IntervalKind::Confidence);
    match (has_interval, has(IntervalKind::Range)) {
        (true, true) => Some("bars: 95% interval of the median; range if too few rounds".into()),
        (true, false) => Some("bars: 95% interval of the median".into()),
        (false, true) => Some("bars: range (too few rounds)".into()),
        (false, false) => None,
    }
}
