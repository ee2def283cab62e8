//! Figures: what a declared figure shows of a run, as curves or as a grid.
//!
//! Figures are declared in `figures.toml` or on the command line (`--x`, `--y`, `--series`,
//! `--where`).

mod ccdf;
mod cell;
mod curve;
mod grid;
mod notes;
mod plot;
mod published;
mod select;
mod summaries;

pub use cell::Cell;
pub use curve::{Curve, Mark};
pub use grid::{Grid, GridRow, Panel};
pub use plot::Plot;
pub use published::{Published, PublishedCurve, PublishedMark, PublishedRatio};
pub use summaries::Summaries;

use lab::figure::{Figure, FigureKind};
use lab::summary::SummaryError;
use machine::file::remedy;

use select::{Selection, summary};

/// A figure with its values, ready to be drawn.
#[allow(clippy::large_enum_variant, reason = "one exists at a time")]
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
pub fn picture(figure: &Figure, summaries: &Summaries) -> Result<Picture, FigureError> {
    let summary = summary(figure, summaries, &figure.experiment, figure.metric.as_deref())?;
    let selection = Selection::new(figure, summaries.run(), &summary)?;
    Ok(match figure.kind {
        FigureKind::Curves => Picture::Curves(plot::plot(figure, summaries, &summary, &selection)?),
        FigureKind::Grid => Picture::Grid(grid::grid(figure, summaries, &summary, &selection)?),
    })
}

/// Error in making, drawing or writing a figure; displayed as one line.
#[derive(Debug, thiserror::Error)]
pub enum FigureError {
    /// The run lacks the experiment or metric.
    #[error("figure '{figure}': {why}")]
    Summary {
        /// The figure's ID.
        figure: String,
        /// The values missing from the run.
        why: SummaryError,
    },
    /// No selected point has a value.
    #[error("figure '{figure}': no value to draw at {at}: {why}")]
    Nothing {
        /// The figure's ID.
        figure: String,
        /// The levels searched for.
        at: String,
        /// The cause and the fix.
        why: String,
    },
    /// The declaration does not fit the samples, e.g. because of a value without logarithm.
    #[error("figure '{figure}': {what}")]
    Declaration {
        /// The figure's ID.
        figure: String,
        /// The cause and the fix.
        what: String,
    },
    /// The values cannot be drawn, e.g. because a grid is wider than the page.
    #[error("figure '{figure}': {what}")]
    Drawing {
        /// The figure's ID.
        figure: String,
        /// The cause and the fix.
        what: String,
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

impl FigureError {
    fn declaration(figure: &Figure, what: String) -> Self {
        Self::Declaration { figure: figure.id.clone(), what }
    }

    /// Returns the error of a plot without curves or a grid without cells.
    pub(crate) fn nothing_to_draw(id: &str) -> Self {
        let what = "nothing to draw; measure first or widen --where".into();
        Self::Drawing { figure: id.into(), what }
    }

    fn no_logarithm(figure: &Figure, what: &str, axis: &str) -> Self {
        Self::declaration(figure, format!("{what} has no logarithm; use {axis} = \"linear\""))
    }
}
