//! Published values of a figure's points. They come from the claims that state them, so that no number is declared twice.

use crate::claim::{Claim, Condition};
use crate::experiment::Experiment;
use crate::metric::Metric;
use crate::point::{Filter, Level, OneOrMany};
use crate::subject::Subject;

use super::{Figure, ReferenceLine};

/// A published value of a point of a figure, or the ratio of two points.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedValue {
    /// ID of the claim that states it.
    pub claim: String,
    /// The publication.
    pub source: String,
    /// Hardware on which it was measured.
    pub on: Option<String>,
    /// The metric.
    pub metric: String,
    /// Level of the series; empty if the figure has none.
    pub series: Level,
    /// Level along x; empty if the figure has no such factor.
    pub x: Level,
    /// Value in the unit of the figure, or a ratio.
    pub value: f64,
    /// Levels of series and x to which `value` is a ratio; `None` if it is no ratio.
    pub relative_to: Option<(Level, Level)>,
}

impl PublishedValue {
    /// Returns its publication and the hardware on which it was measured.
    pub fn described(&self) -> String {
        match &self.on {
            Some(on) => format!("{}, on {on}", self.source),
            None => self.source.clone(),
        }
    }
}

/// Returns the published values of the points that a figure shows. Values in another unit than the figure's, e.g. ticks
/// of another computer's counter next to times, are not among them.
///
/// # Errors
/// Returns one line for an unknown metric.
pub(super) fn of_figure(
    figure: &Figure,
    claims: &[Claim],
    subject: &Subject,
) -> Result<Vec<PublishedValue>, String> {
    let mut metrics = vec![subject.metric(figure.metric.as_deref())?];
    for more in &figure.more_metrics {
        metrics.push(subject.metric(Some(more))?);
    }
    let stating = stating(claims, subject.experiment, &metrics);
    Ok(stating.flat_map(|(claim, it)| values(figure, claim, it, subject.experiment)).collect())
}

/// Returns the published values of the points of a reference line.
///
/// # Errors
/// Returns one line for an unknown metric.
pub(super) fn of_line(
    line: &ReferenceLine,
    claims: &[Claim],
    subject: &Subject,
) -> Result<Vec<PublishedValue>, String> {
    let metric = subject.metric(line.metric.as_deref())?;
    let is_within = |(factor, levels): (&String, &OneOrMany)| {
        levels.levels().iter().all(|level| permits(line.filter.0.get(factor), level))
    };
    let of_claim = |(claim, metric): (&Claim, &Metric)| {
        let published = claim.published.as_ref().filter(|it| it.unit == metric.unit)?;
        let is_value = match condition(claim) {
            None | Some(Condition::Value(_)) => true,
            Some(_) => false,
        };
        let is_about = is_value && claim.filter.0.iter().all(is_within);
        let nowhere = (Level::from(""), Level::from(""));
        is_about.then(|| value(claim, published.value, nowhere, None, metric))
    };
    Ok(stating(claims, subject.experiment, &[metric]).filter_map(of_claim).collect())
}

/// Returns the claims of sources that state a value of one of the metrics, with the metric.
fn stating<'a>(
    claims: &'a [Claim],
    experiment: &'a Experiment,
    metrics: &'a [&'static Metric],
) -> impl Iterator<Item = (&'a Claim, &'static Metric)> {
    let id = experiment.id();
    let is_stated = move |claim: &&Claim| {
        claim.experiment == id && claim.published.is_some() && !claim.is_promise()
    };
    claims.iter().filter(is_stated).filter_map(|claim| {
        let name = claim.metric.as_deref().unwrap_or(&experiment.metric);
        Some((claim, *metrics.iter().find(|metric| metric.name == name)?))
    })
}

fn condition(claim: &Claim) -> Option<&Condition> {
    claim.expect.as_ref().map(|expect| &expect.kind)
}

/// Returns the values of a claim at the positions of a figure.
fn values(
    figure: &Figure,
    claim: &Claim,
    metric: &Metric,
    experiment: &Experiment,
) -> Vec<PublishedValue> {
    let Some(published) = &claim.published else { return Vec::new() };
    let make = |at, base| value(claim, published.value, at, base, metric);
    let places = |filter: &Filter| positions(figure, filter, experiment);
    match condition(claim) {
        Some(Condition::Ratio { of, to, baselines: None, .. }) => {
            let above = places(&claim.filter.with(of));
            let below = places(&claim.filter.with(to));
            // A ratio of several points to several others is that of no pair of them.
            match (above.as_slice(), below.as_slice()) {
                ([above], [below]) => vec![make(above.clone(), Some(below.clone()))],
                _ => Vec::new(),
            }
        }
        None | Some(Condition::Value(_)) => {
            let is_shown = published.unit == figure.unit.as_deref().unwrap_or(metric.unit);
            let places = if is_shown { places(&claim.filter) } else { Vec::new() };
            places.into_iter().map(|at| make(at, None)).collect()
        }
        Some(_) => Vec::new(),
    }
}

fn value(
    claim: &Claim,
    value: f64,
    (series, x): (Level, Level),
    relative_to: Option<(Level, Level)>,
    metric: &Metric,
) -> PublishedValue {
    PublishedValue {
        claim: claim.id.clone(),
        source: claim.source.clone(),
        on: claim.published.as_ref().and_then(|published| published.on.clone()),
        metric: metric.name.into(),
        series,
        x,
        value,
        relative_to,
    }
}

fn permits(levels: Option<&OneOrMany>, level: &Level) -> bool {
    levels.is_none_or(|levels| levels.levels().contains(level))
}

/// Returns the levels of series and x at which a figure shows points of a filter. Other factors must have a level that
/// both permit; the figure permits that of the baseline unless it names others.
fn positions(figure: &Figure, filter: &Filter, experiment: &Experiment) -> Vec<(Level, Level)> {
    let series = figure.series.as_deref().unwrap_or("");
    let is_shown = |(factor, base): (&str, &Level)| {
        let shown = figure.filter.0.get(factor);
        let levels = shown.map_or(std::slice::from_ref(base), OneOrMany::levels);
        let is_axis = factor == figure.x || factor == series;
        is_axis || levels.iter().any(|level| permits(filter.0.get(factor), level))
    };
    if !experiment.baseline.levels().all(is_shown) {
        return Vec::new();
    }
    let levels = |factor: &str| {
        let mut levels = match filter.0.get(factor) {
            _ if factor.is_empty() => vec![Level::from("")],
            Some(named) => named.levels().to_vec(),
            None => measured_levels(figure, filter, experiment, factor),
        };
        levels.retain(|level| permits(figure.filter.0.get(factor), level));
        levels
    };
    let (rows, columns) = (levels(series), levels(&figure.x));
    let row = |row: &Level| columns.iter().map(|x| (row.clone(), x.clone())).collect::<Vec<_>>();
    rows.iter().flat_map(row).collect()
}

/// Returns the levels of a factor in the points of an experiment that a figure and a filter permit.
fn measured_levels(
    figure: &Figure,
    filter: &Filter,
    experiment: &Experiment,
    factor: &str,
) -> Vec<Level> {
    let mut levels = Vec::new();
    let is_shown = |point: &&_| figure.filter.matches(point) && filter.matches(point);
    for point in experiment.points.iter().filter(is_shown) {
        levels.extend(point.get(factor).filter(|level| !levels.contains(*level)).cloned());
    }
    levels
}
