//! The font of all figures: its widths, for a layout in which no text overlaps, and its shapes,
//! for a picture that looks the same everywhere.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use allsorts::binary::read::ReadScope;
use allsorts::font_data::FontData;
use allsorts::subset::{CmapTarget, SubsetProfile, subset};
use base64::Engine as _;
use ttf_parser::Face;

/// The family's name inside and outside the file.
pub(super) const FAMILY: &str = "DejaVu Sans";

/// The font's file.
pub(super) fn file() -> &'static [u8] {
    dejavu::sans::regular()
}

static FACE: LazyLock<Option<Face<'static>>> = LazyLock::new(|| Face::parse(file(), 0).ok());

/// How wide a text is at a size, in the size's unit.
pub(super) fn width(text: &str, size: f64) -> f64 {
    let Some(face) = FACE.as_ref() else { return text.chars().count() as f64 * size * 0.6 };
    let advance = |c| face.glyph_index(c).and_then(|glyph| face.glyph_hor_advance(glyph));
    let units: f64 = text.chars().map(|c| f64::from(advance(c).unwrap_or(1229))).sum();
    units * size / f64::from(face.units_per_em())
}

/// A text broken into lines no wider than so much.
pub(super) fn wrapped(text: &str, size: f64, most: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(&format!("{line} {word}"), size) <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.into()),
        }
    }
    lines
}

/// A style sheet that brings the shapes of just the letters used along with the SVG.
pub(super) fn style_sheet(text: &str) -> Option<String> {
    let letters: BTreeSet<char> = text.chars().collect();
    let face = FACE.as_ref()?;
    let mut glyphs: Vec<u16> =
        letters.into_iter().filter_map(|c| face.glyph_index(c)).map(|glyph| glyph.0).collect();
    glyphs.push(0);
    glyphs.sort_unstable();
    glyphs.dedup();
    let font = ReadScope::new(file()).read::<FontData<'_>>().ok()?;
    let provider = font.table_provider(0).ok()?;
    let small = subset(&provider, &glyphs, &SubsetProfile::Minimal, CmapTarget::Unicode).ok()?;
    let data = base64::engine::general_purpose::STANDARD.encode(small);
    Some(format!(
        "@font-face{{font-family:'{FAMILY}';src:url(data:font/ttf;base64,{data}) format('truetype')}}"
    ))
}
