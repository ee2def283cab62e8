//! Plots: curves over two axes.

use lab::figure::{Axis, Extremum, Figure, ReferenceLine, Y};
use lab::point::Level;
use lab::summary::Summary;

use super::curve::{Curve, Curves, Mark};
use super::notes::provenance;
use super::published::{PlotAxes, Published, absolute};
use super::select::{Selection, summary};
use super::{FigureError, Summaries, ccdf};
use lab::format::Scale;

/// A plot ready to be drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct Plot {
    /// Base name of its files.
    pub id: String,
    /// The title.
    pub title: String,
    /// Label of x: a factor, or the metric of a distribution.
    pub x_label: String,
    /// Scale of x.
    pub x_scale: Axis,
    /// Levels along x from left to right; empty for a distribution.
    pub x_levels: Vec<Level>,
    /// The metric with its unit.
    pub y_label: String,
    /// Scale of y.
    pub y_scale: Axis,
    /// Factor whose levels name the curves; empty for a single curve.
    pub series: String,
    /// Curves in the order of the levels of the series.
    pub curves: Vec<Curve>,
    /// Scale of the values: those of y, or of x in a distribution.
    pub scale: Scale,
    /// Horizontal reference lines: label and position on y.
    pub lines: Vec<(String, f64)>,
    /// Published values, in the unit of the y axis.
    pub published: Published,
    /// Notes: host, CPU, rounds, noise floor, missing values with their reasons.
    pub notes: Vec<String>,
}

/// Returns the plot of a figure of curves.
pub(super) fn plot(
    figure: &Figure,
    summaries: &Summaries,
    summary: &Summary,
    selection: &Selection<'_>,
) -> Result<Plot, FigureError> {
    let mut plot = match figure.y {
        Y::Median => medians(figure, summaries, summary, selection)?,
        Y::Ccdf => distribution(figure, summaries, summary, selection)?,
    };
    check_logarithms(figure, &plot)?;
    plot.notes.splice(0..0, provenance(summaries.run(), summary, selection));
    Ok(plot)
}

fn medians(
    figure: &Figure,
    summaries: &Summaries,
    summary: &Summary,
    selection: &Selection<'_>,
) -> Result<Plot, FigureError> {
    let Curves { mut curves, levels, x_scale, mut notes } =
        Curves::new(figure, (&summary.metric, &summary.metric), selection)?;
    for metric in &figure.more_metrics {
        let more = more_curves(figure, summaries, (metric, &summary.metric))?;
        curves.extend(more.curves);
        let is_new = |note: &String| !notes.contains(note);
        let new: Vec<_> = more.notes.into_iter().filter(is_new).collect();
        notes.extend(new);
    }
    let unit = &summary.record.unit;
    let (lines, missing) = lines(figure, summaries, summary)?;
    let values = curves.iter().flat_map(|curve| curve.marks.iter().map(|mark| mark.y));
    let mut values: Vec<f64> = values.chain(lines.iter().map(|(_, value)| *value)).collect();
    if curves.is_empty() {
        values.extend(absolute(figure).map(|value| value.value));
        let why = selection.absence(figure, summaries.run());
        notes.extend(why.map(|why| format!("published values only: {why}")));
    }
    let largest = values.iter().copied().fold(0.0, f64::max);
    let scale = Scale::common(values, unit).unwrap_or_else(|| Scale::of(largest, unit));
    for mark in curves.iter_mut().flat_map(|curve| &mut curve.marks) {
        mark.y = scale.scaled(mark.y);
        mark.interval = mark.interval.map(|(low, high)| (scale.scaled(low), scale.scaled(high)));
    }
    let (metric, levels_of_x) = (&summary.metric, &levels);
    let axes = PlotAxes { metric, unit, levels: levels_of_x, x_scale, scale: &scale };
    let published = Published::new(figure, &curves, &axes);
    Ok(Plot {
        id: figure.id.clone(),
        title: figure.title.clone(),
        x_label: factor_label(&figure.x, figure.x_unit),
        x_scale,
        x_levels: levels,
        y_label: scale.label(&figure.axis_label(&summary.metric)),
        y_scale: figure.y_scale.unwrap_or(Axis::Linear),
        series: figure.series.clone().unwrap_or_default(),
        curves,
        lines: lines.into_iter().map(|(name, value)| (name, scale.scaled(value))).collect(),
        published,
        scale,
        notes: notes.into_iter().chain(missing).collect(),
    })
}

/// Returns a factor with the unit of its levels, e.g. `load in Gbps`.
pub(super) fn factor_label(factor: &str, unit: &str) -> String {
    if unit.is_empty() { factor.into() } else { format!("{factor} in {unit}") }
}

/// Returns the curves of a further metric than the first one.
fn more_curves(
    figure: &Figure,
    summaries: &Summaries,
    (metric, main): (&str, &str),
) -> Result<Curves, FigureError> {
    let summary = summary(figure, summaries, &figure.experiment, Some(metric))?;
    let selection = Selection::new(figure, summaries.run(), &summary)?;
    Curves::new(figure, (metric, main), &selection)
}

fn distribution(
    figure: &Figure,
    summaries: &Summaries,
    summary: &Summary,
    selection: &Selection<'_>,
) -> Result<Plot, FigureError> {
    let mut curves = ccdf::curves(figure, summaries.run(), summary, selection)?;
    let unit = &summary.record.unit;
    let values: Vec<f64> =
        curves.iter().flat_map(|curve| curve.marks.iter().map(|mark| mark.x)).collect();
    let largest = values.iter().copied().fold(0.0, f64::max);
    let scale = Scale::common(values, unit).unwrap_or_else(|| Scale::of(largest, unit));
    for mark in curves.iter_mut().flat_map(|curve| &mut curve.marks) {
        mark.x = scale.scaled(mark.x);
    }
    Ok(Plot {
        id: figure.id.clone(),
        title: figure.title.clone(),
        // A distribution has all percentiles.
        x_label: scale.label(&figure.label(&summary.metric).quantity),
        x_scale: figure.x_scale.unwrap_or(Axis::Log10),
        x_levels: Vec::new(),
        y_label: "share of values above x".into(),
        y_scale: figure.y_scale.unwrap_or(Axis::Log10),
        series: figure.series.clone().unwrap_or_default(),
        curves,
        scale,
        lines: Vec::new(),
        published: Published::default(),
        notes: vec!["histograms of all rounds merged; at 0.01 x is the 99th percentile".into()],
    })
}

/// Reference lines with their values, and notes on those that have none.
type Lines = (Vec<(String, f64)>, Vec<String>);

fn lines(figure: &Figure, summaries: &Summaries, summary: &Summary) -> Result<Lines, FigureError> {
    let (mut lines, mut missing) = (Vec::new(), Vec::new());
    for line in &figure.lines {
        match line_value(figure, line, summaries, (&summary.metric, &summary.record.unit)) {
            Ok(value) => lines.push((line.label.clone(), value)),
            // A limit that was not measured omits its line only.
            Err(FigureError::Summary { why, .. }) => {
                missing.push(format!("no line '{}': {why}", line.label));
            }
            Err(FigureError::Nothing { why, .. }) => {
                missing.push(format!("no line '{}': {why}", line.label));
            }
            Err(error) => return Err(error),
        }
    }
    Ok((lines, missing))
}

/// Returns the value of a reference line in the unit of the figure.
fn line_value(
    figure: &Figure,
    line: &ReferenceLine,
    summaries: &Summaries,
    (metric, unit): (&str, &str),
) -> Result<f64, FigureError> {
    let experiment = line.experiment.as_deref().unwrap_or(&figure.experiment);
    let is_same = experiment == figure.experiment;
    let metric = line.metric.as_deref().or(is_same.then_some(metric));
    let summary = summary(figure, summaries, experiment, metric)?;
    if summary.record.unit != unit {
        let what = format!("line '{}' is in {}; expected {unit}", line.label, summary.record.unit);
        return Err(FigureError::declaration(figure, what));
    }
    let rows = summary.rows.iter().filter(|row| line.filter.matches(&row.point));
    let medians = rows.filter_map(|row| Some(row.estimate?.median));
    let value = match line.of {
        Extremum::Largest => medians.max_by(f64::total_cmp),
        Extremum::Smallest => medians.min_by(f64::total_cmp),
    };
    value.ok_or_else(|| FigureError::Nothing {
        figure: figure.id.clone(),
        at: format!("line '{}' of {experiment}", line.label),
        why: "no matching point has a value; see 'tollgate show'".into(),
    })
}

/// Checks that no value on a logarithmic axis is zero or negative. Levels along x were checked before.
fn check_logarithms(figure: &Figure, plot: &Plot) -> Result<(), FigureError> {
    let is_log = |scale| matches!(scale, Axis::Log2 | Axis::Log10);
    let marks = || plot.curves.iter().flat_map(|curve| &curve.marks);
    let error = |axis, label: &str, value: f64| {
        FigureError::no_logarithm(figure, &format!("{label} = {value}"), axis)
    };
    let is_invalid = |scale, value: f64| is_log(scale) && value <= 0.0;
    let low_end = |mark: &Mark| mark.interval.map_or(mark.y, |(low, _)| low.min(mark.y));
    if let Some(y) = marks().map(low_end).find(|y| is_invalid(plot.y_scale, *y)) {
        return Err(error("y_scale", &plot.y_label, y));
    }
    match marks().map(|mark| mark.x).find(|x| is_invalid(plot.x_scale, *x)) {
        Some(x) => Err(error("x_scale", &plot.x_label, x)),
        None => Ok(()),
    }
}
