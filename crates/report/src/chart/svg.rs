//! Writing SVG.

use super::font::FAMILY;

/// An SVG under way: elements in the order in which they are drawn.
#[derive(Default)]
pub(super) struct Svg {
    body: String,
    /// All letters used, for the font.
    pub(super) letters: String,
}

/// Where a text stands relative to its place.
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

/// A text to set.
#[derive(Debug, Clone, Copy)]
pub(super) struct Text<'a> {
    pub(super) at: (f64, f64),
    pub(super) size: f64,
    pub(super) anchor: Anchor,
    /// Degrees, clockwise.
    pub(super) turn: f64,
    pub(super) colour: &'a str,
}

impl Svg {
    pub(super) fn raw(&mut self, element: &str) {
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

    pub(super) fn text(&mut self, words: &str, how: Text<'_>) {
        let ((x, y), anchor) = (how.at, how.anchor.name());
        let turn = match how.turn {
            0.0 => String::new(),
            turn => format!(r#" transform="rotate({turn} {x:.2} {y:.2})""#),
        };
        self.letters.push_str(words);
        self.raw(&format!(
            r#"<text x="{x:.2}" y="{y:.2}" font-size="{}" text-anchor="{anchor}" fill="{}"{turn}>{}</text>"#,
            how.size,
            how.colour,
            escaped(words)
        ));
    }

    /// The whole file, `millimetres` wide in print.
    pub(super) fn finish(self, width: f64, height: f64, millimetres: f64) -> String {
        let style = super::font::style_sheet(&self.letters).unwrap_or_default();
        let tall = millimetres * height / width;
        format!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" width="{millimetres:.1}mm" height="{tall:.1}mm" viewBox="0 0 {width:.2} {height:.2}" font-family="'{FAMILY}', Verdana, sans-serif">
<style>{style}</style>
<rect width="100%" height="100%" fill="#ffffff"/>
{}</svg>
"##,
            self.body
        )
    }
}

fn escaped(text: &str) -> String {
    // XML takes no control characters.
    let text = lab::terminal::one_line(text);
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
