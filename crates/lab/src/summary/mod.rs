//! From the samples of a run to what people look at: a row for each point.
//!
//! Of several environments in a run, the one that measured the experiment last is summarised; the
//! others are counted. In it, the last sample of a point and round counts, void or not. Nothing is
//! dropped: outliers are flagged and stay in the estimate.

mod floors;
mod rounds;
mod row;
mod unit;

use std::collections::BTreeSet;

use serde::Serialize;

pub use floors::Floors;
pub(crate) use rounds::last_samples;
pub use rounds::{
    CLASS, Observation, Observed, Rounds, newest_environment, paired, pairs, rounds, samples,
};
pub use row::{FailureCount, Outlier, Row};
pub use unit::Unit;

use crate::journal::Run;
use crate::metric::MetricRecord;
use crate::point::Point;
use crate::statistics::Ratio;

/// Why nothing can be summarised, in one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SummaryError {
    /// The run holds no sample of the experiment.
    #[error("{run}: no samples of '{experiment}'; measure first with 'tollgate run {experiment}'")]
    NoSamples {
        /// The run's name.
        run: String,
        /// The experiment's id.
        experiment: String,
    },
    /// The run does not know the metric.
    #[error("{run}: '{experiment}' has no metric '{metric}'; it has: {known}")]
    NoMetric {
        /// The run's name.
        run: String,
        /// The experiment's id.
        experiment: String,
        /// What was asked for.
        metric: String,
        /// The metrics there are.
        known: String,
    },
    /// Ticks or cycles were asked of what is no time.
    #[error("'{metric}' is in {unit}: only times in ns can be shown in ticks or cycles")]
    NoTime {
        /// The metric.
        metric: String,
        /// Its unit.
        unit: String,
    },
}

/// One metric of an experiment in one environment of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// `copy/throughput`
    pub experiment: String,
    /// The metric's name.
    pub metric: String,
    /// Unit and direction; the unit is that of the rows.
    pub record: MetricRecord,
    /// The id of the environment that is summarised.
    pub environment: String,
    /// How many other environments of the run have samples of the experiment.
    pub other_environments: usize,
    /// A row for each point with samples, in the order of the declaration.
    pub rows: Vec<Row>,
    /// Each point with a twin, and the ratio of the two.
    pub twins: Vec<(Point, Ratio)>,
    /// What the machine makes of no difference, near each pair of twins.
    pub floors: Floors,
}

/// Summarises one metric of an experiment, in its own unit or in ticks or cycles.
///
/// # Errors
/// When the run has no sample of the experiment, or no such metric, or the metric is no time.
pub fn summarise(
    run: &Run,
    experiment: &str,
    metric: &str,
    unit: Unit,
) -> Result<Summary, SummaryError> {
    let environment = newest_environment(run, experiment).ok_or_else(|| {
        SummaryError::NoSamples { run: run.record.name.clone(), experiment: experiment.into() }
    })?;
    let record = metric_record(run, experiment, metric)?;
    let observed = rounds(run, experiment, metric, environment, unit);
    let rows = row::rows(run, experiment, environment);
    Ok(Summary {
        experiment: experiment.into(),
        metric: metric.into(),
        record: unit.applied(metric, record)?,
        environment: environment.into(),
        other_environments: other_environments(run, experiment, environment),
        rows: rows.iter().map(|row| row.summarise(metric, unit)).collect(),
        twins: observed.twin_ratios(),
        floors: Floors::of(&observed),
    })
}

/// Unit and direction of a metric as the run wrote them down.
///
/// # Errors
/// When the run does not know the metric.
pub fn metric_record<'a>(
    run: &'a Run,
    experiment: &str,
    metric: &str,
) -> Result<&'a MetricRecord, SummaryError> {
    run.record.metric(experiment, metric).ok_or_else(|| SummaryError::NoMetric {
        run: run.record.name.clone(),
        experiment: experiment.into(),
        metric: metric.into(),
        known: known_metrics(run, experiment),
    })
}

fn known_metrics(run: &Run, experiment: &str) -> String {
    let suite = experiment.split('/').next().unwrap_or_default();
    let known = run.record.metrics.get(suite);
    let names: Vec<_> = known.into_iter().flatten().map(|(n, _)| n.as_str()).collect();
    names.join(", ")
}

/// How many environments have samples of an experiment that do not count.
fn other_environments(run: &Run, experiment: &str, environment: &str) -> usize {
    let boots = rounds::boots(run, experiment, environment);
    let own = run.samples.iter().filter(|s| s.experiment == experiment);
    let others: BTreeSet<_> = own.map(|sample| sample.environment.as_str()).collect();
    others.difference(&boots).count()
}
