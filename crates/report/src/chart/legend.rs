//! The legend, outside the data.

use super::font;
use super::style::{self, Style};
use super::svg::{Anchor, Svg, Text};
use crate::figure::Plot;

const SIZE: f64 = 11.0;
const ROW: f64 = 17.0;
const SAMPLE: f64 = 28.0;
/// A name wider than this is broken.
const WIDEST: f64 = 170.0;

/// An entry: how it is drawn, and its name in lines.
struct Entry {
    style: Option<Style>,
    lines: Vec<String>,
}

/// The legend of a picture.
pub(super) struct Legend {
    title: String,
    entries: Vec<Entry>,
}

impl Legend {
    /// One curve without a line to compare with needs none.
    pub(super) fn of(picture: &Plot) -> Self {
        let several = picture.curves.len() > 1 || !picture.series.is_empty();
        let curve = |(number, name): (usize, &String)| Entry {
            style: Some(style::of(number)),
            lines: font::wrapped(name, SIZE, WIDEST),
        };
        let names = picture.curves.iter().map(|curve| &curve.name).enumerate();
        let mut entries: Vec<_> = names.filter(|_| several).map(curve).collect();
        entries.extend(picture.lines.iter().map(|(name, value)| Entry {
            style: None,
            lines: font::wrapped(&format!("{name}: {}", super::axis::number(*value)), SIZE, WIDEST),
        }));
        Self { title: if several { picture.series.clone() } else { String::new() }, entries }
    }

    pub(super) fn width(&self) -> f64 {
        let lines = self.entries.iter().flat_map(|entry| &entry.lines);
        let widest = lines.map(|line| font::width(line, SIZE)).fold(0.0, f64::max);
        let title = font::width(&self.title, SIZE);
        if self.entries.is_empty() { 0.0 } else { (widest + SAMPLE + 8.0).max(title) + 18.0 }
    }

    pub(super) fn height(&self) -> f64 {
        let lines: usize = self.entries.iter().map(|entry| entry.lines.len()).sum();
        lines as f64 * ROW + if self.title.is_empty() { 0.0 } else { ROW }
    }

    pub(super) fn draw(&self, svg: &mut Svg, left: f64, top: f64) {
        let text =
            |at| Text { at, size: SIZE, anchor: Anchor::Start, turn: 0.0, colour: "#222222" };
        let mut y = top + ROW / 2.0;
        if !self.title.is_empty() && !self.entries.is_empty() {
            let at = (left, y + 4.0);
            svg.text(&self.title, Text { colour: "#666666", ..text(at) });
            y += ROW;
        }
        for entry in &self.entries {
            let (from, to) = ((left, y), (left + SAMPLE, y));
            match entry.style {
                Some(style) => {
                    svg.line(from, to, &style.stroke());
                    let mark = style.mark.path(left + SAMPLE / 2.0, y, 3.4);
                    svg.path(&mark, &format!(r#"fill="{}""#, style.colour));
                }
                None => svg.line(from, to, style::LIMIT),
            }
            for line in &entry.lines {
                svg.text(line, text((left + SAMPLE + 8.0, y + 4.0)));
                y += ROW;
            }
        }
    }
}
