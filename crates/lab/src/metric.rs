//! Metrics: measured quantities with unit and direction.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Better direction of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Higher values, e.g. throughput.
    Higher,
    /// Lower values, e.g. latency.
    Lower,
    /// None: a count that is only reported.
    Neither,
}

impl Better {
    /// Returns the name in messages.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Higher => "higher",
            Self::Lower => "lower",
            Self::Neither => "neither",
        }
    }
}

/// A metric of a method.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Metric {
    /// Name in TOML and in the journal: `throughput`.
    pub name: &'static str,
    /// Unit of its values: `B/s`, `ns`, `1`.
    pub unit: &'static str,
    /// Better direction of a metric.
    pub better: Better,
    /// Description in one line.
    pub about: &'static str,
    /// Whether values below zero are possible although it is not a time.
    #[serde(skip)]
    is_signed: bool,
    /// Name of the time of which it is the rate.
    #[serde(skip)]
    rate_of: Option<&'static str>,
    /// Whether it derives from times although its unit is not one of time.
    #[serde(skip)]
    is_from_time: bool,
    /// Words for figures; `None` for those of the name.
    #[serde(skip)]
    words: Option<&'static str>,
    /// Statistic within a round, e.g. `p99`, if other metrics are others of the same quantity.
    #[serde(skip)]
    statistic: Option<&'static str>,
}

impl Metric {
    /// Creates a metric.
    pub const fn new(
        name: &'static str,
        unit: &'static str,
        better: Better,
        about: &'static str,
    ) -> Self {
        Self {
            name,
            unit,
            better,
            about,
            is_signed: false,
            rate_of: None,
            is_from_time: false,
            words: None,
            statistic: None,
        }
    }

    /// Creates a time in ns, better if lower.
    pub const fn time(name: &'static str, about: &'static str) -> Self {
        Self::new(name, "ns", Better::Lower, about)
    }

    /// Creates a count that is only reported.
    pub const fn count(name: &'static str, about: &'static str) -> Self {
        Self::new(name, "1", Better::Neither, about)
    }

    /// Permits values below zero, e.g. of a difference of shares or of a ratio of differences.
    pub const fn signed(self) -> Self {
        Self { is_signed: true, ..self }
    }

    /// States that the value of a sample is an amount divided by its time `time`, e.g. bytes per second, so that the
    /// [resolution](RESOLUTION) of the time limits it.
    pub const fn rate_of(self, time: &'static str) -> Self {
        Self { rate_of: Some(time), ..self }
    }

    /// States that its values derive from times although its unit (`1`, `share`, `B`) does not show it, e.g. a ratio of two
    /// times or a count per cycle.
    pub const fn from_time(self) -> Self {
        Self { is_from_time: true, ..self }
    }

    /// States what figures call it, e.g. `round-trip time`.
    pub const fn called(self, words: &'static str) -> Self {
        Self { words: Some(words), ..self }
    }

    /// States which statistic within a round it is, e.g. `p99`, of a quantity of which other metrics are others.
    pub const fn statistic(self, statistic: &'static str) -> Self {
        Self { statistic: Some(statistic), ..self }
    }

    /// Returns its label in figures.
    pub fn label(&self) -> MetricLabel {
        let quantity =
            self.words.map_or_else(|| MetricLabel::of_name(self.name).quantity, str::to_owned);
        MetricLabel { quantity, statistic: self.statistic }
    }

    /// Returns whether a value below zero is possible: of times, from which an overhead is subtracted, and of signed
    /// metrics. Counts, bytes, shares and rates are not negative.
    pub fn may_be_negative(&self) -> bool {
        self.is_signed || matches!(self.unit, "ns" | "us" | "ticks" | "cycles")
    }

    /// Returns whether its values derive from times, which an emulated CPU must not report: by its unit, or as
    /// [stated](Self::from_time). Counts, bytes and shares of counts (`1`, `B`, `share`) do not.
    pub fn is_timed(&self) -> bool {
        self.is_from_time || !matches!(self.unit, "1" | "B" | "share")
    }
}

/// Label of a metric in figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricLabel {
    /// The measured quantity, e.g. `round-trip time`.
    pub quantity: String,
    /// Statistic within a round, e.g. `p99`.
    pub statistic: Option<&'static str>,
}

impl MetricLabel {
    /// Returns the words of a name.
    pub fn of_name(name: &str) -> Self {
        Self { quantity: name.replace('_', " "), statistic: None }
    }

    /// Returns the quantity with the statistic, e.g. `round-trip time, p99`.
    pub fn text(&self) -> String {
        match self.statistic {
            Some(statistic) => format!("{}, {statistic}", self.quantity),
            None => self.quantity.clone(),
        }
    }
}

/// Metric of the step of the time-stamp counter, in `ns`, for values that are multiples of it
/// because the timed operation cannot repeat between two readings.
pub const STEP: &str = "step";

/// Metric of the resolution, in `ns`, of the means of such values: a step divided by the root of their
/// number. Intervals of times are at least as wide on either side, and those of [rates](Metric::rate_of) by the same
/// share.
pub const RESOLUTION: &str = "resolution";

/// A metric as recorded with a run, so that reading it does not require the suite.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MetricRecord {
    /// Unit of its values.
    pub unit: String,
    /// Better direction of a metric.
    pub better: Better,
    /// Description in one line.
    pub about: String,
    /// Name of the time of which it is the [rate](Metric::rate_of).
    pub rate_of: Option<String>,
}

impl From<&Metric> for MetricRecord {
    fn from(metric: &Metric) -> Self {
        Self {
            unit: metric.unit.into(),
            better: metric.better,
            about: metric.about.into(),
            rate_of: metric.rate_of.map(Into::into),
        }
    }
}
