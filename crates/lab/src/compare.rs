//! Comparison of repeated runs: the ratio of B to A at each point that both sides measured; and of two sides within one
//! run ([`compare_sides`]).
//!
//! The unit is the run. Rounds of one run share its moment: the layout of memory, the cores that it got and the load of
//! other virtual machines. Their spread says nothing about the next run, so two single runs are not judged, however
//! many rounds they have. With at least three runs per side, the ratio is that of the geometric means of the runs'
//! medians, and its interval is Welch's: Student's t on the logarithms, with the variance between runs of each side. It
//! assumes that the logarithms of a run's medians are normal; with three values per side no other assumption is weaker.
//!
//! The intervals are those of single points. Whether a point differs is corrected for the number of points compared, by
//! Holm's method: if nothing changed, the probability that any of them is called higher or lower is at most 5%.

mod medians;
mod runs;
mod sides;
mod welch;

use std::collections::BTreeSet;
use std::fmt;

use machine::proximity::Class;
use schemars::JsonSchema;
use serde::Serialize;

use crate::format;
use crate::journal::Run;
use crate::metric::MetricRecord;
use crate::point::Point;
use crate::sharing::Sharing;
use crate::statistics::{CONFIDENCE, holm};
use crate::summary::{RoundCounts, Summary, SummaryError, Unit};

pub use sides::{ComparedSides, SideComparison, compare_sides};

/// The minimum number of runs per side for a verdict.
pub const MIN_RUNS: usize = 3;
/// An error of a comparison, in one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// One of the runs cannot be summarised.
    #[error(transparent)]
    Summary(#[from] SummaryError),
    /// No run records the metric of the experiment.
    #[error("no run records the metric of '{0}'; choose one with --metric")]
    NoMetric(String),
    /// Two of the runs are copies of one.
    #[error("{first} and {second}: copies of one run, which do not repeat it; name each run once")]
    SameRun {
        /// Folder of one.
        first: String,
        /// Folder of the other.
        second: String,
    },
    /// Some runs were measured in guests, others on a host or by another accelerator.
    #[error(
        "{first} is of {one}, and {second} of {other}, so their values do not compare; name runs of hosts, or of guests by one accelerator"
    )]
    Elsewhere {
        /// Name of one run.
        first: String,
        /// Where it was measured: `host vm`, or `guest plain, emulated by TCG`.
        one: String,
        /// Name of the other run.
        second: String,
        /// Where it was measured.
        other: String,
    },
    /// The runs define an experiment differently.
    #[error("'{experiment}': {difference}; measure all with the same definitions")]
    Differ {
        /// ID of the experiment.
        experiment: String,
        /// The difference, with both values and the names of the runs.
        difference: String,
    },
}

/// One metric of an experiment in repeated runs of two sides.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Comparison {
    /// ID of the experiment: `copy/throughput`.
    pub experiment: String,
    /// Name of the metric.
    pub metric: String,
    /// Unit and direction of the metric.
    pub record: MetricRecord,
    /// Names of the runs of A.
    pub a: Vec<String>,
    /// Names of the runs of B.
    pub b: Vec<String>,
    /// A row per point with values in both; one per proximity of its cores, if they were near in some rounds and far in
    /// others.
    pub rows: Vec<Compared>,
    /// Number of points with values only in A.
    pub only_a: usize,
    /// Number of points with values only in B.
    pub only_b: usize,
    /// Other differences between the sides that may cause the ratios, one line each.
    pub notes: Vec<String>,
}

/// One point of both sides.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Compared {
    /// The point.
    pub point: Point,
    /// Proximity of the cores in the rounds of this row, if there are rounds of several.
    pub class: Option<Class>,
    /// State of the core in all rounds of this row; `None` if it differs, so that they are not judged.
    pub state: Option<Sharing>,
    /// Median of each run of A with a value.
    pub a: Vec<f64>,
    /// Median of each run of B with a value.
    pub b: Vec<f64>,
    /// Geometric mean of B over that of A; `None` if a value is not positive.
    pub ratio: Option<f64>,
    /// Its 95% interval; `None` without a ratio, if a side has a single run, or if all runs of each side are equal.
    pub interval: Option<(f64, f64)>,
    /// Probability that equal sides differ as much; `None` without an interval.
    pub p_value: Option<f64>,
    /// Whether B is higher or lower, corrected for the number of points.
    pub difference: Difference,
}

/// Whether B differs from A.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Difference {
    /// B is higher.
    Higher,
    /// B is lower.
    Lower,
    /// The interval includes 1.
    Unresolved,
    /// The interval excludes 1, as those of some of so many equal points do.
    Chance,
    /// All runs of each side have equal values, so the variance between runs is unknown.
    NoSpread,
    /// A side has fewer than [`MIN_RUNS`] runs; the number of the smaller side.
    TooFewRuns(usize),
    /// A value is not above zero.
    NotPositive,
    /// The core was alone in most rounds of some runs and shared in those of others.
    OtherState,
    /// No class of the cores has rounds on both sides: they were e.g. near in all runs of one side and far in those of
    /// the other.
    OtherClass,
    /// Too many rounds of a side failed: the others are not compared, because slow rounds may fail more often.
    TooManyFailed {
        /// Failed rounds of A and of B.
        failed: [usize; 2],
        /// Rounds of A and of B that are not void.
        rounds: [usize; 2],
    },
}

impl Difference {
    /// Returns whether the rules judge the two sides, with whatever result.
    pub fn is_judged(self) -> bool {
        match self {
            Self::Higher | Self::Lower | Self::Unresolved | Self::Chance | Self::NoSpread => true,
            Self::TooFewRuns(_)
            | Self::NotPositive
            | Self::OtherState
            | Self::OtherClass
            | Self::TooManyFailed { .. } => false,
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Higher => f.write_str("higher"),
            Self::Lower => f.write_str("lower"),
            Self::Unresolved => f.write_str("unresolved (the interval includes 1)"),
            Self::Chance => f.write_str("unresolved (may be chance among so many points)"),
            Self::NoSpread => f.write_str("unresolved (no spread between runs)"),
            Self::TooFewRuns(1) => f.write_str("not judged: one run each"),
            Self::TooFewRuns(runs) => write!(f, "not judged: {runs} runs of {MIN_RUNS} needed"),
            Self::NotPositive => f.write_str("not judged: a value is not above zero"),
            Self::OtherState => {
                f.write_str("not judged: the core was alone in some runs and shared in others")
            }
            Self::OtherClass => {
                f.write_str("not judged: the cores of the two sides are of different classes")
            }
            Self::TooManyFailed { failed: [a, b], rounds: [of_a, of_b] } => {
                write!(f, "not judged: {a} of {of_a} rounds of A and {b} of {of_b} of B failed")
            }
        }
    }
}

/// Returns the IDs of the experiments with samples in every run, in the order of the first.
pub fn experiments<'a>(a: &'a [Run], b: &[Run]) -> Vec<&'a str> {
    let measured = |run: &Run, id: &str| run.samples.iter().any(|s| s.experiment == id);
    let ids = a.first().into_iter().flat_map(|run| run.record.experiments.keys());
    ids.map(String::as_str).filter(|id| a.iter().chain(b).all(|run| measured(run, id))).collect()
}

/// Compares one metric of each experiment, by default that of the experiment. Each side has at least one run.
///
/// # Errors
/// Returns an error if two runs are copies of one, if some were measured in guests and others not, if a run has no samples or no such metric, or if the method, the
/// unit or the direction differ.
pub fn compare(
    a: &[Run],
    b: &[Run],
    experiments: &[&str],
    metric: Option<&str>,
    unit: Unit,
) -> Result<Vec<Comparison>, CompareError> {
    runs::check_distinct(a.iter().chain(b))?;
    runs::check_places(a.iter().chain(b))?;
    let comparisons = experiments.iter().map(|id| compare_experiment(a, b, id, metric, unit));
    let mut comparisons: Vec<_> = comparisons.collect::<Result<_, _>>()?;
    correct(comparisons.iter_mut().flat_map(|comparison| &mut comparison.rows));
    Ok(comparisons)
}

/// Corrects whether points differ for their number.
fn correct<'r>(rows: impl Iterator<Item = &'r mut Compared>) {
    let is_judged = |row: &&mut Compared| !matches!(row.difference, Difference::TooFewRuns(_));
    let mut judged: Vec<_> = rows.filter(is_judged).filter(|row| row.p_value.is_some()).collect();
    let p_values: Vec<f64> = judged.iter().filter_map(|row| row.p_value).collect();
    let rejected = holm(&p_values, 1.0 - CONFIDENCE);
    for (row, is_rejected) in judged.iter_mut().zip(rejected) {
        let differs = matches!(row.difference, Difference::Higher | Difference::Lower);
        if differs && !is_rejected {
            row.difference = Difference::Chance;
        }
    }
}

/// Compares one metric of an experiment, without correction for the number of points.
fn compare_experiment(
    a: &[Run],
    b: &[Run],
    experiment: &str,
    metric: Option<&str>,
    unit: Unit,
) -> Result<Comparison, CompareError> {
    let all = || a.iter().chain(b);
    let declared =
        || all().find_map(|run| Some(run.record.experiments.get(experiment)?.metric.clone()));
    let metric = metric.map(String::from).or_else(declared);
    let metric = metric.ok_or_else(|| CompareError::NoMetric(experiment.into()))?;
    let mut in_a = runs::summarise(&all().collect::<Vec<_>>(), experiment, &metric, unit)?;
    runs::check_definitions(&all().zip(&in_a).collect::<Vec<_>>())?;
    let in_b = in_a.split_off(a.len());
    let record = in_a.first().map(|first| first.record.clone());
    let record = record.ok_or_else(|| CompareError::NoMetric(experiment.into()))?;
    let in_order = in_a.iter().flat_map(|summary| summary.rows.iter().map(|row| &row.point));
    let mut seen = BTreeSet::new();
    let rows = in_order
        .filter(|point| seen.insert(*point))
        .flat_map(|point| medians::rows(point, &in_a, &in_b))
        .collect::<Vec<_>>();
    let with_row: BTreeSet<&Point> = rows.iter().map(|row| &row.point).collect();
    let only = |runs: &[Summary]| -> BTreeSet<Point> {
        let points = runs.iter().flat_map(|summary| summary.observed.points.keys());
        points.filter(|point| !with_row.contains(point)).cloned().collect()
    };
    let (only_a, only_b) = (only(&in_a), only(&in_b));
    let mut notes = runs::differences(a, b, experiment);
    notes.extend(failed_elsewhere(&only_a, &in_b, "B"));
    notes.extend(failed_elsewhere(&only_b, &in_a, "A"));
    let names = |runs: &[Run]| runs.iter().map(|run| run.record.name.clone()).collect();
    Ok(Comparison {
        experiment: experiment.into(),
        only_a: only_a.len(),
        only_b: only_b.len(),
        record,
        metric,
        a: names(a),
        b: names(b),
        notes,
        rows,
    })
}

/// States that points without values on a side failed there; `None` if none did.
fn failed_elsewhere(points: &BTreeSet<Point>, side: &[Summary], name: &str) -> Option<String> {
    let failed = points.iter().filter(|point| side_counts(point, side).failed > 0).count();
    let points = format::count(failed, "point");
    (failed > 0).then(|| format!("note: {points} failed in all rounds of {name}"))
}

/// Counts the rounds of a point by the result, in all runs of a side.
fn side_counts(point: &Point, side: &[Summary]) -> RoundCounts {
    let of_point = side.iter().flat_map(|run| &run.rows).filter(|row| row.point == *point);
    of_point.map(|row| row.counts).fold(RoundCounts::default(), RoundCounts::and)
}
