//! Drawing: a picture is drawn as SVG, from which PDF and PNG are rendered.
//!
//! Three libraries were tried on one log-log data set and rejected: plotters places marks on whole
//! pixels and has one kind of line and mark; kuva has no base-2 axis and draws the label of a limit
//! over the data; plotkit has no intervals. None avoids overlapping texts.

mod axis;
mod font;
mod grid;
mod legend;
mod page;
mod render;
mod style;
mod svg;

pub use render::{ImageFormat, render};

use std::path::{Path, PathBuf};

use crate::figure::{FigureError, Picture};

/// Draws a picture as SVG.
///
/// # Errors
/// Returns an error if the picture has no values, if a value has no position on its axis, or if the
/// columns of a grid do not fit the page.
pub fn draw(picture: &Picture) -> Result<String, FigureError> {
    match picture {
        Picture::Curves(plot) => page::draw(plot),
        Picture::Grid(grid) => grid::draw(grid),
    }
}

/// Writes a picture to the files `ID.svg`, `ID.pdf` and `ID.png` in `folder` and returns their paths.
/// `save` writes each: [`machine::file::write`] in a folder named by the user,
/// [`machine::file::replace`] in a results folder. `option` is the command-line option that sets the
/// folder; errors name it.
///
/// # Errors
/// Returns an error if the picture cannot be drawn or the folder cannot be written.
pub fn write(
    picture: &Picture,
    folder: &Path,
    option: &'static str,
    save: fn(&Path, &[u8]) -> std::io::Result<()>,
) -> Result<Vec<PathBuf>, FigureError> {
    let error = |path: &Path| {
        let path = path.to_path_buf();
        move |why: std::io::Error| FigureError::File { path, why, option }
    };
    std::fs::create_dir_all(folder).map_err(error(folder))?;
    let svg = draw(picture)?;
    let mut paths = Vec::new();
    for (extension, format) in ImageFormat::ALL {
        let path = folder.join(format!("{}.{extension}", picture.id()));
        save(&path, &render(&svg, format)?).map_err(error(&path))?;
        paths.push(path);
    }
    Ok(paths)
}
