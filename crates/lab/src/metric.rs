//! Metrics: what a sample measures, with unit and direction.

use serde::{Deserialize, Serialize};

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// As throughput.
    Higher,
    /// As latency.
    Lower,
    /// Neither: a count that is only reported.
    Neither,
}

impl Better {
    /// The word in messages.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Higher => "higher",
            Self::Lower => "lower",
            Self::Neither => "neither",
        }
    }
}

/// A metric that a suite declares.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Metric {
    /// The name in TOML and in the journal: `throughput`.
    pub name: &'static str,
    /// The unit of its values: `B/s`, `ns`, `1`.
    pub unit: &'static str,
    /// Which way is better.
    pub better: Better,
    /// One line for people.
    pub about: &'static str,
}

impl Metric {
    /// A metric with all that it has.
    pub const fn new(
        name: &'static str,
        unit: &'static str,
        better: Better,
        about: &'static str,
    ) -> Self {
        Self { name, unit, better, about }
    }

    /// A time in ns that is better when it is less.
    pub const fn time(name: &'static str, about: &'static str) -> Self {
        Self::new(name, "ns", Better::Lower, about)
    }

    /// A count that is only reported.
    pub const fn count(name: &'static str, about: &'static str) -> Self {
        Self::new(name, "1", Better::Neither, about)
    }

    /// Whether time is in its values: all that an emulated CPU must not emit. Counts, bytes and
    /// shares of counts (`1`, `B`) hold none.
    pub fn is_timed(&self) -> bool {
        !matches!(self.unit, "1" | "B" | "share")
    }
}

/// The metric by which samples say what one step of the time-stamp counter amounts to, where what is
/// timed cannot repeat between two readings: values then come in such steps. In `ns`.
pub const STEP: &str = "step";

/// A metric as written down with a run, for readers who have no suite at hand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetricRecord {
    /// The unit of its values.
    pub unit: String,
    /// Which way is better.
    pub better: Better,
    /// One line for people.
    pub about: String,
}

impl From<&Metric> for MetricRecord {
    fn from(metric: &Metric) -> Self {
        Self { unit: metric.unit.into(), better: metric.better, about: metric.about.into() }
    }
}
