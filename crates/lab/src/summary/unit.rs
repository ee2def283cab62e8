//! Units in which times are shown: the metric's unit, ticks of the time-stamp counter, core cycles.

use clap::ValueEnum;

use crate::metric::MetricRecord;
use crate::sample::Sample;

use super::SummaryError;

/// Unit of the metrics that can be converted into ticks and cycles.
const NANOSECONDS: &str = "ns";
const TICKS: &str = "ticks";
const CYCLES: &str = "cycles";

/// Unit of summarised values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Unit {
    /// The metric's unit, e.g. nanoseconds.
    #[default]
    #[value(name = "declared")]
    Own,
    /// Ticks of the time-stamp counter, for metrics in nanoseconds.
    Ticks,
    /// Core cycles, for metrics in nanoseconds; the core clock is measured around each sample.
    Cycles,
}

impl Unit {
    /// Returns the unit with a name, for a metric in unit `metric`: `ticks`, `cycles`, or else the metric's
    /// unit.
    pub fn of(name: &str, metric: &str) -> Self {
        match name {
            _ if name == metric => Self::Own,
            TICKS => Self::Ticks,
            CYCLES => Self::Cycles,
            _ => Self::Own,
        }
    }

    /// Returns the metric in this unit.
    ///
    /// # Errors
    /// Returns an error if the metric is not a time in `ns`.
    pub fn applied(self, name: &str, record: &MetricRecord) -> Result<MetricRecord, SummaryError> {
        let unit = match self {
            Self::Own => return Ok(record.clone()),
            Self::Ticks => TICKS,
            Self::Cycles => CYCLES,
        };
        if record.unit != NANOSECONDS {
            return Err(SummaryError::NoTime { metric: name.into(), unit: record.unit.clone() });
        }
        Ok(MetricRecord { unit: unit.into(), ..record.clone() })
    }

    /// Returns whether values of a metric in this unit depend on the core clock: times in any unit but core cycles,
    /// rates and the clock itself. The time-stamp counter is no core clock, so its ticks do.
    pub(super) fn depends_on_clock(self, record: &MetricRecord) -> bool {
        let is_time = matches!(record.unit.as_str(), "ns" | "us" | "ms" | "s" | TICKS | "Hz");
        self != Self::Cycles && (is_time || record.unit.ends_with("/s"))
    }

    /// Converts a sample's value of a metric into this unit, by the clock of what measured it; `None` if it has none.
    pub(super) fn convert(self, value: f64, metric: &str, sample: &Sample) -> Option<f64> {
        let clock = || Some(sample.clock_of(metric)?.0);
        let hertz = match self {
            Self::Own => return Some(value),
            Self::Ticks => clock()?.tsc_hertz,
            Self::Cycles => clock()?.core_hertz(),
        };
        Some(value * hertz / 1e9)
    }
}
