//! Distributions: the histograms of all rounds together, as the share of values up to each.

use std::collections::BTreeMap;

use lab::histogram::{MAX_COUNT, decode_histogram};
use lab::journal::Run;
use lab::point::Point;
use lab::sample::Sample;
use lab::summary::{self, Summary};

use super::FigureError;
use super::curve::{Curve, Mark};
use super::select::Selection;
use lab::figure::Figure;

/// Values from which a curve ends at [`END`]: one stall of milliseconds among a million crossings would
/// press all others against the axis.
const MANY: f64 = 10_000.0;
/// Where the curve of many values ends.
pub(super) const END: f64 = 0.999;
/// Shares at which the distribution is drawn beside every half percent: the tail.
const TAIL: [f64; 3] = [0.997, 0.998, END];

/// A curve for each row of the selection: x is the metric, y the share.
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
                curves.push(Curve { name: series.to_string(), marks });
            }
        }
    }
    if curves.is_empty() {
        return Err(FigureError::Nothing {
            figure: figure.id.clone(),
            at: summary.experiment.clone(),
            why: format!("no sample has a histogram of '{}'; leave out 'y'", summary.metric),
        });
    }
    Ok(curves)
}

/// The distribution of one point over all rounds that count.
fn distribution(
    figure: &Figure,
    run: &Run,
    summary: &Summary,
    point: &Point,
) -> Result<Vec<Mark>, FigureError> {
    let own = |sample: &&Sample| sample.point == *point && !sample.twin;
    let all = summary::samples(run, &summary.experiment, &summary.environment).into_iter();
    // Of several samples of a round the last one counts.
    let last: BTreeMap<u32, &Sample> =
        all.filter(own).map(|sample| (sample.round, sample)).collect();
    let mut merged = None;
    for sample in last.values().filter(|sample| sample.is_valid()) {
        let Some(text) = sample.histograms.get(&summary.metric) else { continue };
        let fault = |why: String| FigureError::Histogram {
            figure: figure.id.clone(),
            at: format!("{point} in round {}", sample.round),
            why,
        };
        let histogram = decode_histogram(text).map_err(fault)?;
        match &mut merged {
            None => merged = Some(histogram),
            // The histogram's own sums are not checked.
            Some(all) if all.len() + histogram.len() > MAX_COUNT => {
                return Err(fault(format!("its rounds add up to more than {MAX_COUNT} counts")));
            }
            Some(all) => {
                all.auto(true);
                all.add(&histogram).map_err(|e| fault(e.to_string()))?;
            }
        }
    }
    let Some(all) = merged.filter(|all| !all.is_empty()) else { return Ok(Vec::new()) };
    let count = all.len() as f64;
    // A share that one value in all cannot show is left out.
    let tail = TAIL.into_iter().filter(|share| (1.0 - share) * count >= 1.0);
    let end = (count < MANY).then_some(1.0);
    let shares = (0..200).map(|half| f64::from(half) / 200.0).chain(tail).chain(end);
    let mut marks: Vec<Mark> = Vec::new();
    for share in shares {
        let x = all.value_at_quantile(share) as f64;
        match marks.last_mut() {
            Some(mark) if mark.x >= x => mark.y = share,
            _ => marks.push(Mark { x, y: share, interval: None }),
        }
    }
    Ok(marks)
}
