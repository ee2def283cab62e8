//! What all figures share: widths, sizes of letters, title, labels of axes, notes.

use super::font;
use super::svg::{Anchor, Svg, Text};

/// The width of a figure over two columns of a paper.
pub(super) const MILLIMETRES: f64 = 175.0;
pub(super) const WIDTH: f64 = 700.0;
pub(super) const TICK: f64 = 11.0;
pub(super) const LABEL: f64 = 12.5;
pub(super) const TITLE: f64 = 14.0;
const NOTE: f64 = 9.5;
const NOTE_ROW: f64 = NOTE * 1.35;
/// How much labels lean, in degrees.
pub(super) const LEAN: f64 = 35.0;
pub(super) const INK: &str = "#222222";
pub(super) const FAINT: &str = "#666666";

/// What stands above a figure.
pub(super) fn title(svg: &mut Svg, words: &str, left: f64) {
    let at = (left, 10.0 + TITLE);
    svg.text(words, Text { at, size: TITLE, anchor: Anchor::Start, turn: 0.0, colour: INK });
}

/// The label of a horizontal axis, around a place.
pub(super) fn label_under(svg: &mut Svg, words: &str, at: (f64, f64)) {
    svg.text(words, Text { at, size: LABEL, anchor: Anchor::Middle, turn: 0.0, colour: INK });
}

/// The label of the vertical axis, around a height.
pub(super) fn label_beside(svg: &mut Svg, words: &str, y: f64) {
    let at = (10.0 + LABEL, y);
    svg.text(words, Text { at, size: LABEL, anchor: Anchor::Middle, turn: -90.0, colour: INK });
}

/// Notes in lines that fit a page of a width.
pub(super) fn wrapped(notes: &[String], width: f64) -> Vec<String> {
    notes.iter().flat_map(|note| font::wrapped(note, NOTE, width - 32.0)).collect()
}

pub(super) fn notes_height(lines: &[String]) -> f64 {
    lines.len() as f64 * NOTE_ROW + 6.0
}

/// Lines of notes under a height.
pub(super) fn notes(svg: &mut Svg, lines: &[String], top: f64) {
    for (row, line) in lines.iter().enumerate() {
        let at = (16.0, top + (row as f64 + 0.5) * NOTE_ROW);
        svg.text(line, Text { at, size: NOTE, anchor: Anchor::Start, turn: 0.0, colour: FAINT });
    }
}
