//! Experiments: named sets of points, measured by one method.

use std::time::Duration;

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::point::Point;

/// Profile: how much is measured.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ValueEnum, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// Quick check, minutes in total.
    #[default]
    Quick,
    /// Reliable results.
    Standard,
    /// Results for publication.
    Full,
}

impl Profile {
    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Standard => "standard",
            Self::Full => "full",
        }
    }

    /// Returns the default effort of its experiments.
    pub fn effort(self) -> Effort {
        let (min_rounds, rounds, budget) = match self {
            Self::Quick => (10, 10, Duration::from_millis(2)),
            Self::Standard => (20, 30, Duration::from_millis(5)),
            Self::Full => (20, 60, Duration::from_millis(20)),
        };
        Effort { min_rounds, rounds, budget, resolve: 0.02 }
    }
}

/// Effort at each point.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Effort {
    /// Minimum number of rounds.
    pub min_rounds: u32,
    /// Maximum number of rounds.
    pub rounds: u32,
    /// Time measured per sample.
    pub budget: Duration,
    /// Half-width of the 95% interval at which a point stops, as a share of its median.
    pub resolve: f64,
}

/// Returns the suite of an experiment ID: `copy` of `copy/throughput`.
pub fn suite_name(id: &str) -> &str {
    id.split_once('/').map_or(id, |(suite, _)| suite)
}

/// An experiment, resolved for a profile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Experiment {
    /// Name of the suite.
    pub suite: String,
    /// Name, without the suite.
    pub name: String,
    /// Name of the method.
    pub method: String,
    /// Description in one line.
    pub about: String,
    /// Metric for stopping, and by default of tables and figures.
    pub metric: String,
    /// Point around which the sweeps vary.
    pub baseline: Point,
    /// Factors that the declaration does not name, at their defaults; equal in all points.
    #[serde(default)]
    pub defaults: Point,
    /// Sets of factors that are varied together.
    pub sweeps: Vec<Vec<String>>,
    /// Points in the order of the declaration.
    pub points: Vec<Point>,
    /// Points that are measured twice in every round.
    pub twins: Vec<Point>,
    /// Points of the profile that the run leaves out, e.g. by `--where`: a claim on them is open.
    pub skipped: Vec<Point>,
    /// Roles of the processes that measure together; empty if one process measures alone.
    pub roles: Vec<String>,
    /// Factors that are chosen at boot: each boot measures the points that it can, and their
    /// samples count together.
    #[serde(default)]
    pub blocking: Vec<String>,
    /// Factor whose levels are alternatives, e.g. functions that copy; tables mark the best of them. `None` if the
    /// experiment has no such factor.
    pub alternatives: Option<String>,
    /// Disjoint sets of points that are compared with each other ([`comparison::set`](crate::comparison::set)). A round
    /// measures the points of a set near each other. Not recorded, because each sample has its position.
    #[serde(skip)]
    pub compared: Vec<Vec<Point>>,
    /// Points per order.
    pub batch: usize,
    /// Time after which the process of a sample is killed; `None` to derive it from the expected
    /// time.
    pub limit: Option<Duration>,
    /// Effort at each point.
    pub effort: Effort,
}

impl Experiment {
    /// Returns the ID: `copy/throughput`.
    pub fn id(&self) -> String {
        format!("{}/{}", self.suite, self.name)
    }

    /// Returns a point without the factors that the declaration does not name.
    #[must_use]
    pub fn brief(&self, point: &Point) -> Point {
        point.without_levels(&self.defaults)
    }

    /// Keeps the points that match. If no twin is among them, the point nearest to a twin becomes
    /// one, because a verdict requires a noise floor.
    pub fn keep_with_floor(&mut self, matches: impl Fn(&Point) -> bool) {
        let declared = self.twins.clone();
        self.keep(matches);
        if self.twins.is_empty() && !declared.is_empty() {
            let distance = |point: &&Point| declared.iter().map(|twin| twin.differing(point)).min();
            self.twins.extend(self.points.iter().min_by_key(distance).cloned());
        }
    }

    /// Keeps the points that match, and moves the others to those that are skipped.
    pub fn keep(&mut self, matches: impl Fn(&Point) -> bool) {
        self.skipped.extend(self.points.extract_if(.., |point| !matches(point)));
        self.twins.retain(&matches);
    }
}

/// Maximum number of points of all experiments of a file, before exclusion.
pub const MAX_POINTS: usize = 100_000;
/// Maximum number of levels of a factor.
pub const MAX_LEVELS: usize = 10_000;
/// Maximum number of sweeps of an experiment, of filters of `exclude`, and of filters of `twins`.
pub const MAX_LISTED: usize = 100;
/// Maximum number of comparisons of a point's level with a filter's, in one experiment.
pub(crate) const MAX_COMPARISONS: usize = 100_000_000;
/// Maximum number of rounds.
pub const MAX_ROUNDS: u32 = 10_000;
/// Maximum time measured in a sample.
const MAX_BUDGET: Duration = Duration::from_secs(3600);
/// Maximum time after which the process of a sample is killed.
const MAX_LIMIT: Duration = Duration::from_secs(7 * 24 * 3600);
/// Maximum number of points of an order.
const MAX_BATCH: usize = 4096;

impl Experiment {
    /// Checks its numbers, so that a typing error costs neither memory nor days.
    ///
    /// # Errors
    /// Returns one line with the first number out of range, and the range.
    pub fn within_limits(&self) -> Result<(), String> {
        let effort = &self.effort;
        check_count("points", self.points.len(), 1, MAX_POINTS)?;
        check_count("twins", self.twins.len(), 0, MAX_POINTS)?;
        check_count("rounds", effort.rounds as usize, 1, MAX_ROUNDS as usize)?;
        check_count("min_rounds", effort.min_rounds as usize, 0, effort.rounds as usize)?;
        check_count("batch", self.batch, 1, MAX_BATCH)?;
        check_time("budget", effort.budget, MAX_BUDGET)?;
        self.limit.map_or(Ok(()), |limit| check_time("limit", limit, MAX_LIMIT))?;
        match (0.0..1.0).contains(&effort.resolve) {
            true => Ok(()),
            false => Err(format!(
                "resolve: {} is not a share from 0 to below 1, e.g. '2%'",
                effort.resolve
            )),
        }
    }
}

/// Checks that a number is in a range.
pub(crate) fn check_count(what: &str, number: usize, min: usize, max: usize) -> Result<(), String> {
    if (min..=max).contains(&number) {
        return Ok(());
    }
    Err(format!("{what}: {number} is out of range; use {min} to {max}"))
}

fn check_time(what: &str, time: Duration, max: Duration) -> Result<(), String> {
    if !time.is_zero() && time <= max {
        return Ok(());
    }
    let (time, max) = (time.as_secs_f64(), max.as_secs());
    Err(format!("{what}: {time} s is not above 0 s and at most {max} s; choose a time in between"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(length: &str, function: &str) -> Point {
        Point::from([("length", length), ("function", function)])
    }

    fn experiment() -> Experiment {
        let points: Vec<_> = ["16 B", "4 KiB", "1 MiB"]
            .into_iter()
            .flat_map(|length| ["glibc", "ours"].map(|function| at(length, function)))
            .collect();
        Experiment {
            suite: "copy".into(),
            name: "throughput".into(),
            method: "throughput".into(),
            about: String::new(),
            metric: "throughput".into(),
            baseline: points[0].clone(),
            defaults: Point::default(),
            sweeps: Vec::new(),
            points,
            twins: vec![at("16 B", "glibc"), at("1 MiB", "glibc")],
            skipped: Vec::new(),
            roles: Vec::new(),
            blocking: Vec::new(),
            alternatives: None,
            compared: Vec::new(),
            batch: 1,
            limit: None,
            effort: Profile::Quick.effort(),
        }
    }

    #[test]
    fn a_filter_keeps_or_creates_a_twin() {
        let kept = |matches: &dyn Fn(&Point) -> bool| {
            let mut experiment = experiment();
            experiment.keep_with_floor(matches);
            (experiment.points, experiment.twins)
        };
        // A twin is kept.
        let (points, twins) = kept(&|point| point.text("length") == "1 MiB");
        assert_eq!((points.len(), twins), (2, vec![at("1 MiB", "glibc")]));
        // Otherwise the nearest point becomes a twin; no other point is measured.
        let (points, twins) = kept(&|point| point.text("length") == "4 KiB");
        assert_eq!(points, [at("4 KiB", "glibc"), at("4 KiB", "ours")]);
        let mut part = experiment();
        part.keep(|point| point.text("length") == "4 KiB");
        assert_eq!(part.skipped.len(), 4);
        assert_eq!(twins, [at("4 KiB", "glibc")]);
        // No twin is measured without other points.
        assert_eq!(kept(&|_| false), (Vec::new(), Vec::new()));
        let mut counts = experiment();
        counts.twins.clear();
        counts.keep_with_floor(|point| point.text("length") == "4 KiB");
        assert_eq!((counts.points.len(), counts.twins.len()), (2, 0));
    }
}
