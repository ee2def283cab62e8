//! Rendering of SVG to PDF and PNG.

use std::sync::{Arc, LazyLock};

use krilla::Document;
use krilla::geom::Size;
use krilla::page::PageSettings;
use krilla_svg::{SurfaceExt, SvgSettings};
use resvg::tiny_skia::{Color, Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

use super::font;
use crate::figure::FigureError;

/// File format of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageFormat {
    /// Vector graphics for the web.
    Svg,
    /// Vector graphics for papers, with the font embedded.
    Pdf,
    /// Pixels, 300 per inch.
    Png,
}

impl ImageFormat {
    /// All formats with their file extensions.
    pub const ALL: [(&'static str, Self); 3] =
        [("svg", Self::Svg), ("pdf", Self::Pdf), ("png", Self::Png)];
}

/// Pixels per inch of a PNG.
const PNG_PER_INCH: f32 = 300.0;
/// SVG units per inch.
const SVG_PER_INCH: f32 = 96.0;
/// PDF points per inch.
const PDF_PER_INCH: f32 = 72.0;

/// Only the embedded font: fonts of the machine would change the result.
static FONTS: LazyLock<Arc<fontdb::Database>> = LazyLock::new(|| {
    let mut fonts = fontdb::Database::new();
    fonts.load_font_data(font::file().to_vec());
    fonts.set_sans_serif_family(font::FAMILY);
    Arc::new(fonts)
});

/// Returns the contents of the file of a picture drawn as SVG.
///
/// # Errors
/// Returns [`FigureError::Render`] if the SVG is invalid or too large.
pub fn render(svg: &str, format: ImageFormat) -> Result<Vec<u8>, FigureError> {
    if format == ImageFormat::Svg {
        return Ok(svg.as_bytes().to_vec());
    }
    let options =
        Options { font_family: font::FAMILY.into(), fontdb: FONTS.clone(), ..Options::default() };
    let error = |e: &dyn std::fmt::Display| FigureError::Render(e.to_string());
    let tree = Tree::from_str(svg, &options).map_err(|e| error(&e))?;
    if format == ImageFormat::Pdf { pdf(&tree) } else { png(&tree) }
}

fn png(tree: &Tree) -> Result<Vec<u8>, FigureError> {
    let zoom = PNG_PER_INCH / SVG_PER_INCH;
    let size = tree.size().to_int_size().scale_by(zoom);
    let mut pixels = size
        .and_then(|size| Pixmap::new(size.width(), size.height()))
        .ok_or_else(|| FigureError::Render("its size is too large".into()))?;
    // The drawing may cover the last row and column of pixels only in part.
    pixels.fill(Color::WHITE);
    resvg::render(tree, Transform::from_scale(zoom, zoom), &mut pixels.as_mut());
    pixels.encode_png().map_err(|e| FigureError::Render(e.to_string()))
}

fn pdf(tree: &Tree) -> Result<Vec<u8>, FigureError> {
    let error = || FigureError::Render("its size is not a valid page size".into());
    let zoom = PDF_PER_INCH / SVG_PER_INCH;
    let (width, height) = (tree.size().width() * zoom, tree.size().height() * zoom);
    let mut document = Document::new();
    let settings = PageSettings::from_wh(width, height).ok_or_else(error)?;
    let mut page = document.start_page_with(settings);
    let mut surface = page.surface();
    let size = Size::from_wh(width, height).ok_or_else(error)?;
    surface.draw_svg(tree, size, SvgSettings::default());
    surface.finish();
    page.finish();
    document.finish().map_err(|e| FigureError::Render(format!("{e:?}")))
}
