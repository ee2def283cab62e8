//! SVG writer, and the layout that all figures share: widths, font sizes, title, labels, notes.

use super::font;

/// Width of the widest figure in print: two columns of a paper.
pub(super) const WIDTH_MM: f64 = 175.0;
/// Width of the widest figure in SVG units.
pub(super) const WIDTH: f64 = 700.0;
/// Font size of tick labels.
pub(super) const TICK: f64 = 11.0;
/// Font size of axis labels.
pub(super) const LABEL: f64 = 12.5;
/// Font size of titles.
pub(super) const TITLE: f64 = 14.0;
const TITLE_ROW: f64 = TITLE * 1.3;
const NOTE: f64 = 9.5;
const NOTE_ROW: f64 = NOTE * 1.35;
/// Slant of labels that do not fit horizontally, in degrees.
pub(super) const SLANT: f64 = 35.0;
/// Colour of texts and axes.
pub(super) const INK: &str = "#222222";
/// Colour of secondary texts.
pub(super) const FAINT: &str = "#666666";

/// SVG document under construction; elements are drawn in the order in which they are added.
#[derive(Default)]
pub(super) struct Svg {
    body: String,
}

/// Alignment of a text relative to its position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

/// Position and style of a text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Text<'a> {
    pub(super) at: (f64, f64),
    pub(super) size: f64,
    pub(super) anchor: Anchor,
    /// Clockwise rotation in degrees.
    pub(super) rotation: f64,
    pub(super) colour: &'a str,
}

impl<'a> Text<'a> {
    /// Returns the style of a horizontal text.
    pub(super) fn new(at: (f64, f64), size: f64, anchor: Anchor, colour: &'a str) -> Self {
        Self { at, size, anchor, rotation: 0.0, colour }
    }
}

impl Svg {
    fn raw(&mut self, element: &str) {
        self.body.push_str(element);
        self.body.push('\n');
    }

    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), stroke: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.raw(&format!(
            r#"<line x1="{x1:.2}" y1="{y1:.2}" x2="{x2:.2}" y2="{y2:.2}" {stroke}/>"#
        ));
    }

    pub(super) fn path(&mut self, data: &str, style: &str) {
        self.raw(&format!(r#"<path d="{data}" {style}/>"#));
    }

    pub(super) fn text(&mut self, text: &str, style: Text<'_>) {
        let ((x, y), anchor) = (style.at, style.anchor.name());
        let rotation = match style.rotation {
            0.0 => String::new(),
            angle => format!(r#" transform="rotate({angle} {x:.2} {y:.2})""#),
        };
        self.raw(&format!(
            r#"<text x="{x:.2}" y="{y:.2}" font-size="{}" text-anchor="{anchor}" fill="{}"{rotation}>{}</text>"#,
            style.size,
            style.colour,
            escaped(text)
        ));
    }

    /// Adds the lines of the title of a figure.
    pub(super) fn title(&mut self, lines: &[String], left: f64) {
        for (row, line) in lines.iter().enumerate() {
            let at = (left, 10.0 + TITLE + row as f64 * TITLE_ROW);
            self.text(line, Text::new(at, TITLE, Anchor::Start, INK));
        }
    }

    /// Adds the label of a horizontal axis, centred at `at`.
    pub(super) fn x_label(&mut self, text: &str, at: (f64, f64)) {
        self.text(text, Text::new(at, LABEL, Anchor::Middle, INK));
    }

    /// Adds the label of the vertical axis, centred at height `y`.
    pub(super) fn y_label(&mut self, text: &str, y: f64) {
        let style = Text::new((10.0 + LABEL, y), LABEL, Anchor::Middle, INK);
        self.text(text, Text { rotation: -90.0, ..style });
    }

    /// Adds lines of notes below a height.
    pub(super) fn notes(&mut self, lines: &[String], top: f64) {
        for (row, line) in lines.iter().enumerate() {
            let at = (16.0, top + (row as f64 + 0.5) * NOTE_ROW);
            self.text(line, Text::new(at, NOTE, Anchor::Start, FAINT));
        }
    }

    /// Returns the document, `width_mm` wide in print.
    pub(super) fn finish(self, width: f64, height: f64, width_mm: f64) -> String {
        let style = font::style_sheet();
        let family = font::FAMILY;
        let height_mm = width_mm * height / width;
        format!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" width="{width_mm:.1}mm" height="{height_mm:.1}mm" viewBox="0 0 {width:.2} {height:.2}" font-family="'{family}', Verdana, sans-serif">
<style>{style}</style>
<rect width="100%" height="100%" fill="#ffffff"/>
{}</svg>
"##,
            self.body
        )
    }
}

/// Wraps a title to lines of at most a width.
pub(super) fn wrapped_title(title: &str, width: f64) -> Vec<String> {
    font::wrapped(title, TITLE, width)
}

pub(super) fn title_height(lines: &[String]) -> f64 {
    lines.len().max(1) as f64 * TITLE_ROW
}

/// Wraps notes to lines that fit a page of the given width.
pub(super) fn wrapped_notes(notes: &[String], width: f64) -> Vec<String> {
    notes.iter().flat_map(|note| font::wrapped(note, NOTE, width - 32.0)).collect()
}

pub(super) fn notes_height(lines: &[String]) -> f64 {
    lines.len() as f64 * NOTE_ROW + 6.0
}

fn escaped(text: &str) -> String {
    // XML allows no control characters.
    let text = lab::terminal::one_line(text);
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
