//! The font of all figures: text widths, for a layout without overlaps, and its glyphs, which are
//! embedded in each figure.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use allsorts::binary::read::ReadScope;
use allsorts::font_data::FontData;
use allsorts::subset::{CmapTarget, SubsetProfile, subset};
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

/// Returns a style sheet that embeds the glyphs of the characters of `text`.
pub(super) fn style_sheet(text: &str) -> Option<String> {
    let characters: BTreeSet<char> = text.chars().collect();
    let face = FACE.as_ref()?;
    let mut glyphs: Vec<u16> =
        characters.into_iter().filter_map(|c| face.glyph_index(c)).map(|glyph| glyph.0).collect();
    glyphs.push(0);
    glyphs.sort_unstable();
    glyphs.dedup();
    let font = ReadScope::new(file()).read::<FontData<'_>>().ok()?;
    let provider = font.table_provider(0).ok()?;
    let embedded = subset(&provider, &glyphs, &SubsetProfile::Minimal, CmapTarget::Unicode).ok()?;
    let data = base64::engine::general_purpose::STANDARD.encode(embedded);
    Some(format!(
        "@font-face{{font-family:'{FAMILY}';src:url(data:font/ttf;base64,{data}) format('truetype')}}"
    ))
}
