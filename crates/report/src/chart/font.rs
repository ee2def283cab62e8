//! The font of all figures: text widths, for a layout without overlaps, and a subset that each figure
//! embeds.

use std::sync::LazyLock;

use base64::Engine as _;
use ttf_parser::Face;

/// Family name of the font.
pub(super) const FAMILY: &str = "DejaVu Sans";

/// Returns the font file.
pub(super) fn file() -> &'static [u8] {
    dejavu::sans::regular()
}

static FACE: LazyLock<Option<Face<'static>>> = LazyLock::new(|| Face::parse(file(), 0).ok());

/// Returns the width of a text in the unit of the font size.
pub(super) fn width(text: &str, size: f64) -> f64 {
    let Some(face) = FACE.as_ref() else { return text.chars().count() as f64 * size * 0.6 };
    let advance = |c| face.glyph_index(c).and_then(|glyph| face.glyph_hor_advance(glyph));
    let units: f64 = text.chars().map(|c| f64::from(advance(c).unwrap_or(1229))).sum();
    units * size / f64::from(face.units_per_em())
}

/// Wraps a text to lines of at most `max_width`.
pub(super) fn wrapped(text: &str, size: f64, max_width: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(&format!("{line} {word}"), size) <= max_width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.into()),
        }
    }
    lines
}

/// The glyphs that an SVG embeds: ASCII, Latin-1, Greek letters and common symbols. A viewer shows other
/// characters in a font of its own.
const SUBSET: &[u8] = include_bytes!("../../fonts/DejaVuSans-subset.ttf");

/// Returns a style sheet that embeds the subset.
pub(super) fn style_sheet() -> String {
    let data = base64::engine::general_purpose::STANDARD.encode(SUBSET);
    format!(
        "@font-face{{font-family:'{FAMILY}';src:url(data:font/ttf;base64,{data}) format('truetype')}}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subset_has_the_glyphs_of_the_font() {
        let (font, subset) = (FACE.as_ref().unwrap(), Face::parse(SUBSET, 0).unwrap());
        assert_eq!(subset.units_per_em(), font.units_per_em());
        let ascii_and_latin = (' '..='~').chain('\u{a0}'..='\u{ff}');
        for c in ascii_and_latin.chain("αλμσΩ–—…′″⁰¹²³⁴⁵⁶⁷⁸⁹⁻₀₁₂×±·µ€←→∞√≈≠≤≥✓✗".chars())
        {
            let advance = |face: &Face<'_>| {
                face.glyph_index(c).and_then(|glyph| face.glyph_hor_advance(glyph))
            };
            assert_eq!(advance(&subset), advance(font), "{c}");
            let outline = |face: &Face<'_>| face.glyph_index(c).map(|g| face.glyph_bounding_box(g));
            assert_eq!(outline(&subset), outline(font), "{c}");
        }
    }
}
