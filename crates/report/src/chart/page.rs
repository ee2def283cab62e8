//! Layout and drawing of plots.

use super::axis::{AxisScale, Tick, readable};
use super::font;
use super::legend::Legend;
use super::style::{MARK, PUBLISHED_LINE, PUBLISHED_MARK, REFERENCE_LINE, Style};
use super::svg::{
    Anchor, INK, LABEL, SLANT, Svg, TICK, Text, WIDTH, WIDTH_MM, notes_height, title_height,
    wrapped_notes, wrapped_title,
};
use crate::figure::{Curve, FigureError, Mark, Plot, PublishedCurve};

const PLOT_HEIGHT: f64 = 300.0;
/// Number of values up to which a curve has marks.
const MAX_MARKS: usize = 40;
/// Shares at which a distribution has marks.
const MARKED_SHARES: [f64; 5] = [0.9, 0.5, 0.2, 0.05, 0.01];
/// Minimum distance of slanted labels from the edge.
const EDGE: f64 = 8.0;
/// Distance of the title and the legend from the right edge.
const MARGIN: f64 = 16.0;
/// Distance from the end of the axis at which a published value beyond it is drawn.
const BEYOND: f64 = 13.0;

/// Draws a plot as SVG.
pub(super) fn draw(plot: &Plot) -> Result<String, FigureError> {
    let page = Page::new(plot)?;
    let mut svg = Svg::default();
    svg.title(&page.title, page.left);
    page.grid(&mut svg);
    for (_, value) in &plot.lines {
        let y = page.y(*value);
        svg.line((page.left, y), (page.right, y), REFERENCE_LINE);
    }
    for (_, value) in plot.published.lines.iter().filter(|(_, value)| page.is_within(*value)) {
        let y = page.y(*value);
        svg.line((page.left, y), (page.right, y), PUBLISHED_LINE);
    }
    for (number, curve) in plot.curves.iter().enumerate() {
        page.curve(&mut svg, curve, number);
    }
    for curve in &plot.published.curves {
        page.published(&mut svg, curve);
    }
    page.axes(&mut svg);
    page.legend.draw(&mut svg, page.right + 18.0, page.top);
    svg.notes(&page.notes, page.x_label_y + 16.0);
    Ok(svg.finish(WIDTH, page.height, WIDTH_MM))
}

/// Positions of the parts of a plot; margins follow from the texts in them.
struct Page<'a> {
    plot: &'a Plot,
    /// Lines of the title.
    title: Vec<String>,
    x_scale: AxisScale,
    y_scale: AxisScale,
    x_ticks: Vec<Tick>,
    y_ticks: Vec<Tick>,
    legend: Legend,
    /// Whether the labels along x are slanted because they do not fit.
    is_slanted: bool,
    notes: Vec<String>,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    x_label_y: f64,
    height: f64,
}

impl<'a> Page<'a> {
    fn new(plot: &'a Plot) -> Result<Self, FigureError> {
        let marks = || plot.curves.iter().flat_map(|curve| &curve.marks);
        let mut xs: Vec<f64> = marks().map(|mark| mark.x).collect();
        let ends = marks().flat_map(|mark| mark.interval).flat_map(|(low, high)| [low, high]);
        let lines = plot.lines.iter().map(|(_, value)| *value);
        let mut ys: Vec<f64> = marks().map(|mark| mark.y).chain(ends).chain(lines).collect();
        let published = || plot.published.curves.iter().flat_map(|curve| &curve.marks);
        let published_lines = plot.published.lines.iter().map(|(_, value)| *value);
        let published_ys: Vec<f64> =
            published().map(|mark| mark.y).chain(published_lines).collect();
        xs.extend(published().map(|mark| mark.x));
        if xs.is_empty() {
            return Err(FigureError::nothing_to_draw(&plot.id));
        }
        ys.extend(readable(plot.y_scale, &ys, &published_ys));
        let no_position = |axis, values: &[f64]| {
            let is_invalid = |value: &&f64| !value.is_finite() || **value <= 0.0;
            let value = values.iter().find(is_invalid).map_or_else(String::new, f64::to_string);
            let what = format!("{value} has no position on the {axis} axis");
            FigureError::Drawing { figure: plot.id.clone(), what }
        };
        let x_scale = AxisScale::new(plot.x_scale, &xs, &plot.x_levels)
            .ok_or_else(|| no_position("horizontal", &xs))?;
        let y_scale =
            AxisScale::new(plot.y_scale, &ys, &[]).ok_or_else(|| no_position("vertical", &ys))?;

        let legend = Legend::new(plot);
        let y_ticks = y_scale.ticks(PLOT_HEIGHT, TICK, false);
        let left = 12.0 + LABEL * 1.4 + widest(&y_ticks) + 8.0;
        let right = WIDTH - MARGIN - legend.width();
        let x_ticks = x_scale.ticks(right - left, TICK, true);
        let labels = x_ticks.iter().filter(|tick| tick.label.is_some()).count();
        let is_slanted = x_scale.is_category()
            && widest(&x_ticks) > (right - left) / labels.max(1) as f64 * 0.92;
        let left = if is_slanted { left + overhang(&x_ticks, left, right) } else { left };
        let title = wrapped_title(&plot.title, WIDTH - MARGIN - left);
        let top = 14.0 + title_height(&title);
        let bottom = top + PLOT_HEIGHT.max(legend.height());
        let under = if is_slanted { widest(&x_ticks) * 0.6 + TICK } else { TICK * 1.2 };
        let x_label_y = bottom + 8.0 + under + LABEL * 1.3;
        let beyond = beyond_note(plot, &y_scale);
        let all_notes: Vec<String> = plot.notes.iter().cloned().chain(beyond).collect();
        let notes = wrapped_notes(&all_notes, WIDTH);
        let height = x_label_y + 14.0 + notes_height(&notes);
        Ok(Self {
            plot,
            title,
            x_scale,
            y_scale,
            x_ticks,
            y_ticks,
            legend,
            is_slanted,
            notes,
            left,
            right,
            top,
            bottom,
            x_label_y,
            height,
        })
    }

    fn x(&self, value: f64) -> f64 {
        self.left + self.x_scale.position(value) * (self.right - self.left)
    }

    fn y(&self, value: f64) -> f64 {
        self.bottom - self.y_scale.position(value) * (self.bottom - self.top)
    }

    fn is_within(&self, value: f64) -> bool {
        (0.0..=1.0).contains(&self.y_scale.position(value))
    }

    fn grid(&self, svg: &mut Svg) {
        let shade = |tick: &Tick| match tick.label {
            Some(_) => r##"stroke="#d9d9d9" stroke-width="0.8""##,
            None => r##"stroke="#efefef" stroke-width="0.6""##,
        };
        for tick in &self.y_ticks {
            let y = self.bottom - tick.at * (self.bottom - self.top);
            svg.line((self.left, y), (self.right, y), shade(tick));
        }
        for tick in self.x_ticks.iter().filter(|_| !self.x_scale.is_category()) {
            let x = self.left + tick.at * (self.right - self.left);
            svg.line((x, self.top), (x, self.bottom), shade(tick));
        }
    }

    /// Returns whether a line joins the values of a curve. Between names there is nothing to show, so
    /// their marks are drawn side by side.
    fn is_joined(&self) -> bool {
        let numbers = self.plot.x_levels.iter().all(|level| level.number().is_some());
        // Curves with a single position would hide each other.
        self.plot.x_levels.len() != 1 && (!self.x_scale.is_category() || numbers)
    }

    /// Returns the offset of a curve's marks to the right of their position.
    fn shift(&self, number: usize) -> f64 {
        let styles = self.plot.published.curves.iter().map(|curve| curve.style + 1);
        let curves = styles.fold(self.plot.curves.len(), usize::max) as f64;
        let levels = self.plot.x_levels.len();
        let slot = (self.right - self.left) / levels.max(1) as f64;
        let step = (slot * 0.7 / curves).min(11.0);
        if self.is_joined() { 0.0 } else { (number as f64 - (curves - 1.0) / 2.0) * step }
    }

    fn curve(&self, svg: &mut Svg, curve: &Curve, number: usize) {
        let style = &Style::of_curve(number);
        let shift = self.shift(number);
        let position = |m: &Mark| (self.x(m.x) + shift, self.y(m.y));
        let positions: Vec<_> = curve.marks.iter().map(position).collect();
        for (mark, (x, _)) in curve.marks.iter().zip(&positions) {
            if let Some((low, high)) = mark.interval {
                let (low, high) = (self.y(low), self.y(high));
                let bar = format!(
                    "M{x:.2} {low:.2}V{high:.2}M{:.2} {low:.2}h6M{:.2} {high:.2}h6",
                    x - 3.0,
                    x - 3.0
                );
                let thin = format!(r#"fill="none" stroke="{}" stroke-width="1""#, style.colour);
                svg.path(&bar, &thin);
            }
        }
        let points: Vec<_> = positions.iter().map(|(x, y)| format!("{x:.2} {y:.2}")).collect();
        if self.is_joined() {
            svg.path(&format!("M{}", points.join("L")), &style.stroke());
        }
        for at in self.marked(curve) {
            let (x, y) = positions[at];
            let filled =
                format!(r##"fill="{}" stroke="#ffffff" stroke-width="0.6""##, style.colour);
            svg.path(&style.mark.path(x, y, MARK), &filled);
        }
    }

    /// Draws published values: hollow marks without a line, at the end of the axis those beyond it, with an arrow.
    fn published(&self, svg: &mut Svg, curve: &PublishedCurve) {
        let style = Style::of_curve(curve.style);
        let hollow = style.hollow();
        for mark in &curve.marks {
            let x = self.x(mark.x) + self.shift(curve.style);
            let at = self.y_scale.position(mark.y);
            let (y, arrow) = match at {
                at if at > 1.0 => (self.top + BEYOND, Some(-1.0)),
                at if at < 0.0 => (self.bottom - BEYOND, Some(1.0)),
                _ => (self.y(mark.y), None),
            };
            svg.path(&style.mark.path(x, y, PUBLISHED_MARK), &hollow);
            if let Some(to) = arrow {
                let (tip, foot) = (y + to * (BEYOND - 2.0), y + to * (BEYOND - 6.0));
                let arrow =
                    format!("M{:.2} {foot:.2}L{x:.2} {tip:.2}L{:.2} {foot:.2}", x - 3.5, x + 3.5);
                svg.path(&arrow, &hollow);
            }
        }
    }

    /// Returns the indices of a curve's values that have marks. A distribution has marks at some shares
    /// only, to distinguish curves without colour.
    fn marked(&self, curve: &Curve) -> Vec<usize> {
        if self.plot.x_levels.is_empty() {
            let at = |share: &f64| curve.marks.iter().position(|mark| mark.y <= *share);
            return MARKED_SHARES.iter().filter_map(at).collect();
        }
        (0..curve.marks.len()).filter(|_| curve.marks.len() <= MAX_MARKS).collect()
    }

    fn axes(&self, svg: &mut Svg) {
        let ink = r##"stroke="#222222" stroke-width="1""##;
        svg.line((self.left, self.bottom), (self.right, self.bottom), ink);
        svg.line((self.left, self.top), (self.left, self.bottom), ink);
        for tick in &self.y_ticks {
            let y = self.bottom - tick.at * (self.bottom - self.top);
            let Some(label) = &tick.label else { continue };
            svg.line((self.left - 4.0, y), (self.left, y), ink);
            let at = (self.left - 7.0, y + TICK * 0.36);
            svg.text(label, Text::new(at, TICK, Anchor::End, INK));
        }
        for tick in &self.x_ticks {
            let x = self.left + tick.at * (self.right - self.left);
            let Some(label) = &tick.label else { continue };
            svg.line((x, self.bottom), (x, self.bottom + 4.0), ink);
            let (anchor, rotation, dx) = if self.is_slanted {
                (Anchor::End, -SLANT, 4.0)
            } else {
                (Anchor::Middle, 0.0, 0.0)
            };
            let at = (x + dx, self.bottom + 7.0 + TICK);
            svg.text(label, Text { rotation, ..Text::new(at, TICK, anchor, INK) });
        }
        let middle = f64::midpoint(self.left, self.right);
        svg.x_label(&self.plot.x_label, (middle, self.x_label_y));
        svg.y_label(&self.plot.y_label, f64::midpoint(self.top, self.bottom));
    }
}

/// Names the published values beyond the ends of the y axis; `None` if there are none.
fn beyond_note(plot: &Plot, y_scale: &AxisScale) -> Option<String> {
    let is_beyond = |value: f64| !(0.0..=1.0).contains(&y_scale.position(value));
    let of_curves = plot.published.curves.iter().flat_map(|curve| {
        let marks = curve.marks.iter().filter(|mark| is_beyond(mark.y));
        marks.map(|mark| {
            let name = format!("{} {}", curve.name, mark.level);
            format!("{} {}", name.trim(), mark.text)
        })
    });
    let beyond: Vec<String> = of_curves.collect();
    (!beyond.is_empty())
        .then(|| format!("published values beyond the axis (arrows): {}", beyond.join("; ")))
}

/// Returns by how much the left margin must grow so that slanted labels fit the page.
fn overhang(ticks: &[Tick], left: f64, right: f64) -> f64 {
    let reach = |tick: &Tick| {
        let label = font::width(tick.label.as_deref()?, TICK) * SLANT.to_radians().cos();
        let from = left + tick.at * (right - left) - label;
        // The further right a tick is, the less it moves when the margin grows.
        Some((EDGE - from).max(0.0) / (1.0 - tick.at).max(0.1))
    };
    ticks.iter().filter_map(reach).fold(0.0, f64::max)
}

fn widest(ticks: &[Tick]) -> f64 {
    let labels = ticks.iter().filter_map(|tick| tick.label.as_deref());
    labels.map(|label| font::width(label, TICK)).fold(0.0, f64::max)
}
