//! Comparison of repeated runs: the ratio of B to A at each point that both sides measured; and of two sides within one
//! run ([`compare_sides`]).
//!
//! The unit is the run. Rounds of one run share its moment: the layout of memory, the cores that it got and the load of
//! other virtual machines. Their spread says nothing about the next run, so two single runs are not judged, however many
//! rounds they have. With at least three runs per side, the ratio is that of the geometric means of the runs' medians,
//! and its interval is Welch's: Student's t on the logarithms, with the variance between runs of each side. It assumes
//! that the logarithms of a run's medians are normal; with three values per side no other assumption is weaker.
//!
//! The intervals are those of single points. Whether a point differs is corrected for the number of points compared, by
//! Holm's method: if nothing changed, the probability that any of them is called higher or lower is at most 5%.

mod medians;
mod sides;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use machine::proximity::Class;
use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::journal::{Run, RunRecord, SessionRecord};
use crate::metric::MetricRecord;
use crate::option;
use crate::point::Point;
use crate::sharing::Sharing;
use crate::statistics::{CONFIDENCE, holm};
use crate::summary::{Summary, SummaryError, Unit, summarise};

use medians::RunMedian;
pub use sides::{ComparedSides, SideComparison, compare_sides};

/// The minimum number of runs per side for a verdict.
pub const MIN_RUNS: usize = 3;
/// Maximum difference of logarithms that rounding makes of equal values.
const ROUNDING: f64 = 1e-12;

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
#[derive(Debug, Clone, PartialEq, Serialize)]
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
#[derive(Debug, Clone, PartialEq, Serialize)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
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
    /// The cores were near in all runs of one side and far in those of the other.
    OtherClass,
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
                f.write_str("not judged: the cores were near in one side and far in the other")
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
/// Returns an error if two runs are copies of one, if a run has no samples or no such metric, or if the method, the unit
/// or the direction differ.
pub fn compare(
    a: &[Run],
    b: &[Run],
    experiments: &[&str],
    metric: Option<&str>,
    unit: Unit,
) -> Result<Vec<Comparison>, CompareError> {
    check_distinct(a.iter().chain(b))?;
    let comparisons = experiments.iter().map(|id| compare_experiment(a, b, id, metric, unit));
    let mut comparisons: Vec<_> = comparisons.collect::<Result<_, _>>()?;
    correct(comparisons.iter_mut().flat_map(|comparison| &mut comparison.rows));
    Ok(comparisons)
}

/// Checks that no two runs are copies of one: these have the samples of a session in common, or its start and the seed.
fn check_distinct<'r>(runs: impl Iterator<Item = &'r Run>) -> Result<(), CompareError> {
    let mut known: BTreeMap<String, &Path> = BTreeMap::new();
    for run in runs {
        let marks = |one: &'r SessionRecord| {
            let SessionRecord { start, boot_id, written } = one;
            let samples = written.as_ref().filter(|written| written.lines > 0);
            let start = format!("{} {start} {boot_id}", run.record.seed);
            [Some(start), samples.map(|written| written.digest.clone())].into_iter().flatten()
        };
        let sessions: BTreeSet<_> = run.record.sessions.iter().flat_map(marks).collect();
        for session in sessions {
            if let Some(first) = known.insert(session, &run.folder) {
                let name = |folder: &Path| folder.display().to_string();
                return Err(CompareError::SameRun {
                    first: name(first),
                    second: name(&run.folder),
                });
            }
        }
    }
    Ok(())
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
    let of = |runs: &[Run]| -> Result<Vec<Summary>, SummaryError> {
        runs.iter().map(|run| summarise(run, experiment, &metric, unit)).collect()
    };
    let (in_a, in_b) = (of(a)?, of(b)?);
    check_definitions(&all().zip(in_a.iter().chain(&in_b)).collect::<Vec<_>>())?;
    let record = in_a.first().map(|first| first.record.clone());
    let record = record.ok_or_else(|| CompareError::NoMetric(experiment.into()))?;
    let in_order = in_a.iter().flat_map(|summary| summary.rows.iter().map(|row| &row.point));
    let mut seen = BTreeSet::new();
    let rows = in_order
        .filter(|point| seen.insert(*point))
        .flat_map(|point| medians::rows(point, &in_a, &in_b))
        .collect::<Vec<_>>();
    let with_row: BTreeSet<&Point> = rows.iter().map(|row| &row.point).collect();
    let only = |runs: &[Summary]| {
        let points = runs.iter().flat_map(|summary| summary.observed.points.keys());
        points.filter(|point| !with_row.contains(point)).collect::<BTreeSet<_>>().len()
    };
    let names = |runs: &[Run]| runs.iter().map(|run| run.record.name.clone()).collect();
    Ok(Comparison {
        experiment: experiment.into(),
        only_a: only(&in_a),
        only_b: only(&in_b),
        record,
        metric,
        a: names(a),
        b: names(b),
        notes: differences(a, b, experiment),
        rows,
    })
}

/// Checks that all runs define the experiment and the metric as the first does.
fn check_definitions(runs: &[(&Run, &Summary)]) -> Result<(), CompareError> {
    let Some(((first, of_first), others)) = runs.split_first() else { return Ok(()) };
    for (run, summary) in others {
        let (id, metric) = (&summary.experiment, &summary.metric);
        let method = |run: &Run| run.record.experiments.get(id).map(|one| one.method.clone());
        let methods = method(first).zip(method(run)).unwrap_or_default();
        let units = (of_first.record.unit.clone(), summary.record.unit.clone());
        let word = |summary: &Summary| summary.record.better.word().to_owned();
        for (what, (one, other)) in [
            ("the method".into(), methods),
            (format!("the unit of '{metric}'"), units),
            (format!("the better direction of '{metric}'"), (word(of_first), word(summary))),
        ] {
            if one != other {
                let (first, second) = (&first.record.name, &run.record.name);
                return Err(CompareError::Differ {
                    experiment: id.clone(),
                    difference: format!("{what} is '{one}' in {first} and '{other}' in {second}"),
                });
            }
        }
    }
    Ok(())
}

/// Compares the medians of the runs at a point, of one class and state.
fn compared(point: &Point, a: &[RunMedian], b: &[RunMedian]) -> Compared {
    let logarithms = |side: &[RunMedian]| -> Option<Vec<f64>> {
        side.iter().map(|run| (run.value > 0.0).then(|| run.value.ln())).collect()
    };
    let (mut ratio, mut welch, mut difference) = (None, None, Difference::NotPositive);
    if let (Some(below), Some(above)) = (logarithms(a), logarithms(b)) {
        ratio = Some((mean(&above) - mean(&below)).exp());
        welch = Welch::of(&above, &below, share(a).hypot(share(b)));
        difference = match &welch {
            _ if a.len().min(b.len()) < MIN_RUNS => Difference::TooFewRuns(a.len().min(b.len())),
            Some(welch) if welch.low() > 0.0 => Difference::Higher,
            Some(welch) if welch.high() < 0.0 => Difference::Lower,
            Some(_) => Difference::Unresolved,
            None => Difference::NoSpread,
        };
    }
    let values = |side: &[RunMedian]| side.iter().map(|run| run.value).collect();
    Compared {
        point: point.clone(),
        class: None,
        state: None,
        a: values(a),
        b: values(b),
        ratio,
        interval: welch.as_ref().map(|welch| (welch.low().exp(), welch.high().exp())),
        p_value: welch.map(|welch| welch.p_value),
        difference,
    }
}

/// Returns the lowest resolution of some runs, as a share of each value.
fn share(runs: &[RunMedian]) -> f64 {
    runs.iter().map(|run| run.resolution / run.value).fold(0.0, f64::max)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Welch's t-test of the difference of two means.
#[derive(Debug)]
struct Welch {
    difference: f64,
    /// Half the width of the 95% interval.
    half_width: f64,
    /// Two-sided p-value.
    p_value: f64,
}

impl Welch {
    /// Tests whether two sets of values have equal means. `resolution` is the resolution of the difference, and the
    /// minimum half-width; the test is of the difference beyond it. `None` if a set has one value, or if no set has
    /// variance. The number of degrees of freedom is that of Welch and Satterthwaite.
    fn of(above: &[f64], below: &[f64], resolution: f64) -> Option<Self> {
        let difference = mean(above) - mean(below);
        // Variance of the mean, and degrees of freedom.
        let of = |values: &[f64]| {
            let (mean, freedom) = (mean(values), values.len() as f64 - 1.0);
            let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
            (freedom > 0.0).then(|| (squares / freedom / values.len() as f64, freedom))
        };
        let ((above, above_freedom), (below, below_freedom)) = (of(above)?, of(below)?);
        let variance = above + below;
        // The mean of equal values may differ from them by rounding.
        if variance.sqrt() < ROUNDING {
            return None;
        }
        let freedom =
            variance.powi(2) / (above.powi(2) / above_freedom + below.powi(2) / below_freedom);
        let student = StudentsT::new(0.0, 1.0, freedom).ok()?;
        let half_width = student.inverse_cdf(f64::midpoint(1.0, CONFIDENCE)) * variance.sqrt();
        let beyond = (difference.abs() - resolution).max(0.0);
        let p_value = 2.0 * student.sf(beyond / variance.sqrt());
        Some(Self { difference, half_width: half_width.max(resolution), p_value })
    }

    fn low(&self) -> f64 {
        self.difference - self.half_width
    }

    fn high(&self) -> f64 {
        self.difference + self.half_width
    }
}

/// Returns the differences of the sides in budget, options and nice value.
fn differences(a: &[Run], b: &[Run], experiment: &str) -> Vec<String> {
    let (Some(one), Some(other)) = (a.first(), b.first()) else { return Vec::new() };
    let (one, other) = (&one.record, &other.record);
    let budget = |run: &RunRecord| {
        let budget = run.experiments.get(experiment).map(|one| one.effort.budget);
        budget.map_or_else(String::new, |budget| format!("{budget:?}"))
    };
    let mut all = vec![
        ("the budget of a sample".into(), budget(one), budget(other)),
        ("the nice value".into(), one.nice.to_string(), other.nice.to_string()),
    ];
    let options = option::differences(&one.options, &other.options).into_iter();
    all.extend(options.map(|(name, a, b)| (format!("--set {name}"), a, b)));
    let different = all.into_iter().filter(|(_, a, b)| a != b);
    different.map(|(what, a, b)| format!("note: {what} is {a} in A and {b} in B")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    fn judge(a: &[f64], b: &[f64]) -> Compared {
        judge_with(0.0, a, b)
    }

    fn judge_with(resolution: f64, a: &[f64], b: &[f64]) -> Compared {
        let side = |values: &[f64]| -> Vec<_> {
            values.iter().map(|value| RunMedian { value: *value, resolution }).collect()
        };
        compared(&Point::default(), &side(a), &side(b))
    }

    #[test]
    fn the_interval_is_that_of_welch() {
        // R: t.test(log(c(120, 126, 118)), log(c(100, 103, 99, 101))).
        let compared = judge(&[100.0, 103.0, 99.0, 101.0], &[120.0, 126.0, 118.0]);
        let (low, high) = compared.interval.unwrap();
        assert!((compared.ratio.unwrap() - 1.203_962).abs() < 1e-6, "{compared:?}");
        assert!(low > 1.11 && low < 1.14 && high > 1.27 && high < 1.30, "{compared:?}");
        assert_eq!(compared.difference, Difference::Higher);
        let back = judge(&[120.0, 126.0, 118.0], &[100.0, 103.0, 99.0, 101.0]);
        assert_eq!(back.difference, Difference::Lower);
        assert!((back.interval.unwrap().0 * high - 1.0).abs() < 1e-12);
    }

    #[test]
    fn fewer_than_three_runs_are_not_judged() {
        let one = judge(&[100.0], &[200.0]);
        assert!((one.ratio.unwrap() - 2.0).abs() < 1e-12 && one.interval.is_none(), "{one:?}");
        assert_eq!(one.difference.to_string(), "not judged: one run each");
        let two = judge(&[100.0, 101.0], &[200.0, 201.0, 202.0]);
        assert_eq!(two.difference, Difference::TooFewRuns(2));
        assert_eq!(judge(&[0.0; 3], &[1.0; 3]).difference, Difference::NotPositive);
    }

    #[test]
    fn equal_runs_resolve_nothing() {
        for resolution in [0.0, 0.5] {
            let equal = judge_with(resolution, &[135.0; 3], &[170.0; 3]);
            assert_eq!((equal.difference, equal.interval), (Difference::NoSpread, None));
        }
        // A small spread does not make an interval narrower than the resolution.
        let quantised =
            |b: f64| judge_with(0.5, &[100.0, 100.001, 100.002], &[b, b + 0.001, b + 0.002]);
        assert_eq!(quantised(100.5).difference, Difference::Unresolved);
        assert_eq!(quantised(102.0).difference, Difference::Higher);
        let (low, high) = quantised(100.0).interval.unwrap();
        let expected = 0.005 * 2.0_f64.sqrt();
        assert!((high.ln() - expected).abs() < 1e-6 && (low.ln() + expected).abs() < 1e-6);
        // The p-value, by which many points are corrected, excludes the resolution too.
        assert!(quantised(100.5).p_value.unwrap() > 0.99);
    }

    /// Runs that differ by 3% each, of 40 points at which nothing changed.
    #[test]
    fn equal_sides_are_called_different_in_at_most_one_comparison_of_twenty() {
        const REPLICATIONS: u32 = 1000;
        let mut random = Pcg64Mcg::seed_from_u64(11);
        let mut side = || -> [f64; 3] {
            std::array::from_fn(|_| {
                let (u, v): (f64, f64) = (random.random(), random.random());
                let normal = (-2.0 * (1.0 - u).ln()).sqrt() * (std::f64::consts::TAU * v).cos();
                100.0 * (0.03 * normal).exp()
            })
        };
        let (mut before, mut after) = (0, 0);
        for _ in 0..REPLICATIONS {
            let mut rows: Vec<_> = (0..40).map(|_| judge(&side(), &side())).collect();
            let differ =
                |row: &Compared| matches!(row.difference, Difference::Higher | Difference::Lower);
            before += u32::from(rows.iter().any(differ));
            correct(rows.iter_mut());
            after += u32::from(rows.iter().any(differ));
        }
        let [before, after] =
            [before, after].map(|count| f64::from(count) / f64::from(REPLICATIONS));
        println!("40 equal points: any differs in {before:.3}, corrected in {after:.3}");
        // Two standard errors of 1000 replications are 1.4%. Welch's test is conservative with few runs.
        assert!(before > 0.5 && after < 0.064, "{before} {after}");
        // A true difference remains.
        let mut rows: Vec<_> = (0..40).map(|_| judge(&side(), &side())).collect();
        rows.push(judge(&[100.0, 101.0, 102.0], &[201.0, 203.0, 200.0]));
        correct(rows.iter_mut());
        assert_eq!(rows[40].difference, Difference::Higher);
    }
}
