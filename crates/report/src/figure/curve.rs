//! Curves: medians with their intervals along x, one curve for each level of the series.

use lab::point::Level;
use lab::statistics::IntervalKind;
use lab::summary::Summary;

use super::FigureError;
use super::absent::Absent;
use super::select::Selection;
use lab::figure::{Axis, Figure};

/// One curve.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// The level of the series; empty where there is none.
    pub name: String,
    /// From left to right.
    pub marks: Vec<Mark>,
}

/// One value of a curve.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    /// The place on x: a number, or the index of the category.
    pub x: f64,
    /// In the unit of the axis.
    pub y: f64,
    /// The interval's ends; nothing for one round and inside a distribution.
    pub interval: Option<(f64, f64)>,
}

/// The curves of a selection, and what the intervals are.
pub(super) struct Curves {
    pub(super) curves: Vec<Curve>,
    /// The levels along x.
    pub(super) levels: Vec<Level>,
    pub(super) x_scale: Axis,
    /// What was not drawn and why, and what the bars are: for the notes.
    pub(super) remarks: Vec<String>,
}

impl Curves {
    pub(super) fn of(
        figure: &Figure,
        metric: &str,
        selection: &Selection<'_>,
    ) -> Result<Self, FigureError> {
        let levels = selection.levels(|(_, x)| x);
        let x_scale = figure.x_scale.unwrap_or_else(|| natural(&levels));
        let places = levels
            .iter()
            .enumerate()
            .map(|(index, level)| place(figure, x_scale, index, level))
            .collect::<Result<Vec<f64>, _>>()?;
        let curve = |series: &Level| {
            let mark = |(level, x): (&Level, &f64)| {
                let row = selection.rows.get(&(series.clone(), level.clone()))?;
                let estimate = row.estimate?;
                let single = estimate.interval.kind == IntervalKind::Single;
                let interval = (estimate.interval.low, estimate.interval.high);
                Some(Mark { x: *x, y: estimate.median, interval: (!single).then_some(interval) })
            };
            let marks = levels.iter().zip(&places).filter_map(mark).collect();
            Curve { name: series.to_string(), marks }
        };
        let mut curves: Vec<Curve> = selection.levels(|(s, _)| s).iter().map(curve).collect();
        curves.retain(|curve| !curve.marks.is_empty());
        let mut absent = Absent::default();
        absent.add(selection, metric);
        let remarks = bars(selection).into_iter().chain(absent.told()).collect();
        Ok(Self { curves, levels, x_scale, remarks })
    }
}

/// Lengths by powers of two, other numbers in proportion, names side by side.
fn natural(levels: &[Level]) -> Axis {
    let number = |level: &Level| level.number().is_some();
    let bytes = |level: &Level| number(level) && level.count().is_none();
    match levels {
        levels if !levels.iter().all(number) => Axis::Category,
        levels if levels.iter().any(bytes) => Axis::Log2,
        _ => Axis::Linear,
    }
}

/// Where a level lies on x.
fn place(figure: &Figure, scale: Axis, index: usize, level: &Level) -> Result<f64, FigureError> {
    if scale == Axis::Category {
        return Ok(index as f64);
    }
    let fault = |instead| FigureError::NoLogarithm {
        figure: figure.id.clone(),
        what: format!("{} = {level}", figure.x),
        axis: "x_scale",
        instead,
    };
    match (level.number(), scale) {
        (None, _) => Err(fault("category")),
        (Some(number), Axis::Log2 | Axis::Log10) if number <= 0.0 => Err(fault("linear")),
        (Some(number), _) => Ok(number),
    }
}

/// What the bars at the marks are.
fn bars(selection: &Selection<'_>) -> Option<String> {
    let kinds: Vec<_> =
        selection.rows.values().filter_map(|row| Some(row.estimate?.interval.kind)).collect();
    let is = |kind| kinds.contains(&kind);
    let interval = is(IntervalKind::Bootstrap) || is(IntervalKind::OrderStatistic);
    match (interval, is(IntervalKind::Range)) {
        (true, true) => Some("bars: 95% interval of the median; under 6 rounds the range".into()),
        (true, false) => Some("bars: 95% interval of the median".into()),
        (false, true) => Some("bars: range (under 6 rounds)".into()),
        (false, false) => None,
    }
}

/// The rounds that the values of a summary rest on: `12 rounds`, `10 to 30 rounds`.
pub(super) fn rounds(selection: &Selection<'_>, summary: &Summary) -> String {
    let environments = match summary.other_environments {
        0 => String::new(),
        others => format!("; {others} other environments not shown"),
    };
    crate::table::rounds_of(selection.rows.values().copied()) + &environments
}
