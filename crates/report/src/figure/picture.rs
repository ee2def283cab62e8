//! From a figure and a run to what is drawn.

use lab::journal::Run;
use lab::summary::Summary;

use super::curve::rounds;
use super::select::{Selection, summary};
use super::{FigureError, Grid, Plot, grid, plot};
use crate::format::Scale;
use crate::table::{floor, phrase};
use lab::figure::{Figure, FigureKind};

/// What is drawn.
#[derive(Debug, Clone, PartialEq)]
pub enum Picture {
    /// Curves over two axes.
    Curves(Plot),
    /// Cells in rows and columns.
    Grid(Grid),
}

impl Picture {
    /// The name of its files.
    pub fn id(&self) -> &str {
        match self {
            Self::Curves(plot) => &plot.id,
            Self::Grid(grid) => &grid.id,
        }
    }
}

/// What a figure draws of a run.
///
/// # Errors
/// When the figure names what the run does not have, when several points would lie on one place,
/// or when nothing is left to draw.
pub fn picture(figure: &Figure, run: &Run) -> Result<Picture, FigureError> {
    let summary = summary(figure, run, &figure.experiment, figure.metric.as_deref())?;
    let selection = Selection::of(figure, run, &summary)?;
    Ok(match figure.kind {
        FigureKind::Curves => Picture::Curves(plot::plot(figure, run, &summary, &selection)?),
        FigureKind::Grid => Picture::Grid(grid::grid(figure, run, &summary, &selection)?),
    })
}

/// `throughput in GB/s`
pub(super) fn label(metric: &str, scale: &Scale) -> String {
    match scale.unit() {
        "" => metric.into(),
        unit => format!("{metric} in {unit}"),
    }
}

/// Where it was measured and how: two lines.
pub(super) fn facts(run: &Run, summary: &Summary, selection: &Selection<'_>) -> Vec<String> {
    let environment = run.record.environments.get(&summary.environment);
    let cpu = environment.map(|e| e.cpu.brand.as_str()).filter(|brand| !brand.is_empty());
    let cpu = cpu.map(|brand| format!(", {brand}")).unwrap_or_default();
    let how = [
        format!("profile {}", run.record.profile.name()),
        rounds(selection, summary),
        floor(&summary.floors),
    ];
    let fixed: Vec<_> = selection.fixed.0.iter().map(|(f, level)| phrase(f, level)).collect();
    let mut facts = vec![format!("{}{cpu}; {}", run.record.host, how.join("; "))];
    facts.extend((!fixed.is_empty()).then(|| fixed.join(", ")));
    facts
}
