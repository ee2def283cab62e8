//! Values of a run with their intervals, as the tables show them.

use std::collections::BTreeSet;
use std::fmt;

use lab::format::count;
use lab::guest::GuestsRecord;
use lab::journal::Run;
use lab::metric::{Better, MetricRecord};
use lab::point::Point;
use lab::statistics::{Estimate, IntervalKind};
use lab::summary::{Row, SummaryError};
use lab::terminal;
use machine::cpu::CpuClock;
use machine::proximity::Class;

use super::ExportError;
use crate::table::{ShowOptions, ShownExperiment};

/// The experiment's metric at one point.
#[derive(Debug, Clone)]
pub(super) struct Value {
    /// ID of the experiment, e.g. `copy/throughput`.
    pub(super) experiment: String,
    pub(super) metric: String,
    /// Unit and direction of the metric.
    pub(super) record: MetricRecord,
    /// ID of the environment that measured it.
    pub(super) environment: String,
    /// One level for every factor.
    pub(super) point: Point,
    /// The point without the factors that the experiment does not name.
    pub(super) brief: Point,
    /// Proximity of the cores, if the point has rounds of several.
    pub(super) class: Option<Class>,
    /// Median over rounds, in the metric's unit.
    pub(super) median: f64,
    /// Ends of the 95% interval, in the same unit; `None` if the rounds are too few for one.
    pub(super) interval: Option<(f64, f64)>,
    pub(super) rounds: usize,
}

impl Value {
    /// Returns the name of the point, e.g. `copy/throughput function=glibc length=16 B`, which is unique within a run.
    pub(super) fn name(&self) -> String {
        let point = Some(self.brief.to_string()).filter(|point| !point.is_empty());
        let class = self.class.map(|class| format!("proximity={}", class.name()));
        let parts = [Some(self.experiment.clone()), point, class];
        // JSON would keep control characters of a journal, and trackers place names into comments.
        terminal::one_line(&parts.into_iter().flatten().collect::<Vec<_>>().join(" ")).into_owned()
    }

    /// Returns the larger distance from the median to an end of the interval; `None` without one.
    pub(super) fn half_width(&self) -> Option<f64> {
        self.interval.map(|(low, high)| (high - self.median).max(self.median - low))
    }
}

/// Values of a run, and why points have none.
#[derive(Debug, Clone, Default)]
pub struct Values {
    pub(super) all: Vec<Value>,
    left_out: LeftOut,
}

/// Number of points or values that are not exported, by reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// The point is unavailable, failed, or is void in every round.
    pub without_value: usize,
    /// The search or the instrument limited the value: the true one is only known to be higher, or lower.
    pub bounds: usize,
    /// The metric has no better direction, or another one than requested.
    pub other_direction: usize,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.without_value, "point", "without a value"),
            (self.bounds, "value", "of which only a bound is known"),
            (self.other_direction, "value", "of another direction"),
        ];
        let parts = parts.into_iter().filter(|(number, ..)| *number > 0);
        let parts: Vec<_> =
            parts.map(|(number, what, why)| format!("{} {why}", count(number, what))).collect();
        f.write_str(&parts.join(", "))
    }
}

impl Values {
    /// Returns the values of the named experiments: the median of each point over rounds, with its interval. Rounds with
    /// near and with far cores are separate values.
    ///
    /// # Errors
    /// Returns an error if the run has no samples of an experiment. A run with a planted clock has no values, because its
    /// times are not real.
    pub fn of(run: &Run, experiments: &[String]) -> Result<Self, SummaryError> {
        let mut values = Self::default();
        let is_planted = |it: &GuestsRecord| it.clock == CpuClock::Planted;
        if run.record.guests.as_ref().is_some_and(is_planted) {
            return Ok(values);
        }
        for id in experiments {
            let options = ShowOptions::default();
            let shown = ShownExperiment::new(run, id, &options)?;
            for row in shown.rows() {
                values.add(run, &shown, row);
            }
        }
        Ok(values)
    }

    fn add(&mut self, run: &Run, shown: &ShownExperiment<'_>, row: &Row) {
        let summary = &shown.summary;
        let declared = run.record.experiments.get(&summary.experiment);
        // One median of near and far cores would be the value of neither.
        let estimates: Vec<(Option<Class>, &Estimate)> = match row.by_class.is_empty() {
            true => row.estimate.iter().map(|estimate| (None, estimate)).collect(),
            false => row.by_class.iter().map(|(class, one)| (Some(*class), one)).collect(),
        };
        self.left_out.without_value += usize::from(estimates.is_empty());
        for (class, estimate) in estimates {
            if estimate.interval.open_end().is_some() {
                self.left_out.bounds += 1;
                continue;
            }
            let interval = &estimate.interval;
            let is_confidence = interval.kind == IntervalKind::Confidence;
            self.all.push(Value {
                experiment: summary.experiment.clone(),
                metric: summary.metric.clone(),
                record: summary.record.clone(),
                environment: summary.environment.clone(),
                point: row.point.clone(),
                brief: declared.map_or_else(|| row.point.clone(), |it| it.brief(&row.point)),
                class,
                median: estimate.median,
                interval: is_confidence.then_some((interval.low, interval.high)),
                rounds: estimate.rounds,
            });
        }
    }

    /// Keeps the values of metrics with a direction.
    #[must_use]
    pub fn with_direction(mut self, better: Better) -> Self {
        let all = self.all.len();
        self.all.retain(|value| value.record.better == better);
        self.left_out.other_direction += all - self.all.len();
        self
    }

    /// Checks that there is a value.
    pub(super) fn check(&self) -> Result<(), ExportError> {
        match self.all.is_empty() {
            true => Err(ExportError::NoValue(self.left_out.clone())),
            false => Ok(()),
        }
    }

    /// Returns the number of values that are not exported.
    pub fn left_out(&self) -> &LeftOut {
        &self.left_out
    }

    /// Returns the IDs of the environments of the values.
    pub(super) fn environments(&self) -> BTreeSet<&str> {
        self.all.iter().map(|value| value.environment.as_str()).collect()
    }
}
