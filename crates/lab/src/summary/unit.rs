//! The unit in which a time is shown: its own, ticks of the time-stamp counter, core cycles.

use crate::metric::MetricRecord;
use crate::sample::Sample;

use super::SummaryError;

/// The unit of a metric that can be shown in ticks and cycles.
const NANOSECONDS: &str = "ns";
const TICKS: &str = "ticks";
const CYCLES: &str = "cycles";

/// The unit in which values are summarised.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Unit {
    /// The metric's own unit.
    #[default]
    Own,
    /// Ticks of the time-stamp counter; for metrics in `ns` alone.
    Ticks,
    /// Core cycles, by the core clock around each sample; for metrics in `ns` alone.
    Cycles,
}

impl Unit {
    /// The unit that a word means for a metric in `own`: `ticks` and `cycles`; with any other, and where
    /// the metric is in that unit itself, the metric's own.
    pub fn of(word: &str, own: &str) -> Self {
        match word {
            _ if word == own => Self::Own,
            TICKS => Self::Ticks,
            CYCLES => Self::Cycles,
            _ => Self::Own,
        }
    }

    /// The metric as it reads in this unit.
    ///
    /// # Errors
    /// When the metric is no time.
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

    /// A sample's value in this unit; nothing where the sample has no clock to convert it by.
    pub(super) fn convert(self, value: f64, sample: &Sample) -> Option<f64> {
        let hertz = match self {
            Self::Own => return Some(value),
            Self::Ticks => sample.clock?.tsc_hertz,
            Self::Cycles => sample.clock?.core_hertz(),
        };
        Some(value * hertz / 1e9)
    }
}
