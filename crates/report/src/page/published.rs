//! Published values of a figure: the data that the scripts draw next to ours.

use std::collections::BTreeMap;

use serde::Serialize;

use super::short;
use crate::figure::{Published, PublishedCurve, PublishedMark, PublishedRatio};

/// Published values of a figure of curves.
#[derive(Default, Serialize)]
pub(super) struct PublishedData {
    /// Publications with their hardware, to which values refer by index.
    pub(super) sources: Vec<String>,
    pub(super) curves: Vec<PublishedCurveData>,
    /// Label and position of lines.
    pub(super) lines: Vec<(String, f64)>,
    pub(super) ratios: Vec<PublishedRatioData>,
}

/// Published values of a level of the series.
#[derive(Serialize)]
pub(super) struct PublishedCurveData {
    name: String,
    /// Level of the series.
    level: String,
    metric: String,
    /// Index of the colour.
    colour: usize,
    /// Whether the figure has a measured curve of this name.
    measured: bool,
    marks: Vec<PublishedMarkData>,
}

/// A published value: x, y, the value as text, index of the source, and the claim that states it.
#[derive(Serialize)]
struct PublishedMarkData(f64, f64, String, usize, String);

/// A published ratio of two points.
#[derive(Serialize)]
pub(super) struct PublishedRatioData {
    name: String,
    level: String,
    metric: String,
    colour: usize,
    /// Whether the figure has a measured curve of this name.
    measured: bool,
    x: f64,
    /// Level of the series and x of the base.
    base_level: String,
    base_x: f64,
    ratio: f64,
    source: usize,
    claim: String,
}

impl PublishedData {
    pub(super) fn new(published: &Published) -> Self {
        let line = |(label, value): &(String, f64)| (label.clone(), short(*value));
        Self {
            sources: published.sources.clone(),
            curves: published.curves.iter().map(PublishedCurveData::new).collect(),
            lines: published.lines.iter().map(line).collect(),
            ratios: published.ratios.iter().map(PublishedRatioData::new).collect(),
        }
    }

    /// Moves the values onto other axes; `colours` are those of the names of curves.
    pub(super) fn moved(
        mut self,
        x: impl Fn(f64) -> f64,
        y: impl Fn(f64) -> f64,
        colours: &mut BTreeMap<String, usize>,
    ) -> Self {
        let mut colour = |name: &String| {
            let next = colours.len();
            *colours.entry(name.clone()).or_insert(next)
        };
        for curve in &mut self.curves {
            curve.colour = colour(&curve.name);
            for mark in &mut curve.marks {
                (mark.0, mark.1) = (x(mark.0), y(mark.1));
            }
        }
        for ratio in &mut self.ratios {
            ratio.colour = colour(&ratio.name);
            (ratio.x, ratio.base_x) = (x(ratio.x), x(ratio.base_x));
        }
        for (_, value) in &mut self.lines {
            *value = y(*value);
        }
        self
    }
}

impl PublishedCurveData {
    fn new(curve: &PublishedCurve) -> Self {
        let mark = |it: &PublishedMark| {
            PublishedMarkData(
                short(it.x),
                short(it.y),
                it.text.clone(),
                it.source,
                it.claim.clone(),
            )
        };
        Self {
            name: curve.name.clone(),
            level: curve.level.clone(),
            metric: curve.metric.clone(),
            colour: curve.style,
            measured: curve.is_measured,
            marks: curve.marks.iter().map(mark).collect(),
        }
    }
}

impl PublishedRatioData {
    fn new(ratio: &PublishedRatio) -> Self {
        let (base_level, base_x) = &ratio.base;
        Self {
            name: ratio.name.clone(),
            level: ratio.level.clone(),
            metric: ratio.metric.clone(),
            colour: ratio.style,
            measured: ratio.is_measured,
            x: short(ratio.x),
            base_level: base_level.clone(),
            base_x: short(*base_x),
            ratio: short(ratio.ratio),
            source: ratio.source,
            claim: ratio.claim.clone(),
        }
    }
}
