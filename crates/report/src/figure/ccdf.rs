//! Complementary cumulative distributions from the merged histograms of all rounds.

use lab::histogram::{MAX_COUNT, decode_histogram};
use lab::journal::Run;
use lab::point::Point;
use lab::summary::{Samples, Summary};

use super::FigureError;
use super::curve::{Curve, Mark};
use super::select::Selection;
use lab::figure::Figure;

/// Shares of values at most x, in addition to every half per cent: the tail, which a logarithmic axis shows.
const TAIL: [f64; 4] = [0.998, 0.999, 0.9995, 0.9999];
/// Number of values above the end of a curve. A share of fewer is that of single stalls.
const ABOVE_END: f64 = 5.0;

/// Returns one curve per row of the selection: x is the metric, y the share of values above it.
pub(super) fn curves(
    figure: &Figure,
    run: &Run,
    summary: &Summary,
    selection: &Selection<'_>,
) -> Result<Vec<Curve>, FigureError> {
    let mut curves = Vec::new();
    for series in selection.levels(|(series, _)| series) {
        let rows = selection.rows.iter().filter(|((of, _), _)| *of == series);
        for (_, row) in rows {
            let marks = distribution(figure, run, summary, &row.point)?;
            if !marks.is_empty() {
                let (level, metric) = (series.to_string(), summary.metric.clone());
                curves.push(Curve { name: level.clone(), level, metric, marks });
            }
        }
    }
    if curves.is_empty() {
        return Err(FigureError::Nothing {
            figure: figure.id.clone(),
            at: summary.experiment.clone(),
            why: format!("no sample has a histogram of '{}'; omit 'y'", summary.metric),
        });
    }
    Ok(curves)
}

/// Returns the distribution of one point over all valid rounds.
fn distribution(
    figure: &Figure,
    run: &Run,
    summary: &Summary,
    point: &Point,
) -> Result<Vec<Mark>, FigureError> {
    let samples = Samples::in_environment(run, &summary.experiment, &summary.environment);
    let mut merged = None;
    let rounds = samples.rounds(point, false).map(|(_, sample)| sample);
    for sample in rounds.filter(|sample| sample.is_valid()) {
        let Some(text) = sample.histograms.get(&summary.metric) else { continue };
        let error = |why: String| FigureError::Drawing {
            figure: figure.id.clone(),
            what: format!(
                "the histogram of {point} in round {} is damaged: {why}; measure it again",
                sample.round
            ),
        };
        let histogram = decode_histogram(text).map_err(error)?;
        match &mut merged {
            None => merged = Some(histogram),
            // `Histogram::add` does not check its sums.
            Some(all) if all.len() + histogram.len() > MAX_COUNT => {
                return Err(error(format!("its rounds add up to more than {MAX_COUNT} counts")));
            }
            Some(all) => {
                all.auto(true);
                all.add(&histogram).map_err(|e| error(e.to_string()))?;
            }
        }
    }
    let Some(all) = merged.filter(|all| !all.is_empty()) else { return Ok(Vec::new()) };
    let count = all.len() as f64;
    let shares = (0..200).map(|half| f64::from(half) / 200.0).chain(TAIL);
    let shares = shares.filter(|share| *share == 0.0 || (1.0 - share) * count >= ABOVE_END);
    let mut marks: Vec<Mark> = Vec::new();
    for share in shares {
        let x = all.value_at_quantile(share) as f64;
        match marks.last_mut() {
            Some(mark) if mark.x >= x => mark.y = 1.0 - share,
            _ => marks.push(Mark { x, y: 1.0 - share, interval: None, point: None }),
        }
    }
    Ok(marks)
}
