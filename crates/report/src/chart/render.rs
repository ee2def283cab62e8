//! PDF and PNG, from the SVG that was drawn once.

use std::sync::{Arc, LazyLock};

use krilla::Document;
use krilla::geom::Size;
use krilla::page::PageSettings;
use krilla_svg::{SurfaceExt, SvgSettings};
use resvg::tiny_skia::{Color, Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

use super::{ChartError, font};

/// The form of a picture's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Vectors, for pages.
    Svg,
    /// Vectors, for papers; the font is inside.
    Pdf,
    /// Dots, 300 an inch.
    Png,
}

impl Form {
    /// The forms with the endings of their files.
    pub const ALL: [(&'static str, Self); 3] =
        [("svg", Self::Svg), ("pdf", Self::Pdf), ("png", Self::Png)];
}

/// Dots an inch of a PNG, and what SVG takes an inch for.
const DOTS: f32 = 300.0;
const SVG_DOTS: f32 = 96.0;
const POINTS: f32 = 72.0;

/// The one font, so that no machine's own gets in.
static FONTS: LazyLock<Arc<fontdb::Database>> = LazyLock::new(|| {
    let mut fonts = fontdb::Database::new();
    fonts.load_font_data(font::file().to_vec());
    fonts.set_sans_serif_family(font::FAMILY);
    Arc::new(fonts)
});

/// The bytes of the file of a drawn picture.
///
/// # Errors
/// When the SVG cannot be read or there is no memory for its dots.
pub fn render(svg: &str, form: Form) -> Result<Vec<u8>, ChartError> {
    if form == Form::Svg {
        return Ok(svg.as_bytes().to_vec());
    }
    let options =
        Options { font_family: font::FAMILY.into(), fontdb: FONTS.clone(), ..Options::default() };
    let fault = |e: &dyn std::fmt::Display| ChartError::Render(e.to_string());
    let tree = Tree::from_str(svg, &options).map_err(|e| fault(&e))?;
    if form == Form::Pdf { pdf(&tree) } else { png(&tree) }
}

fn png(tree: &Tree) -> Result<Vec<u8>, ChartError> {
    let zoom = DOTS / SVG_DOTS;
    let size = tree.size().to_int_size().scale_by(zoom);
    let mut dots = size
        .and_then(|size| Pixmap::new(size.width(), size.height()))
        .ok_or_else(|| ChartError::Render("it is too large".into()))?;
    // Where the size is no whole number of dots, the last ones are not covered.
    dots.fill(Color::WHITE);
    resvg::render(tree, Transform::from_scale(zoom, zoom), &mut dots.as_mut());
    dots.encode_png().map_err(|e| ChartError::Render(e.to_string()))
}

fn pdf(tree: &Tree) -> Result<Vec<u8>, ChartError> {
    let fault = || ChartError::Render("its size is no page's".into());
    let zoom = POINTS / SVG_DOTS;
    let (width, height) = (tree.size().width() * zoom, tree.size().height() * zoom);
    let mut document = Document::new();
    let settings = PageSettings::from_wh(width, height).ok_or_else(fault)?;
    let mut page = document.start_page_with(settings);
    let mut surface = page.surface();
    let size = Size::from_wh(width, height).ok_or_else(fault)?;
    surface.draw_svg(tree, size, SvgSettings::default());
    surface.finish();
    page.finish();
    document.finish().map_err(|e| ChartError::Render(format!("{e:?}")))
}
