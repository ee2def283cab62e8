//! Figures: what a declared figure shows of a run, as curves or as a grid.
//!
//! Figures are declared in `figures.toml` or on the command line (`--x`, `--y`, `--series`,
//! `--where`).

mod cdf;
mod cell;
mod curve;
mod grid;
mod notes;
mod plot;
mod select;

pub use cell::Cell;
pub use curve::{Curve, Mark};
pub use grid::{Grid, GridRow, Panel};
pub use plot::Plot;

use lab::figure::{Figure, FigureKind};
use lab::journal::Run;
use lab::summary::SummaryError;
use machine::file::remedy;

use select::{Selection, summary};

/// A figure with its values, ready to be drawn.
#[derive(Debug, Clone, PartialEq)]
pub enum Picture {
    /// Curves over two axes.
    Curves(Plot),
    /// Cells in rows and columns.
    Grid(Grid),
}

impl Picture {
    /// Returns the base name of its files.
    pub fn id(&self) -> &str {
        match self {
            Self::Curves(plot) => &plot.id,
            Self::Grid(grid) => &grid.id,
        }
    }
}

/// Fills a figure with the values of a run.
///
/// # Errors
/// Returns an error if the figure names something that the run lacks, if several points would be
/// drawn at one position, or if no point has a value.
pub fn picture(figure: &Figure, run: &Run) -> Result<Picture, FigureError> {
    let summary = summary(figure, run, &figure.experiment, figure.metric.as_deref())?;
    let selection = Selection::new(figure, run, &summary)?;
    Ok(match figure.kind {
        FigureKind::Curves => Picture::Curves(plot::plot(figure, run, &summary, &selection)?),
        FigureKind::Grid => Picture::Grid(grid::grid(figure, run, &summary, &selection)?),
    })
}

/// Error in making, drawing or writing a figure; displayed as one line.
#[derive(Debug, thiserror::Error)]
pub enum FigureError {
    /// The run lacks the experiment or metric.
    #[error("figure '{figure}': {why}")]
    Summary {
        /// The figure's id.
        figure: String,
        /// The values missing from the run.
        why: SummaryError,
    },
    /// The experiment has no such factor.
    #[error("figure '{figure}': {experiment} has no factor '{factor}'; expected one of {known}")]
    NoFactor {
        /// The figure's id.
        figure: String,
        /// The unknown factor.
        factor: String,
        /// The experiment's id.
        experiment: String,
        /// The factors of the experiment.
        known: String,
    },
    /// Several points have the same position.
    #[error(
        "figure '{figure}': several levels of {factors}; fix them with 'where' or choose one as series"
    )]
    Several {
        /// The figure's id.
        figure: String,
        /// The factors with their levels.
        factors: String,
    },
    /// No selected point has a value.
    #[error("figure '{figure}': no value to draw at {at}: {why}")]
    Nothing {
        /// The figure's id.
        figure: String,
        /// The levels searched for.
        at: String,
        /// The cause and the fix.
        why: String,
    },
    /// A value is zero or negative on a logarithmic axis.
    #[error("figure '{figure}': {what} has no logarithm; use {axis} = \"{instead}\"")]
    NoLogarithm {
        /// The figure's id.
        figure: String,
        /// The value and its origin.
        what: String,
        /// The axis: `x_scale` or `y_scale`.
        axis: &'static str,
        /// A scale that fits.
        instead: &'static str,
    },
    /// A level on a numeric x axis is not a number.
    #[error("figure '{figure}': {what} is not a number; use x_scale = \"category\"")]
    NotNumber {
        /// The figure's id.
        figure: String,
        /// The factor and its level.
        what: String,
    },
    /// A histogram in the journal cannot be decoded.
    #[error("figure '{figure}': the histogram of {at} is damaged: {why}; measure it again")]
    Histogram {
        /// The figure's id.
        figure: String,
        /// The point and round.
        at: String,
        /// The fault.
        why: String,
    },
    /// A reference line has another unit than the figure.
    #[error("figure '{figure}': line '{line}' is in {unit}; expected {expected}")]
    Unit {
        /// The figure's id.
        figure: String,
        /// The line's label.
        line: String,
        /// The line's unit.
        unit: String,
        /// The figure's unit.
        expected: String,
    },
    /// A value has no position on its axis.
    #[error("figure '{figure}': {what} has no position on the {axis} axis")]
    NoPosition {
        /// The figure's id.
        figure: String,
        /// The value.
        what: String,
        /// The axis: `horizontal` or `vertical`.
        axis: &'static str,
    },
    /// A plot without curves or a grid without cells.
    #[error("figure '{0}': nothing to draw; measure first or widen --where")]
    Empty(String),
    /// The numbers of a grid are wider than its cells.
    #[error(
        "figure '{figure}': {columns} columns do not fit the page; swap rows and columns or select fewer with 'where'"
    )]
    TooWide {
        /// The figure's id.
        figure: String,
        /// Number of columns.
        columns: usize,
    },
    /// The SVG cannot be converted to PDF or PNG.
    #[error("cannot render the figure: {0}")]
    Render(String),
    /// A file or its folder cannot be written.
    #[error("{}: {why}; {} (folder: {option})", path.display(), remedy(why))]
    File {
        /// The file or folder.
        path: std::path::PathBuf,
        /// The error of the system.
        why: std::io::Error,
        /// The command-line option that sets the folder.
        option: &'static str,
    },
}
