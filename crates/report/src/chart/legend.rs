//! The legend, to the right of the data.

use super::font;
use super::style::{self, Style};
use super::svg::{Anchor, FAINT, INK, Svg, Text};
use crate::figure::Plot;

const SIZE: f64 = 11.0;
const ROW: f64 = 17.0;
/// Length of the line sample of an entry.
const SAMPLE: f64 = 28.0;
/// Width from which a name is wrapped.
const MAX_NAME: f64 = 170.0;

/// Entry of the legend.
struct Entry {
    /// Style of the curve; `None` for a reference line.
    style: Option<Style>,
    /// Wrapped name.
    lines: Vec<String>,
}

/// The legend of a plot.
pub(super) struct Legend {
    title: String,
    entries: Vec<Entry>,
}

impl Legend {
    /// Returns the legend of a plot, empty for a single curve without series or reference lines.
    pub(super) fn new(plot: &Plot) -> Self {
        let has_names = plot.curves.len() > 1 || !plot.series.is_empty();
        let curve = |(number, name): (usize, &String)| Entry {
            style: Some(Style::of_curve(number)),
            lines: font::wrapped(name, SIZE, MAX_NAME),
        };
        let names = plot.curves.iter().map(|curve| &curve.name).enumerate();
        let mut entries: Vec<_> = names.filter(|_| has_names).map(curve).collect();
        entries.extend(plot.lines.iter().map(|(name, value)| Entry {
            style: None,
            lines: font::wrapped(
                &format!("{name}: {}", super::axis::number(*value)),
                SIZE,
                MAX_NAME,
            ),
        }));
        Self { title: if has_names { plot.series.clone() } else { String::new() }, entries }
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
        let text = |at| Text::new(at, SIZE, Anchor::Start, INK);
        let mut y = top + ROW / 2.0;
        if !self.title.is_empty() && !self.entries.is_empty() {
            let at = (left, y + 4.0);
            svg.text(&self.title, Text { colour: FAINT, ..text(at) });
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
                None => svg.line(from, to, style::REFERENCE_LINE),
            }
            for line in &entry.lines {
                svg.text(line, text((left + SAMPLE + 8.0, y + 4.0)));
                y += ROW;
            }
        }
    }
}
