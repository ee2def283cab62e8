//! Drawing: a picture becomes SVG, and from the same SVG come PDF and PNG.
//!
//! Our own drawing, after trying three libraries on one log-log data set: plotters places marks on
//! whole pixels and has one kind of line and mark, kuva has no base-2 axis and sets the limit's
//! label over the data, plotkit has no intervals. None keeps its texts from overlapping.

mod axis;
mod font;
mod grid;
mod legend;
mod page;
mod render;
mod sheet;
mod style;
mod svg;

pub use render::{Form, render};

use crate::figure::Picture;

/// Draws a picture as SVG.
///
/// # Errors
/// When there is nothing to draw, a value has no place on its axis, or cells have no room.
pub fn draw(picture: &Picture) -> Result<String, ChartError> {
    match picture {
        Picture::Curves(plot) => page::draw(plot),
        Picture::Grid(grid) => grid::draw(grid),
    }
}

/// Why a picture cannot be drawn, in one line.
#[derive(Debug, thiserror::Error)]
pub enum ChartError {
    /// A value that has no place.
    #[error("figure '{figure}': {what} cannot be placed on the {axis} axis")]
    NoPlace {
        /// The picture's id.
        figure: String,
        /// The value.
        what: String,
        /// Which axis.
        axis: &'static str,
    },
    /// Nothing to draw.
    #[error("figure '{0}': there is nothing to draw; measure first, or widen --where")]
    Empty(String),
    /// Numbers that are wider than their cells.
    #[error(
        "figure '{figure}': {columns} columns are too many for a page; turn rows and columns, or show fewer by 'where'"
    )]
    NoRoom {
        /// The picture's id.
        figure: String,
        /// How many there are.
        columns: usize,
    },
    /// The SVG cannot be turned into a PDF or PNG.
    #[error("the figure cannot be rendered: {0}")]
    Render(String),
}
