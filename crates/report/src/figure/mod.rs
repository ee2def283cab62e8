//! Figures: a picture of x, y, series and a filter over an experiment's samples, as curves or as a
//! grid.
//!
//! A figure is data: a table of `figures.toml`, or the same made from `--x --y --series --where`.

mod absent;
mod cdf;
mod cell;
mod curve;
mod files;
mod grid;
mod line;
mod panel;
mod picture;
mod plot;
mod select;

pub use cell::Cell;
pub use curve::{Curve, Mark};
pub use files::write;
pub use grid::{Grid, GridRow};
pub use panel::Panel;
pub use picture::{Picture, picture};
pub use plot::Plot;

use lab::summary::SummaryError;
use machine::file::remedy;

/// Why there is no figure, in one line.
#[derive(Debug, thiserror::Error)]
pub enum FigureError {
    /// The run lacks what the figure shows.
    #[error("figure '{figure}': {why}")]
    Summary {
        /// The figure's id.
        figure: String,
        /// What is lacking.
        why: SummaryError,
    },
    /// A factor that the experiment does not have.
    #[error("figure '{figure}': '{factor}' is no factor of {experiment}; there are: {known}")]
    NoFactor {
        /// The figure's id.
        figure: String,
        /// The word that is no factor.
        factor: String,
        /// The experiment's id.
        experiment: String,
        /// The factors there are.
        known: String,
    },
    /// Several points would lie on one place.
    #[error(
        "figure '{figure}': several levels are left of {factors}; fix them with 'where', or make one the series"
    )]
    Several {
        /// The figure's id.
        figure: String,
        /// The factors with their levels.
        factors: String,
    },
    /// No point is left to draw.
    #[error("figure '{figure}': no value to draw at {at}: {why}")]
    Nothing {
        /// The figure's id.
        figure: String,
        /// What was looked for.
        at: String,
        /// Why there is nothing, and what to do.
        why: String,
    },
    /// A logarithmic axis and a value that has no logarithm.
    #[error(
        "figure '{figure}': {what} has no place on a logarithmic axis; use {axis} = \"{instead}\""
    )]
    NoLogarithm {
        /// The figure's id.
        figure: String,
        /// The value and where it is from.
        what: String,
        /// Which axis: `x_scale` or `y_scale`.
        axis: &'static str,
        /// The scale that would do.
        instead: &'static str,
    },
    /// A histogram in the journal cannot be read.
    #[error("figure '{figure}': the histogram of {at} is damaged: {why}; measure it again")]
    Histogram {
        /// The figure's id.
        figure: String,
        /// Where it is.
        at: String,
        /// What is wrong.
        why: String,
    },
    /// A line in another unit than the figure's.
    #[error("figure '{figure}': line '{line}' is in {unit}, but the figure in {own}")]
    Unit {
        /// The figure's id.
        figure: String,
        /// The line's label.
        line: String,
        /// The line's unit.
        unit: String,
        /// The figure's unit.
        own: String,
    },
    /// It cannot be drawn.
    #[error(transparent)]
    Chart(#[from] crate::chart::ChartError),
    /// A file cannot be made.
    #[error("{}: {why}; {}: {option} names the folder", path.display(), remedy(why))]
    File {
        /// The file.
        path: std::path::PathBuf,
        /// Why not.
        why: std::io::Error,
        /// The caller's option that names the folder.
        option: &'static str,
    },
}
