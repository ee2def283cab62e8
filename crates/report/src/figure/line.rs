//! Lines across a figure: a value of the run to compare with.

use lab::journal::Run;

use super::FigureError;
use super::select::summary;
use lab::figure::{Extremum, Figure, ReferenceLine};

/// The value of a line in the figure's unit.
pub(super) fn value(
    figure: &Figure,
    line: &ReferenceLine,
    run: &Run,
    (metric, unit): (&str, &str),
) -> Result<f64, FigureError> {
    let experiment = line.experiment.as_deref().unwrap_or(&figure.experiment);
    let of_figure = experiment == figure.experiment;
    let metric = line.metric.as_deref().or(of_figure.then_some(metric));
    let summary = summary(figure, run, experiment, metric)?;
    if summary.record.unit != unit {
        return Err(FigureError::Unit {
            figure: figure.id.clone(),
            line: line.label.clone(),
            unit: summary.record.unit,
            own: unit.into(),
        });
    }
    let rows = summary.rows.iter().filter(|row| line.filter.matches(&row.point));
    let medians = rows.filter_map(|row| Some(row.estimate?.median));
    let found = match line.of {
        Extremum::Largest => medians.max_by(f64::total_cmp),
        Extremum::Smallest => medians.min_by(f64::total_cmp),
    };
    found.ok_or_else(|| FigureError::Nothing {
        figure: figure.id.clone(),
        at: format!("line '{}' of {experiment}", line.label),
        why: "no such point has a value; see 'tollgate show'".into(),
    })
}
