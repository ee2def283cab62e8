//! The legend, to the right of the data.

use super::axis::number;
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
    sample: Sample,
    /// Wrapped name.
    lines: Vec<String>,
}

/// What an entry stands for.
enum Sample {
    Curve(Style),
    /// A reference line.
    Line,
    /// Published values of a level without a curve of ours.
    Published(Style),
    /// A source of published values.
    Source,
    /// A published value as a line.
    PublishedLine,
}

/// The legend of a plot.
pub(super) struct Legend {
    title: String,
    entries: Vec<Entry>,
}

impl Legend {
    /// Returns the legend of a plot, empty for a single curve without series, reference lines or published values.
    pub(super) fn new(plot: &Plot) -> Self {
        let has_names = plot.curves.len() > 1 || !plot.series.is_empty();
        let entry =
            |sample, name: &str| Entry { sample, lines: font::wrapped(name, SIZE, MAX_NAME) };
        let mut entries = Vec::new();
        for (number, curve) in plot.curves.iter().enumerate().filter(|_| has_names) {
            entries.push(entry(Sample::Curve(Style::of_curve(number)), &curve.name));
        }
        for curve in plot.published.curves.iter().filter(|curve| !curve.is_measured) {
            let name = format!("{} (published only)", curve.name);
            entries.push(entry(Sample::Published(Style::of_curve(curve.style)), name.trim()));
        }
        let unit = plot.scale.unit();
        let valued = |(name, value): &(String, f64)| {
            format!("{name}: {} {unit}", number(*value)).trim_end().to_owned()
        };
        entries.extend(plot.lines.iter().map(|line| entry(Sample::Line, &valued(line))));
        for (at, source) in plot.published.sources.iter().enumerate() {
            let mut marks = plot.published.curves.iter().flat_map(|curve| &curve.marks);
            if marks.any(|mark| mark.source == at) {
                entries.push(entry(Sample::Source, &format!("published: {source}")));
            }
        }
        let lines = plot.published.lines.iter();
        entries.extend(
            lines.map(|line| entry(Sample::PublishedLine, &format!("published: {}", valued(line)))),
        );
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
            let middle = left + SAMPLE / 2.0;
            match &entry.sample {
                Sample::Curve(style) => {
                    svg.line(from, to, &style.stroke());
                    let mark = style.mark.path(middle, y, style::MARK);
                    svg.path(&mark, &format!(r#"fill="{}""#, style.colour));
                }
                Sample::Line => svg.line(from, to, style::REFERENCE_LINE),
                Sample::PublishedLine => svg.line(from, to, style::PUBLISHED_LINE),
                Sample::Published(style) => {
                    svg.path(&style.mark.path(middle, y, style::PUBLISHED_MARK), &style.hollow());
                }
                Sample::Source => {
                    let outline = style::Shape::Circle.path(middle, y, style::PUBLISHED_MARK);
                    svg.path(&outline, style::SOURCE);
                }
            }
            for line in &entry.lines {
                svg.text(line, text((left + SAMPLE + 8.0, y + 4.0)));
                y += ROW;
            }
        }
    }
}
