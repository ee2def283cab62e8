//! Comparison of two runs: the ratio of B to A at each point that both measured.
//!
//! Rounds of two runs are not simultaneous, so they are not paired: the ratio is that of the two
//! medians. Its interval combines the intervals of the logarithms of the two medians by the
//! square-and-add rule for independent estimates (MOVER: Zou and Donner, 2008, Statistics in
//! Medicine 27), which assumes no distribution. It covers the variation within the two runs.
//! Differences between runs on one machine, e.g. in the layout of memory or in the load of other
//! virtual machines, are part of the ratio, and drift widens the interval.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::journal::{Run, RunRecord};
use crate::metric::MetricRecord;
use crate::option;
use crate::point::{Level, Point};
use crate::statistics::{
    Estimate, Interval, IntervalKind, LostRounds, Ratio, Resolution, estimate, resolve,
};
use crate::summary::{Floors, Rounds, SummaryError, Unit, summarise};

/// An error of a comparison, in one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// One of the runs cannot be summarised.
    #[error(transparent)]
    Summary(#[from] SummaryError),
    /// Neither run records the metric of the experiment.
    #[error("neither run records the metric of '{0}'; choose one with --metric")]
    NoMetric(String),
    /// The runs define an experiment differently.
    #[error(
        "'{experiment}': {what} is '{a}' in one run and '{b}' in the other; measure both with the \
         same definitions"
    )]
    Differ {
        /// ID of the experiment.
        experiment: String,
        /// Difference found.
        what: String,
        /// Its value in A.
        a: String,
        /// Its value in B.
        b: String,
    },
}

/// One metric of an experiment in two runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// ID of the experiment: `copy/throughput`.
    pub experiment: String,
    /// Name of the metric.
    pub metric: String,
    /// Unit and direction of the metric.
    pub record: MetricRecord,
    /// ID of the environment in A.
    pub a: String,
    /// ID of the environment in B.
    pub b: String,
    /// Noise floors of both runs.
    pub floors: Floors,
    /// A row per point with values in both runs.
    pub rows: Vec<Compared>,
    /// Number of points with values only in A.
    pub only_a: usize,
    /// Number of points with values only in B.
    pub only_b: usize,
    /// Other differences between the runs that may cause the ratios, one line each.
    pub notes: Vec<String>,
}

/// One point in two runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compared {
    /// The point.
    pub point: Point,
    /// Estimate in A.
    pub a: Estimate,
    /// Estimate in B.
    pub b: Estimate,
    /// Ratio of B to A, not paired: `rounds` is the smaller number, and none is lost. `None` if a
    /// value is not positive.
    pub ratio: Option<Ratio>,
    /// Whether B is higher or lower; `None` without a ratio.
    pub resolution: Option<Resolution>,
}

/// Returns the IDs of the experiments with samples in both runs.
pub fn experiments<'a>(a: &'a Run, b: &Run) -> Vec<&'a str> {
    let measured = |run: &Run, id: &str| run.samples.iter().any(|s| s.experiment == id);
    let ids = a.record.experiments.keys().map(String::as_str);
    ids.filter(|id| measured(a, id) && measured(b, id)).collect()
}

/// Compares one metric of an experiment, by default that of the experiment.
///
/// # Errors
/// Returns an error if a run has no samples or no such metric, or if the method, the unit or the
/// direction differ.
pub fn compare(
    a: &Run,
    b: &Run,
    experiment: &str,
    metric: Option<&str>,
    unit: Unit,
) -> Result<Comparison, CompareError> {
    let declared = |run: &'_ Run| Some(run.record.experiments.get(experiment)?.metric.clone());
    let metric = metric.map(String::from).or_else(|| declared(a)).or_else(|| declared(b));
    let metric = metric.ok_or_else(|| CompareError::NoMetric(experiment.into()))?;
    let of = |run| summarise(run, experiment, &metric, unit);
    let (in_a, in_b) = (of(a)?, of(b)?);
    let method = |run: &Run| run.record.experiments.get(experiment).map(|one| one.method.clone());
    let method = method(a).zip(method(b));
    for (what, (a, b)) in [
        ("the method".into(), method.unwrap_or_default()),
        (format!("the unit of '{metric}'"), (in_a.record.unit.clone(), in_b.record.unit.clone())),
        (
            format!("the better direction of '{metric}'"),
            (in_a.record.better.word().into(), in_b.record.better.word().into()),
        ),
    ] {
        if a != b {
            return Err(CompareError::Differ { experiment: experiment.into(), what, a, b });
        }
    }
    let floors = in_a.floors.clone().and(&in_b.floors);
    let (values_a, values_b) = (&in_a.observed.points, &in_b.observed.points);
    let in_order = in_a.rows.iter().map(|row| &row.point);
    let both =
        in_order.filter_map(|point| Some((point, values_a.get(point)?, values_b.get(point)?)));
    let both: Vec<_> = both.collect();
    let mut notes = differences(&a.record, &b.record, experiment);
    notes.extend(class_note(&both));
    let both = both.into_iter();
    let rows: Vec<_> =
        both.filter_map(|(point, a, b)| compared(point, &plain(a), &plain(b), &floors)).collect();
    Ok(Comparison {
        experiment: experiment.into(),
        metric,
        only_a: values_a.len() - rows.len(),
        only_b: values_b.len() - rows.len(),
        record: in_a.record,
        a: in_a.environment,
        b: in_b.environment,
        floors,
        rows,
        notes,
    })
}

/// Returns the differences of the runs in budget, options and nice value.
fn differences(a: &RunRecord, b: &RunRecord, experiment: &str) -> Vec<String> {
    let budget = |run: &RunRecord| {
        let budget = run.experiments.get(experiment).map(|one| one.effort.budget);
        budget.map_or_else(String::new, |budget| format!("{budget:?}"))
    };
    let mut all = vec![
        ("the budget of a sample".into(), budget(a), budget(b)),
        ("the nice value".into(), a.nice.to_string(), b.nice.to_string()),
    ];
    let options = option::differences(&a.options, &b.options).into_iter();
    all.extend(options.map(|(name, a, b)| (format!("--set {name}"), a, b)));
    let different = all.into_iter().filter(|(_, a, b)| a != b);
    different.map(|(what, a, b)| format!("note: {what} is {a} in A and {b} in B")).collect()
}

/// Returns a note if the proximity of the cores of a point differs between rounds, because its
/// ratio then compares proximities too.
fn class_note(both: &[(&Point, &Rounds, &Rounds)]) -> Option<String> {
    let classes = |rounds: &Rounds| -> BTreeSet<Level> {
        rounds.values().filter_map(|one| one.class.clone()).collect()
    };
    let differ = |(_, a, b): &&(&Point, &Rounds, &Rounds)| {
        let (a, b) = (classes(a), classes(b));
        a != b || a.len() > 1
    };
    let points: Vec<_> = both.iter().filter(differ).collect();
    let (point, a, b) = points.first()?;
    let describe = |rounds: &Rounds| {
        let names: Vec<_> = classes(rounds).iter().map(Level::to_string).collect();
        if names.is_empty() { "unknown".into() } else { names.join(" and ") }
    };
    let (count, a, b) = (points.len(), describe(a), describe(b));
    Some(format!(
        "note: the proximity of the cores differs between rounds at {count} of {} points, which affects \
         the ratio; the first is {point}: {a} in A, {b} in B",
        both.len()
    ))
}

fn plain(rounds: &Rounds) -> Vec<f64> {
    rounds.values().map(|one| one.value).collect()
}

fn compared(point: &Point, a: &[f64], b: &[f64], floors: &Floors) -> Option<Compared> {
    let ratio = unpaired_ratio(b, a);
    Some(Compared {
        point: point.clone(),
        a: estimate(a).ok()?,
        b: estimate(b).ok()?,
        resolution: ratio.as_ref().map(|ratio| resolve(ratio, floors.near(&[point]))),
        ratio,
    })
}

/// Returns the ratio of the medians of two independent sets of rounds, with its interval; `None` if
/// a value is not positive. The kind of the interval is that of the set with fewer rounds.
pub fn unpaired_ratio(numerator: &[f64], denominator: &[f64]) -> Option<Ratio> {
    let logarithm = |values: &[f64]| {
        let logarithms: Vec<f64> = values.iter().map(|value| value.ln()).collect();
        estimate(&logarithms).ok()
    };
    let (above, below) = (logarithm(numerator)?, logarithm(denominator)?);
    let centre = above.median - below.median;
    let down = (above.median - above.interval.low).hypot(below.interval.high - below.median);
    let up = (above.interval.high - above.median).hypot(below.median - below.interval.low);
    let weaker = if above.rounds < below.rounds { &above } else { &below };
    let kind = weaker.interval.kind;
    let single = kind == IntervalKind::Single;
    let interval = Interval {
        low: if single { centre.exp() } else { (centre - down).exp() },
        high: if single { centre.exp() } else { (centre + up).exp() },
        kind,
        coverage: above.interval.coverage.min(below.interval.coverage),
    };
    Some(Ratio {
        ratio: centre.exp(),
        interval,
        lag_1: None,
        rounds: weaker.rounds,
        lost: LostRounds::default(),
    })
}
