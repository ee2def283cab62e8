//! Published values next to ours: those of the claims on a figure's points.

use lab::figure::{Axis, Figure, PublishedValue};
use lab::format::{self, Scale};
use lab::point::Level;

use super::curve::Curve;

/// Published values of a plot. They are never ours: they have no interval, and most are from other hardware.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Published {
    /// Publications with the hardware on which they measured, to which values refer by index.
    pub sources: Vec<String>,
    /// Values by the curve next to which they are drawn.
    pub curves: Vec<PublishedCurve>,
    /// Horizontal lines: label and position on y.
    pub lines: Vec<(String, f64)>,
    /// Ratios of two points, for values relative to a base.
    pub ratios: Vec<PublishedRatio>,
}

/// Published values of one level of the series.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedCurve {
    /// Name, that of our curve if there is one.
    pub name: String,
    /// Level of the series; empty if the figure has no series.
    pub level: String,
    /// The metric.
    pub metric: String,
    /// Index of its style: that of our curve, or the next one that no curve has.
    pub style: usize,
    /// Whether the plot has a measured curve of this name.
    pub is_measured: bool,
    /// Values from left to right.
    pub marks: Vec<PublishedMark>,
}

/// A published value.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedMark {
    /// Position on x.
    pub x: f64,
    /// Level along x.
    pub level: String,
    /// Value in the unit of the y axis.
    pub y: f64,
    /// Value with its unit.
    pub text: String,
    /// Index of its source.
    pub source: usize,
    /// ID of the claim that states it.
    pub claim: String,
}

/// A published ratio of two points.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedRatio {
    /// Name of the curve.
    pub name: String,
    /// Level of the series.
    pub level: String,
    /// The metric.
    pub metric: String,
    /// Index of the style; see [`PublishedCurve::style`].
    pub style: usize,
    /// Whether the plot has a measured curve of this name.
    pub is_measured: bool,
    /// Position on x.
    pub x: f64,
    /// Level of the series and position on x of the base.
    pub base: (String, f64),
    /// The ratio.
    pub ratio: f64,
    /// Index of its source.
    pub source: usize,
    /// ID of the claim that states it.
    pub claim: String,
}

/// The axes of the plot to which published values are added.
pub(super) struct PlotAxes<'a> {
    /// The figure's first metric.
    pub(super) metric: &'a str,
    /// Unit of the values.
    pub(super) unit: &'a str,
    pub(super) levels: &'a [Level],
    pub(super) x_scale: Axis,
    pub(super) scale: &'a Scale,
}

/// Returns the published values of a figure that have a position without any of ours; others are ratios.
pub(super) fn absolute(figure: &Figure) -> impl Iterator<Item = &PublishedValue> {
    figure.published.iter().filter(|value| value.relative_to.is_none())
}

impl Published {
    /// Returns the published values of a figure; `curves` are the measured ones.
    pub(super) fn new(figure: &Figure, curves: &[Curve], axes: &PlotAxes<'_>) -> Self {
        let mut all = Self::default();
        for value in &figure.published {
            let Some(x) = axes.position(&value.x) else { continue };
            let name = figure.curve_name(value.series.as_str(), &value.metric, axes.metric);
            let style = all.style(curves, &name);
            let source = all.source(value.described());
            let (level, metric) = (value.series.to_string(), value.metric.clone());
            let claim = value.claim.clone();
            if let Some((series, base_x)) = &value.relative_to {
                let Some(base_x) = axes.position(base_x) else { continue };
                let base = (series.to_string(), base_x);
                all.ratios.push(PublishedRatio {
                    name,
                    level,
                    metric,
                    style,
                    is_measured: style < curves.len(),
                    x,
                    base,
                    ratio: value.value,
                    source,
                    claim,
                });
                continue;
            }
            let mark = PublishedMark {
                x,
                level: value.x.to_string(),
                y: axes.scale.scaled(value.value),
                text: format::published(value.value, axes.unit),
                source,
                claim,
            };
            match all.curves.iter_mut().find(|curve| curve.name == name) {
                Some(curve) => curve.marks.push(mark),
                None => {
                    let is_measured = style < curves.len();
                    let marks = vec![mark];
                    let curve = PublishedCurve { name, level, metric, style, is_measured, marks };
                    all.curves.push(curve);
                }
            }
        }
        for curve in &mut all.curves {
            curve.marks.sort_by(|a, b| a.x.total_cmp(&b.x));
        }
        for line in &figure.lines {
            let value = |value: &PublishedValue| {
                (format!("{}, {}", line.label, value.described()), axes.scale.scaled(value.value))
            };
            all.lines.extend(line.published.iter().map(value));
        }
        all
    }

    /// Returns the index of a source, which is added if it is new.
    fn source(&mut self, source: String) -> usize {
        self.sources.iter().position(|known| *known == source).unwrap_or_else(|| {
            self.sources.push(source);
            self.sources.len() - 1
        })
    }

    /// Returns the style of the curve with a name.
    fn style(&self, curves: &[Curve], name: &str) -> usize {
        let measured = curves.iter().position(|curve| curve.name == name);
        let of_curves = self.curves.iter().map(|curve| (curve.name.as_str(), curve.style));
        let of_ratios = self.ratios.iter().map(|ratio| (ratio.name.as_str(), ratio.style));
        let known: Vec<(&str, usize)> = of_curves.chain(of_ratios).collect();
        let published = known.iter().find(|(other, _)| *other == name).map(|(_, style)| *style);
        let next = known.iter().map(|(_, style)| style + 1).fold(curves.len(), usize::max);
        measured.or(published).unwrap_or(next)
    }
}

impl PlotAxes<'_> {
    /// Returns the position of a level on x; `None` if it has none.
    fn position(&self, level: &Level) -> Option<f64> {
        match self.x_scale {
            Axis::Category => self.levels.iter().position(|one| one == level).map(|at| at as f64),
            Axis::Linear => level.number(),
            Axis::Log2 | Axis::Log10 => level.number().filter(|number| *number > 0.0),
        }
    }
}
