//! Figures of a page: the data that the scripts draw.

use std::collections::BTreeMap;
use std::rc::Rc;

use lab::figure::{Axis, Figure};
use lab::format;
use lab::journal::Run;
use lab::point::Point;
use lab::statistics::{IntervalKind, Ratio, Resolution, resolve};
use lab::summary::{Row, Summary, pairs};
use serde::Serialize;

use super::published::PublishedData;
use super::samples::point_indices;
use super::short;
use crate::figure::{Curve, Grid, Mark, Picture, Plot, Summaries, picture};

/// Maximum number of ratios of a figure; one with more shows absolute values only.
const MAX_RATIOS: usize = 4000;

/// Data of a figure of curves.
#[derive(Serialize)]
pub(super) struct FigureData {
    pub(super) id: String,
    pub(super) title: String,
    pub(super) x: AxisData,
    pub(super) y: AxisData,
    /// Factor whose levels name the curves; empty for a single curve.
    pub(super) series: String,
    pub(super) curves: Vec<CurveData>,
    /// Label, position and index of the side of reference lines.
    pub(super) lines: Vec<(String, f64, usize)>,
    /// Factor from a recorded value to its position on y.
    pub(super) factor: f64,
    /// Whether samples have these values, which those converted into another unit are not.
    pub(super) has_samples: bool,
    pub(super) published: PublishedData,
    pub(super) ratios: Vec<RatioData>,
}

/// Axis of a figure.
#[derive(Clone, PartialEq, Serialize)]
pub(super) struct AxisData {
    pub(super) label: String,
    pub(super) scale: &'static str,
    /// Unit of reference lines across y; empty along x, whose label states it.
    unit: String,
    /// Texts of the levels along x, in order; none in a distribution.
    pub(super) levels: Vec<String>,
    /// Numbers of these levels; empty if one has none.
    pub(super) numbers: Vec<f64>,
    /// Whether the levels are lengths in bytes.
    bytes: bool,
}

/// Curve of a figure.
#[derive(Serialize)]
pub(super) struct CurveData {
    pub(super) name: String,
    /// Level of the series.
    pub(super) level: String,
    /// Index of the side of a comparison.
    pub(super) side: usize,
    /// Index of the colour.
    pub(super) colour: usize,
    pub(super) metric: String,
    /// Index of the samples in the data of the page.
    samples: usize,
    pub(super) marks: Vec<MarkData>,
}

/// Mark of a curve: x, y, both ends of the interval, index of the point in the samples, and the value as text.
#[derive(Serialize)]
pub(super) struct MarkData(
    pub(super) f64,
    pub(super) f64,
    pub(super) Option<f64>,
    pub(super) Option<f64>,
    Option<usize>,
    String,
);

/// Ratio of two marks, counted over all curves: both marks, ratio, both ends of its interval (`None` if open), whether
/// it is resolved, the number of rounds, and what the ends are: an interval, a range, or nothing.
#[derive(Serialize)]
pub(super) struct RatioData(
    pub(super) usize,
    pub(super) usize,
    f64,
    Option<f64>,
    Option<f64>,
    u8,
    usize,
    IntervalKind,
);

/// Figure of a page.
pub(super) enum PageFigure {
    /// Drawn by the scripts.
    Curves { data: Box<FigureData>, notes: Vec<String> },
    /// A table.
    Grid(Grid),
    /// Not drawn, for this reason.
    Missing(String),
}

/// Fills the figures of a run.
pub(super) struct FigureMaker<'a> {
    pub(super) summaries: Summaries<'a>,
    experiments: &'a [String],
    /// Index of the samples of the first experiment in the data of the page.
    first_samples: usize,
    /// Indices of points in the samples, by experiment.
    indices: BTreeMap<String, BTreeMap<&'a Point, usize>>,
}

impl<'a> FigureMaker<'a> {
    pub(super) fn new(run: &'a Run, experiments: &'a [String], first_samples: usize) -> Self {
        Self {
            summaries: Summaries::new(run),
            experiments,
            first_samples,
            indices: BTreeMap::new(),
        }
    }

    /// Returns a figure with the values of the run.
    pub(super) fn figure(&mut self, figure: &Figure) -> PageFigure {
        match picture(figure, &self.summaries) {
            Ok(Picture::Curves(plot)) => {
                let data = Box::new(self.data(figure, &plot));
                PageFigure::Curves { data, notes: plot.notes }
            }
            Ok(Picture::Grid(grid)) => PageFigure::Grid(grid),
            Err(why) => PageFigure::Missing(why.to_string()),
        }
    }

    fn data(&mut self, figure: &Figure, plot: &Plot) -> FigureData {
        let numbers: Option<Vec<f64>> = plot.x_levels.iter().map(|level| level.number()).collect();
        let has_unit =
            |level: &&lab::point::Level| level.number().is_some() && level.count().is_none();
        FigureData {
            id: plot.id.clone(),
            title: plot.title.clone(),
            x: AxisData {
                label: plot.x_label.clone(),
                scale: scale_name(plot.x_scale),
                unit: String::new(),
                levels: plot.x_levels.iter().map(|level| level.as_str().into()).collect(),
                numbers: numbers.unwrap_or_default(),
                bytes: plot.x_levels.iter().any(|level| has_unit(&level)),
            },
            y: AxisData {
                label: plot.y_label.clone(),
                scale: scale_name(plot.y_scale),
                unit: plot.scale.unit().into(),
                levels: Vec::new(),
                numbers: Vec::new(),
                bytes: false,
            },
            series: plot.series.clone(),
            curves: plot
                .curves
                .iter()
                .enumerate()
                .map(|(at, it)| self.curve(figure, it, at))
                .collect(),
            lines: plot.lines.iter().map(|(name, y)| (name.clone(), short(*y), 0)).collect(),
            factor: plot.scale.scaled(1.0),
            has_samples: figure.unit.is_none(),
            published: PublishedData::new(&plot.published),
            ratios: self.ratios(figure, &plot.curves),
        }
    }

    fn summary(&self, figure: &Figure, metric: &str) -> Option<Rc<Summary>> {
        let unit = figure.unit.as_deref();
        self.summaries.in_unit(&figure.experiment, Some(metric), unit).ok()
    }

    fn curve(&mut self, figure: &Figure, curve: &Curve, colour: usize) -> CurveData {
        let experiment = self.experiments.iter().position(|id| *id == figure.experiment);
        let run = self.summaries.run();
        let indices = self.indices.entry(figure.experiment.clone());
        let indices = indices.or_insert_with_key(|id| point_indices(run, id)).clone();
        let summary = self.summary(figure, &curve.metric);
        let rows: BTreeMap<&Point, &Row> =
            summary.iter().flat_map(|it| &it.rows).map(|row| (&row.point, row)).collect();
        let unit = summary.as_ref().map_or("", |summary| summary.record.unit.as_str());
        let mark = |mark: &Mark| {
            let row = mark.point.as_ref().and_then(|point| rows.get(point));
            MarkData(
                short(mark.x),
                short(mark.y),
                mark.interval.map(|(low, _)| short(low)),
                mark.interval.map(|(_, high)| short(high)),
                mark.point.as_ref().and_then(|point| indices.get(point).copied()),
                row.map_or_else(String::new, |row| row_text(row, unit)),
            )
        };
        let marks = curve.marks.iter().map(mark).collect();
        CurveData {
            name: curve.name.clone(),
            level: curve.level.clone(),
            side: 0,
            colour,
            metric: curve.metric.clone(),
            samples: self.first_samples + experiment.unwrap_or_default(),
            marks,
        }
    }

    /// Returns the ratios within rounds of every two marks at one x, or of a single curve of every two marks.
    fn ratios(&self, figure: &Figure, curves: &[Curve]) -> Vec<RatioData> {
        let marks =
            curves.iter().flat_map(|curve| curve.marks.iter().map(move |mark| (curve, mark)));
        let marks: Vec<(&Curve, &Mark)> = marks.collect();
        let is_single = curves.len() == 1;
        let is_pair = |(a, b): &(usize, usize)| {
            let ((of_a, a), (of_b, b)) = (marks[*a], marks[*b]);
            of_a.metric == of_b.metric && (is_single || a.x == b.x)
        };
        let all = (0..marks.len()).flat_map(|a| (a + 1..marks.len()).map(move |b| (a, b)));
        let chosen: Vec<(usize, usize)> = all.filter(is_pair).take(MAX_RATIOS + 1).collect();
        if chosen.len() > MAX_RATIOS {
            return Vec::new();
        }
        let ratio = |(a, b): (usize, usize)| {
            let metric = &marks[a].0.metric;
            let summary = self.summary(figure, metric)?;
            let (above, below) = (marks[a].1.point.as_ref()?, marks[b].1.point.as_ref()?);
            let (ratio, resolution) = ratio_of(&summary, above, below)?;
            let end = |end: f64| end.is_finite().then(|| short(end));
            let is_resolved = !matches!(resolution, Resolution::Unresolved { .. });
            let (low, high) = (end(ratio.interval.low), end(ratio.interval.high));
            Some(RatioData(
                a,
                b,
                short(ratio.ratio),
                low,
                high,
                is_resolved.into(),
                ratio.rounds,
                ratio.interval.kind,
            ))
        };
        chosen.into_iter().filter_map(ratio).collect()
    }
}

/// Returns the ratio of two points within rounds, and whether it is resolved.
fn ratio_of(summary: &Summary, above: &Point, below: &Point) -> Option<(Ratio, Resolution)> {
    let points = &summary.observed.points;
    let pairs = pairs(points.get(above)?, points.get(below)?);
    let ratio = pairs.ratio().ok()?;
    let floor = summary.floors.near(&[above, below], pairs.state);
    Some((ratio, resolve(&ratio, floor)))
}

/// States the value of a row with its interval, and what its rounds are like.
fn row_text(row: &Row, unit: &str) -> String {
    let Some(estimate) = row.estimate else { return String::new() };
    let mut text = format::interval(estimate.median, &estimate.interval, unit);
    text += &format!(", {}", format::count(row.rounds, "round"));
    if let Some(lag_1) = estimate.lag_1 {
        text += &format!(", lag-1 {lag_1:.2}");
    }
    if row.voids > 0 {
        text += &format!(", {}", format::count(row.voids, "void sample"));
    }
    text
}

fn scale_name(axis: Axis) -> &'static str {
    match axis {
        Axis::Log2 => "log2",
        Axis::Log10 => "log10",
        Axis::Linear => "linear",
        Axis::Category => "category",
    }
}
