//! Experiments: named sweeps, declared in TOML.

mod declared;
mod limits;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::point::Point;

pub(crate) use declared::Declared;
pub use limits::{MAX_LEVELS, MAX_LISTED, MAX_POINTS, MAX_ROUNDS};

/// How much is measured: rounds, time a sample, how narrow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// A look: minutes for everything.
    Quick,
    /// Figures to rely on.
    Standard,
    /// Figures to publish.
    Full,
}

impl Profile {
    /// The word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Standard => "standard",
            Self::Full => "full",
        }
    }

    /// How much it measures unless an experiment says otherwise.
    pub fn effort(self) -> Effort {
        let (min_rounds, rounds, budget) = match self {
            Self::Quick => (10, 10, Duration::from_millis(2)),
            Self::Standard => (20, 30, Duration::from_millis(5)),
            Self::Full => (20, 60, Duration::from_millis(20)),
        };
        Effort { min_rounds, rounds, budget, resolve: 0.02 }
    }
}

/// How much is measured at each point.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Effort {
    /// No point stops before these.
    pub min_rounds: u32,
    /// Every point stops at these.
    pub rounds: u32,
    /// Time measured in a sample.
    pub budget: Duration,
    /// A point stops when the half-width of its 95% interval is this share of its median.
    pub resolve: f64,
}

/// The suite's part of an experiment's id: `copy` of `copy/throughput`.
pub fn suite_name(id: &str) -> &str {
    id.split_once('/').map_or(id, |(suite, _)| suite)
}

/// An experiment, ready to be planned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// The suite that measures it.
    pub suite: String,
    /// Its name without the suite.
    pub name: String,
    /// The suite's method by which it is measured.
    pub method: String,
    /// One line for people.
    pub about: String,
    /// The metric that tables, stopping and figures look at first.
    pub metric: String,
    /// The point around which sweeps vary.
    pub baseline: Point,
    /// The factors that the declaration does not name, at their defaults: the same in all points.
    #[serde(default)]
    pub defaults: Point,
    /// Which factors are varied together, for tables.
    pub sweeps: Vec<Vec<String>>,
    /// The points, in the order of the declaration.
    pub points: Vec<Point>,
    /// The points that are measured a second time in every round.
    pub twins: Vec<Point>,
    /// The roles; empty where one process measures all.
    pub roles: Vec<String>,
    /// Factors that are chosen when the machine boots: each boot measures what it can, and their
    /// samples count together.
    #[serde(default)]
    pub blocking: Vec<String>,
    /// Points an order.
    pub batch: usize,
    /// How long a sample may take before its process is killed; from its expected time if absent.
    pub limit: Option<Duration>,
    /// How much is measured.
    pub effort: Effort,
}

impl Experiment {
    /// `copy/throughput`
    pub fn id(&self) -> String {
        format!("{}/{}", self.suite, self.name)
    }

    /// A point as people read it: without the factors that the declaration does not name.
    #[must_use]
    pub fn brief(&self, point: &Point) -> Point {
        point.without_levels(&self.defaults)
    }

    /// Keeps the points that the filter matches, and measures nothing else. If no twin is among
    /// them, the one nearest to a twin becomes one, because without a noise floor there is no
    /// verdict.
    pub fn keep_with_floor(&mut self, wanted: impl Fn(&Point) -> bool) {
        let declared = self.twins.clone();
        self.keep(wanted);
        if self.twins.is_empty() && !declared.is_empty() {
            let distance = |point: &&Point| declared.iter().map(|twin| twin.differing(point)).min();
            self.twins.extend(self.points.iter().min_by_key(distance).cloned());
        }
    }

    /// Keeps only the points that the filter matches.
    pub fn keep(&mut self, wanted: impl Fn(&Point) -> bool) {
        self.points.retain(&wanted);
        self.twins.retain(&wanted);
    }
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
            roles: Vec::new(),
            blocking: Vec::new(),
            batch: 1,
            limit: None,
            effort: Profile::Quick.effort(),
        }
    }

    #[test]
    fn points_are_never_measured_without_twins() {
        let kept = |wanted: &dyn Fn(&Point) -> bool| {
            let mut experiment = experiment();
            experiment.keep_with_floor(wanted);
            (experiment.points, experiment.twins)
        };
        // The twin among them.
        let (points, twins) = kept(&|point| point.text("length") == "1 MiB");
        assert_eq!((points.len(), twins), (2, vec![at("1 MiB", "glibc")]));
        // Else the point nearest to one; nothing that was not asked for is measured.
        let (points, twins) = kept(&|point| point.text("length") == "4 KiB");
        assert_eq!(points, [at("4 KiB", "glibc"), at("4 KiB", "ours")]);
        assert_eq!(twins, [at("4 KiB", "glibc")]);
        // Nothing is measured for the sake of twins alone.
        assert_eq!(kept(&|_| false), (Vec::new(), Vec::new()));
        let mut counts = experiment();
        counts.twins.clear();
        counts.keep_with_floor(|point| point.text("length") == "4 KiB");
        assert_eq!((counts.points.len(), counts.twins.len()), (2, 0));
    }
}
