//! Plots: curves over two axes.

use lab::journal::Run;
use lab::point::Level;
use lab::summary::Summary;

use super::curve::{Curve, Curves, Mark};
use super::picture::{facts, label};
use super::select::Selection;
use super::{FigureError, cdf, line};
use crate::format::Scale;
use lab::figure::{Axis, Figure, Y};

/// Curves of medians or shares, in units that read well.
#[derive(Debug, Clone, PartialEq)]
pub struct Plot {
    /// The name of its files.
    pub id: String,
    /// What stands above it.
    pub title: String,
    /// What x is: a factor, or the metric of a distribution.
    pub x_label: String,
    /// How x is laid out.
    pub x_scale: Axis,
    /// The levels along x, from left to right; none in a distribution.
    pub x_levels: Vec<Level>,
    /// The metric with its unit.
    pub y_label: String,
    /// How y is laid out.
    pub y_scale: Axis,
    /// What the curves' names are levels of; empty where there is one curve.
    pub series: String,
    /// The curves, in the order of the series' levels.
    pub curves: Vec<Curve>,
    /// Horizontal lines: what they are, and where they lie on y.
    pub lines: Vec<(String, f64)>,
    /// What stands under it: host, processor, rounds, noise floor, what is missing and why.
    pub notes: Vec<String>,
}

/// What a figure of curves draws of a summary.
pub(super) fn plot(
    figure: &Figure,
    run: &Run,
    summary: &Summary,
    selection: &Selection<'_>,
) -> Result<Plot, FigureError> {
    let mut plot = match figure.y {
        Y::Median => medians(figure, run, summary, selection)?,
        Y::Cdf => distribution(figure, run, summary, selection)?,
    };
    check_logarithms(figure, &plot)?;
    plot.notes.splice(0..0, facts(run, summary, selection));
    Ok(plot)
}

fn medians(
    figure: &Figure,
    run: &Run,
    summary: &Summary,
    selection: &Selection<'_>,
) -> Result<Plot, FigureError> {
    let Curves { mut curves, levels, x_scale, remarks } =
        Curves::of(figure, &summary.metric, selection)?;
    let unit = &summary.record.unit;
    let (lines, missing) = lines(figure, run, summary)?;
    let values = curves.iter().flat_map(|curve| curve.marks.iter().map(|mark| mark.y));
    let values: Vec<f64> = values.chain(lines.iter().map(|(_, value)| *value)).collect();
    let largest = values.iter().copied().fold(0.0, f64::max);
    let scale = Scale::common(values, unit).unwrap_or_else(|| Scale::of(largest, unit));
    for mark in curves.iter_mut().flat_map(|curve| &mut curve.marks) {
        mark.y = scale.scaled(mark.y);
        mark.interval = mark.interval.map(|(low, high)| (scale.scaled(low), scale.scaled(high)));
    }
    Ok(Plot {
        id: figure.id.clone(),
        title: figure.title.clone(),
        x_label: figure.x.clone(),
        x_scale,
        x_levels: levels,
        y_label: label(&summary.metric, &scale),
        y_scale: figure.y_scale.unwrap_or(Axis::Linear),
        series: figure.series.clone().unwrap_or_default(),
        curves,
        lines: lines.into_iter().map(|(name, value)| (name, scale.scaled(value))).collect(),
        notes: remarks.into_iter().chain(missing).collect(),
    })
}

fn distribution(
    figure: &Figure,
    run: &Run,
    summary: &Summary,
    selection: &Selection<'_>,
) -> Result<Plot, FigureError> {
    let mut curves = cdf::curves(figure, run, summary, selection)?;
    let unit = &summary.record.unit;
    let values: Vec<f64> =
        curves.iter().flat_map(|curve| curve.marks.iter().map(|mark| mark.x)).collect();
    let largest = values.iter().copied().fold(0.0, f64::max);
    let scale = Scale::common(values, unit).unwrap_or_else(|| Scale::of(largest, unit));
    for mark in curves.iter_mut().flat_map(|curve| &mut curve.marks) {
        mark.x = scale.scaled(mark.x);
    }
    let mut notes = vec!["all rounds' histograms together".to_owned()];
    if curves.iter().filter_map(|curve| curve.marks.last()).any(|mark| mark.y == cdf::END) {
        notes[0] += &format!("; curves of many values end at {}%", cdf::END * 100.0);
    }
    Ok(Plot {
        id: figure.id.clone(),
        title: figure.title.clone(),
        x_label: label(&summary.metric, &scale),
        x_scale: figure.x_scale.unwrap_or(Axis::Log10),
        x_levels: Vec::new(),
        y_label: "share of values up to x".into(),
        y_scale: figure.y_scale.unwrap_or(Axis::Linear),
        series: figure.series.clone().unwrap_or_default(),
        curves,
        lines: Vec::new(),
        notes,
    })
}

/// The lines that can be drawn, and what is to be said of those that cannot.
type Lines = (Vec<(String, f64)>, Vec<String>);

fn lines(figure: &Figure, run: &Run, summary: &Summary) -> Result<Lines, FigureError> {
    let (mut lines, mut missing) = (Vec::new(), Vec::new());
    for line in &figure.lines {
        let own = (summary.metric.as_str(), summary.record.unit.as_str());
        match line::value(figure, line, run, own) {
            Ok(value) => lines.push((line.label.clone(), value)),
            // A limit that was not measured costs its line, not the figure.
            Err(FigureError::Summary { why, .. }) => {
                missing.push(format!("no line '{}': {why}", line.label));
            }
            Err(FigureError::Nothing { why, .. }) => {
                missing.push(format!("no line '{}': {why}", line.label));
            }
            Err(fault) => return Err(fault),
        }
    }
    Ok((lines, missing))
}

/// A logarithmic axis needs values above zero; x of medians was checked with its levels.
fn check_logarithms(figure: &Figure, plot: &Plot) -> Result<(), FigureError> {
    let logarithmic = |scale| matches!(scale, Axis::Log2 | Axis::Log10);
    let marks = || plot.curves.iter().flat_map(|curve| &curve.marks);
    let fault = |axis, label: &str, value: f64| FigureError::NoLogarithm {
        figure: figure.id.clone(),
        what: format!("{label} = {value}"),
        axis,
        instead: "linear",
    };
    let low = |scale, value: f64| logarithmic(scale) && value <= 0.0;
    let low_end = |mark: &Mark| mark.interval.map_or(mark.y, |(low, _)| low.min(mark.y));
    if let Some(y) = marks().map(low_end).find(|y| low(plot.y_scale, *y)) {
        return Err(fault("y_scale", &plot.y_label, y));
    }
    let x = marks().map(|mark| mark.x).find(|x| low(plot.x_scale, *x));
    match x {
        Some(x) => Err(fault("x_scale", &plot.x_label, x)),
        None => Ok(()),
    }
}
