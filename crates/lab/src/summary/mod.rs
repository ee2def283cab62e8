//! Summaries of a run's samples: a row per point.
//!
//! If a run has several environments, the one that measured the experiment last is summarised, and
//! the others are counted. The last sample of a point and round counts, void or not. Outliers are
//! flagged and stay in the estimate.

mod contest;
mod environments;
mod failures;
mod observed;
mod row;
mod samples;
mod unit;
mod voids;

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

pub use contest::Contest;
pub use environments::OtherEnvironment;
pub(crate) use failures::MAX_FAILED;
pub use failures::RoundCounts;
pub use observed::{
    Floors, Observation, Observed, Pairing, Pairs, Rounds, TwinFloor, alike, paired, pairs,
};
pub(crate) use observed::{
    Pair, censored, chosen_state, in_state, quotient, resolution, state_counts, without_conditions,
};
pub use row::{CLASS, FailureCount, Outlier, Row};
pub use samples::{Limit, Samples};
pub(crate) use samples::{Limits, recorded};
pub use unit::Unit;
pub use voids::{VoidCount, VoidDifference};

use crate::format;
use crate::journal::Run;
use crate::metric::MetricRecord;
use crate::point::Point;
use crate::proximity::Classes;
use crate::sharing::SharingCounts;
use crate::statistics::Ratio;

/// An error of a summary, in one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SummaryError {
    /// The run has no sample of the experiment.
    #[error("{run}: no samples of '{experiment}'; measure first with 'tollgate run {experiment}'")]
    NoSamples {
        /// Name of the run.
        run: String,
        /// ID of the experiment.
        experiment: String,
    },
    /// The run has no such metric.
    #[error("{run}: '{experiment}' has no metric '{metric}'; expected one of {known}")]
    NoMetric {
        /// Name of the run.
        run: String,
        /// ID of the experiment.
        experiment: String,
        /// The unknown metric.
        metric: String,
        /// Metrics of the suite, separated by commas.
        known: String,
    },
    /// Ticks or cycles were requested for a metric that is not a time.
    #[error("'{metric}' is in {unit}: only times in ns can be shown in ticks or cycles")]
    NoTime {
        /// The metric.
        metric: String,
        /// Its unit.
        unit: String,
    },
}

/// One metric of an experiment in one environment of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// ID of the experiment: `copy/throughput`.
    pub experiment: String,
    /// Name of the metric.
    pub metric: String,
    /// Unit of the rows, and direction of the metric.
    pub record: MetricRecord,
    /// ID of the summarised environment.
    pub environment: String,
    /// Other environments of the run with valid or failed samples of the experiment.
    pub other_environments: Vec<OtherEnvironment>,
    /// Number of samples by whether a busy SMT sibling shared their core.
    pub sharing: SharingCounts,
    /// Classes of the samples of the environment by the proximity of their cores.
    pub classes: Classes,
    /// A row per point with samples, in the order of the declaration.
    pub rows: Vec<Row>,
    /// Each point with a twin, and the ratio of the two.
    pub twins: Vec<(Point, Ratio)>,
    /// Noise floor of each pair of twins.
    pub floors: Floors,
    /// Twins that differ.
    pub alarms: Vec<TwinAlarm>,
    /// Level whose samples are void more or less often than those of other levels.
    pub void_difference: Option<VoidDifference>,
    /// Every value by point and round.
    pub observed: Observed,
}

/// Twins that differ: equal points whose ratio has an interval that excludes 1. Their experiment may
/// have a fault, e.g. an effect of the order in which points are measured.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TwinAlarm {
    /// ID of the experiment.
    pub experiment: String,
    /// Name of the metric.
    pub metric: String,
    /// Levels of the point that are not defaults of the method.
    pub point: Point,
    /// Ratio of the point to its twin.
    pub ratio: Ratio,
}

impl TwinAlarm {
    /// Returns the alarms of an experiment.
    pub(crate) fn all(samples: &Samples, metric: &str, observed: &Observed) -> Vec<Self> {
        let alarm = |(point, ratio)| Self {
            experiment: samples.experiment.into(),
            metric: metric.into(),
            point: samples.declared().map_or_else(|| Point::clone(&point), |one| one.brief(&point)),
            ratio,
        };
        observed.differing_twins().map(alarm).collect()
    }
}

impl fmt::Display for TwinAlarm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { experiment, metric, point, ratio } = self;
        let text = format::interval(ratio.ratio, &ratio.interval, "1");
        write!(
            formatter,
            "warning: the twins of {experiment} at {point} differ in {metric}: ratio {text}, {}; of 20 \
             pairs of twins, 1 does by chance",
            format::count(ratio.rounds, "round")
        )
    }
}

/// Summarises one metric of an experiment.
///
/// # Errors
/// Returns an error if the run has no samples of the experiment or no such metric, or if the metric
/// cannot be converted into the unit.
pub fn summarise(
    run: &Run,
    experiment: &str,
    metric: &str,
    unit: Unit,
) -> Result<Summary, SummaryError> {
    summarise_samples(&Samples::of(run, experiment)?, metric, unit)
}

/// Summarises one metric of some samples.
///
/// # Errors
/// See [`summarise`].
pub(crate) fn summarise_samples(
    samples: &Samples,
    metric: &str,
    unit: Unit,
) -> Result<Summary, SummaryError> {
    let record = metric_record(samples, metric)?;
    let observed = samples.observed(metric, unit);
    Ok(Summary {
        experiment: samples.experiment.into(),
        metric: metric.into(),
        record: unit.applied(metric, record)?,
        environment: samples.environment.into(),
        other_environments: samples.other_environments(|_| true),
        sharing: samples.sharing(),
        classes: samples.classes(),
        rows: row::rows(samples, &observed, metric, unit),
        twins: observed.twin_ratios(),
        floors: Floors::of(&observed),
        alarms: TwinAlarm::all(samples, metric, &observed),
        void_difference: VoidDifference::of(samples),
        observed,
    })
}

/// Returns the unit and the direction of a metric as recorded in a run.
///
/// # Errors
/// Returns an error if the run has no such metric.
pub(crate) fn metric_record<'a>(
    samples: &Samples<'a>,
    metric: &str,
) -> Result<&'a MetricRecord, SummaryError> {
    samples.metric(metric).ok_or_else(|| {
        let record = &samples.run.record;
        let suite = crate::experiment::suite_name(samples.experiment);
        let known = record.metrics.get(suite).into_iter().flatten();
        SummaryError::NoMetric {
            run: record.name.clone(),
            experiment: samples.experiment.into(),
            metric: metric.into(),
            known: known.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", "),
        }
    })
}
