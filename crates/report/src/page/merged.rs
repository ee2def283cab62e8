//! Figures of several sides in one: curves of each side next to each other, over common axes.

use std::collections::BTreeMap;

use super::figure::{AxisData, FigureData};
use super::published::PublishedData;
use super::short;

/// Merges the same figure of several sides, each with its name, in the order of the sides; `None` without any.
pub(super) fn merged(sides: Vec<(usize, String, FigureData)>) -> Option<FigureData> {
    let axis = common_axis(sides.iter().map(|(_, _, figure)| &figure.x))?;
    let mut sides = sides.into_iter();
    let (side, name, first) = sides.next()?;
    let factor = first.factor;
    let mut colours: BTreeMap<String, usize> = BTreeMap::new();
    let mut all = FigureData {
        lines: Vec::new(),
        curves: Vec::new(),
        ratios: Vec::new(),
        x: axis,
        ..empty(&first)
    };
    for (side, name, figure) in std::iter::once((side, name, first)).chain(sides) {
        add(&mut all, figure, (side, &name), factor, &mut colours);
    }
    Some(all)
}

/// Returns a figure with the titles and axes of another.
fn empty(figure: &FigureData) -> FigureData {
    FigureData {
        id: figure.id.clone(),
        title: figure.title.clone(),
        x: figure.x.clone(),
        y: figure.y.clone(),
        series: figure.series.clone(),
        curves: Vec::new(),
        lines: Vec::new(),
        factor: figure.factor,
        has_samples: figure.has_samples,
        published: PublishedData::default(),
        ratios: Vec::new(),
    }
}

/// Returns the axis with the levels of all sides: numbers by size if every level of each is one, else in the order of the
/// sides.
fn common_axis<'a>(mut axes: impl Iterator<Item = &'a AxisData>) -> Option<AxisData> {
    let mut common = axes.next()?.clone();
    for axis in axes {
        // Levels of one side that are no numbers make categories of all.
        if axis.scale == "category" {
            common.scale = "category";
        }
        let is_numeric = |axis: &AxisData| axis.numbers.len() == axis.levels.len();
        let both_numeric = is_numeric(&common) && is_numeric(axis);
        for (at, level) in axis.levels.iter().enumerate() {
            if !common.levels.contains(level) {
                common.levels.push(level.clone());
                common.numbers.extend(axis.numbers.get(at).filter(|_| both_numeric));
            }
        }
        if both_numeric {
            let mut pairs: Vec<(f64, String)> =
                common.numbers.drain(..).zip(common.levels.drain(..)).collect();
            pairs.sort_by(|(a, _), (b, _)| a.total_cmp(b));
            (common.numbers, common.levels) = pairs.into_iter().unzip();
        } else {
            common.numbers.clear();
        }
    }
    Some(common)
}

/// Adds the curves of a side; values keep their unit, `factor` is that of the common axis.
fn add(
    all: &mut FigureData,
    figure: FigureData,
    (side, name): (usize, &str),
    factor: f64,
    colours: &mut BTreeMap<String, usize>,
) {
    let before = all.curves.iter().map(|curve| curve.marks.len()).sum::<usize>();
    let rescaled = |value: f64| short(value * factor / figure.factor);
    let is_distribution = figure.x.levels.is_empty();
    let position = |x: f64| match (all.x.scale, is_distribution) {
        (_, true) => rescaled(x),
        ("category", _) => {
            let level = level_at(&figure.x, x);
            let index = all.x.levels.iter().position(|one| Some(one) == level);
            index.map_or(x, |index| index as f64)
        }
        _ => x,
    };
    for mut curve in figure.curves {
        let next = colours.len();
        curve.colour = *colours.entry(curve.name.clone()).or_insert(next);
        curve.side = side;
        curve.name = format!("{name} {}", curve.name).trim_end().to_owned();
        for mark in &mut curve.marks {
            mark.0 = position(mark.0);
            if !is_distribution {
                mark.1 = rescaled(mark.1);
                (mark.2, mark.3) = (mark.2.map(rescaled), mark.3.map(rescaled));
            }
        }
        all.curves.push(curve);
    }
    // The published values of all sides are the same.
    if all.published.sources.is_empty() && all.published.lines.is_empty() {
        all.published = figure.published.moved(position, rescaled, colours);
    }
    let lines = figure.lines.into_iter();
    let line = |(label, value, _): (String, f64, usize)| {
        (format!("{name} {label}"), rescaled(value), side)
    };
    all.lines.extend(lines.map(line));
    all.ratios.extend(figure.ratios.into_iter().map(|mut ratio| {
        (ratio.0, ratio.1) = (ratio.0 + before, ratio.1 + before);
        ratio
    }));
}

/// Returns the level at a position of an axis.
fn level_at(axis: &AxisData, x: f64) -> Option<&String> {
    let index = match axis.scale {
        "category" => Some(x.round() as usize),
        // Numbers of marks are rounded.
        _ => axis.numbers.iter().position(|number| short(*number) == short(x)),
    };
    axis.levels.get(index?)
}
