//! The page of curves: margins from the texts that stand in them, then grid, curves, axes, legend, notes.

use super::ChartError;
use super::axis::{Scale, Tick};
use super::font;
use super::legend::Legend;
use super::sheet::{self, INK, LABEL, LEAN, MILLIMETRES, TICK, TITLE, WIDTH};
use super::style::{self, LIMIT};
use super::svg::{Anchor, Svg, Text};
use crate::figure::{Curve, Mark, Plot};

const PLOT_HEIGHT: f64 = 300.0;
/// A curve with more marks than this is a line alone.
const MOST_MARKS: usize = 40;
/// The shares at which a distribution bears its curve's mark.
const MARKED_SHARES: [f64; 5] = [0.1, 0.3, 0.5, 0.7, 0.9];
/// How near leaning labels come to the edge.
const EDGE: f64 = 8.0;

/// Draws curves as SVG.
pub(super) fn draw(picture: &Plot) -> Result<String, ChartError> {
    let page = Page::of(picture)?;
    let mut svg = Svg::default();
    sheet::title(&mut svg, &picture.title, page.left);
    page.grid(&mut svg);
    for (_, value) in &picture.lines {
        let y = page.y(*value);
        svg.line((page.left, y), (page.right, y), LIMIT);
    }
    for (number, curve) in picture.curves.iter().enumerate() {
        page.curve(&mut svg, curve, number);
    }
    page.axes(&mut svg);
    page.legend.draw(&mut svg, page.right + 18.0, page.top);
    sheet::notes(&mut svg, &page.notes, page.x_label_y + 16.0);
    Ok(svg.finish(WIDTH, page.height, MILLIMETRES))
}

struct Page<'a> {
    picture: &'a Plot,
    x_scale: Scale,
    y_scale: Scale,
    x_ticks: Vec<Tick>,
    y_ticks: Vec<Tick>,
    legend: Legend,
    /// Whether the labels along x lean, for want of room.
    lean: bool,
    notes: Vec<String>,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    x_label_y: f64,
    height: f64,
}

impl<'a> Page<'a> {
    fn of(picture: &'a Plot) -> Result<Self, ChartError> {
        let marks = || picture.curves.iter().flat_map(|curve| &curve.marks);
        let xs: Vec<f64> = marks().map(|mark| mark.x).collect();
        let ends = marks().flat_map(|mark| mark.interval).flat_map(|(low, high)| [low, high]);
        let lines = picture.lines.iter().map(|(_, value)| *value);
        let ys: Vec<f64> = marks().map(|mark| mark.y).chain(ends).chain(lines).collect();
        if xs.is_empty() {
            return Err(ChartError::Empty(picture.id.clone()));
        }
        let no_place = |axis, values: &[f64]| {
            let bad = |value: &&f64| !value.is_finite() || **value <= 0.0;
            let what = values.iter().find(bad).map_or_else(String::new, f64::to_string);
            ChartError::NoPlace { figure: picture.id.clone(), what, axis }
        };
        let x_scale = Scale::over(picture.x_scale, &xs, &picture.x_levels)
            .ok_or_else(|| no_place("horizontal", &xs))?;
        let y_scale =
            Scale::over(picture.y_scale, &ys, &[]).ok_or_else(|| no_place("vertical", &ys))?;

        let legend = Legend::of(picture);
        let y_ticks = y_scale.ticks(PLOT_HEIGHT, TICK, false);
        let widest = widest(&y_ticks);
        let left = 12.0 + LABEL * 1.4 + widest + 8.0;
        let right = WIDTH - 16.0 - legend.width();
        let x_ticks = x_scale.ticks(right - left, TICK, true);
        let top = 14.0 + TITLE * 1.3;
        let bottom = top + PLOT_HEIGHT.max(legend.height());
        let labels = x_ticks.iter().filter(|tick| tick.label.is_some()).count();
        let lean = x_scale.is_category()
            && self::widest(&x_ticks) > (right - left) / labels.max(1) as f64 * 0.92;
        let left = if lean { left + beyond(&x_ticks, left, right) } else { left };
        let under = if lean { self::widest(&x_ticks) * 0.6 + TICK } else { TICK * 1.2 };
        let x_label_y = bottom + 8.0 + under + LABEL * 1.3;
        let notes = sheet::wrapped(&picture.notes, WIDTH);
        let height = x_label_y + 14.0 + sheet::notes_height(&notes);
        Ok(Self {
            picture,
            x_scale,
            y_scale,
            x_ticks,
            y_ticks,
            legend,
            lean,
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
        self.left + self.x_scale.place(value) * (self.right - self.left)
    }

    fn y(&self, value: f64) -> f64 {
        self.bottom - self.y_scale.place(value) * (self.bottom - self.top)
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

    /// Names side by side have nothing between them that a line could show: their marks stand next
    /// to each other instead.
    fn is_joined(&self) -> bool {
        let numbers = self.picture.x_levels.iter().all(|level| level.number().is_some());
        // One place has nothing to be joined with, and curves there hide one another.
        self.picture.x_levels.len() != 1 && (!self.x_scale.is_category() || numbers)
    }

    /// How far right of its place a curve's marks stand.
    fn shift(&self, number: usize) -> f64 {
        let (curves, levels) = (self.picture.curves.len() as f64, self.picture.x_levels.len());
        let slot = (self.right - self.left) / levels.max(1) as f64;
        let step = (slot * 0.7 / curves).min(11.0);
        if self.is_joined() { 0.0 } else { (number as f64 - (curves - 1.0) / 2.0) * step }
    }

    fn curve(&self, svg: &mut Svg, curve: &Curve, number: usize) {
        let style = &style::of(number);
        let shift = self.shift(number);
        let place = |m: &Mark| (self.x(m.x) + shift, self.y(m.y));
        let places: Vec<_> = curve.marks.iter().map(place).collect();
        for (mark, (x, _)) in curve.marks.iter().zip(&places) {
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
        let points: Vec<_> = places.iter().map(|(x, y)| format!("{x:.2} {y:.2}")).collect();
        if self.is_joined() {
            svg.path(&format!("M{}", points.join("L")), &style.stroke());
        }
        for at in self.marked(curve) {
            let (x, y) = places[at];
            let filled =
                format!(r##"fill="{}" stroke="#ffffff" stroke-width="0.6""##, style.colour);
            svg.path(&style.mark.path(x, y, 3.4), &filled);
        }
    }

    /// Which places of a curve bear its mark. A distribution has none of its own: some tell the
    /// curves apart where colours do not.
    fn marked(&self, curve: &Curve) -> Vec<usize> {
        if self.picture.x_levels.is_empty() {
            let at = |share: &f64| curve.marks.iter().position(|mark| mark.y >= *share);
            return MARKED_SHARES.iter().filter_map(at).collect();
        }
        (0..curve.marks.len()).filter(|_| curve.marks.len() <= MOST_MARKS).collect()
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
            svg.text(label, Text { at, size: TICK, anchor: Anchor::End, turn: 0.0, colour: INK });
        }
        for tick in &self.x_ticks {
            let x = self.left + tick.at * (self.right - self.left);
            let Some(label) = &tick.label else { continue };
            svg.line((x, self.bottom), (x, self.bottom + 4.0), ink);
            let (anchor, turn, dx) =
                if self.lean { (Anchor::End, -LEAN, 4.0) } else { (Anchor::Middle, 0.0, 0.0) };
            let at = (x + dx, self.bottom + 7.0 + TICK);
            svg.text(label, Text { at, size: TICK, anchor, turn, colour: INK });
        }
        let middle = f64::midpoint(self.left, self.right);
        sheet::label_under(svg, &self.picture.x_label, (middle, self.x_label_y));
        sheet::label_beside(svg, &self.picture.y_label, f64::midpoint(self.top, self.bottom));
    }
}

/// How far labels of `LEAN` degrees reach beyond the page's left edge.
fn beyond(ticks: &[Tick], left: f64, right: f64) -> f64 {
    let reach = |tick: &Tick| {
        let label = font::width(tick.label.as_deref()?, TICK) * LEAN.to_radians().cos();
        let from = left + tick.at * (right - left) - label;
        // What the margin grows by moves a tick less, the further right it is.
        Some((EDGE - from).max(0.0) / (1.0 - tick.at).max(0.1))
    };
    ticks.iter().filter_map(reach).fold(0.0, f64::max)
}

fn widest(ticks: &[Tick]) -> f64 {
    let labels = ticks.iter().filter_map(|tick| tick.label.as_deref());
    labels.map(|label| font::width(label, TICK)).fold(0.0, f64::max)
}
