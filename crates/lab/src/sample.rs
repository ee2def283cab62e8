//! A sample: what one point gave in one round; a line of the journal.

use std::collections::BTreeMap;

use machine::core_clock::{self, Doubtful};
use serde::{Deserialize, Serialize};

use crate::point::{Level, Point};

/// What is measured once in each round: a point, or its twin.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Item {
    /// One level per factor.
    pub point: Point,
    /// Whether this is the second sample of the point.
    pub twin: bool,
}

/// A line of the journal.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// Suite and name: `copy/throughput`.
    pub experiment: String,
    /// One level for every factor.
    pub point: Point,
    /// The second of two samples of the same point: their ratio is the noise floor.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub twin: bool,
    /// The pass over all points, from 0.
    pub round: u32,
    /// The place in the round's order, from 0.
    pub position: u32,
    /// Where it was measured.
    pub host: String,
    /// The id of the environment, as in `run.json`.
    pub environment: String,
    /// Which try this is, from 1; over 1 only after void ones.
    pub attempt: u32,
    /// When it began, in seconds since 1970.
    pub at: f64,
    /// How long it took with all that it prepares, in seconds.
    pub seconds: f64,
    /// Metric to value, in the metric's unit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, f64>,
    /// Metric to histogram: HdrHistogram V2 in base64, in the unit `ns` unless the metric says otherwise.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub histograms: BTreeMap<String, String>,
    /// What disturbed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<machine::noise::NoiseDelta>,
    /// The clocks under it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<Clock>,
    /// What was observed and not chosen.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub covariates: BTreeMap<String, Level>,
    /// What each role answered, where the experiment has roles.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parts: BTreeMap<String, Part>,
    /// The steps of a search, void ones too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trials: Vec<Trial>,
    /// Why the sample does not count: the clock moved, the host stalled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub void: Option<String>,
    /// Why there is no sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
}

impl Sample {
    /// Whether its values count: no error and not void.
    pub fn is_valid(&self) -> bool {
        self.error.is_none() && self.void.is_none()
    }

    /// Whether it is not tried again: it counts, it is an error, or it is the last try.
    pub fn is_final(&self) -> bool {
        self.error.is_some() || self.void.is_none() || self.attempt >= MAX_ATTEMPTS
    }

    /// Whether a later run need not measure it again: it stands, and is no error.
    pub fn is_complete(&self) -> bool {
        self.error.is_none() && self.is_final()
    }
}

/// How often a sample is tried before it stands as void.
pub const MAX_ATTEMPTS: u32 = 3;

/// A sample is void when the core clock moved by more than this share under it.
const CLOCK_MOVED: f64 = 0.03;
/// The cause of a void sample in which a core clock was only a guess.
pub const UNKNOWN_LATENCIES: &str = "the latencies of the core clock's chains could not be learnt";

/// The clocks under a sample.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Clock {
    /// The time-stamp counter, in Hz.
    pub tsc_hertz: f64,
    /// The step of the time-stamp counter, in ticks.
    pub tsc_step: u64,
    /// The median cost of an empty fenced pair, in ticks; already subtracted.
    pub tsc_overhead: u64,
    /// The core clock before the sample by the fastest of three chains, in Hz; of two inside a guest without an
    /// operating system.
    pub core_before: f64,
    /// The same after the sample.
    pub core_after: f64,
    /// The core clock before the sample by the second fastest chain, in Hz; `None` if the latency of the chain that
    /// ran beside the adds was not learnt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_before: Option<f64>,
    /// The same after the sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_after: Option<f64>,
}

impl Clock {
    /// The core clock during the sample, in Hz: the mean of before and after.
    pub fn core_hertz(&self) -> f64 {
        (self.core_before + self.core_after) / 2.0
    }

    /// How much the core clock moved under the sample, relative to before.
    pub fn moved(&self) -> f64 {
        (self.core_after / self.core_before - 1.0).abs()
    }

    /// How far the two fastest chains differ, relative: the larger of before and after.
    pub fn disagreement(&self) -> f64 {
        let differ = |fastest: f64, second: Option<f64>| {
            second.map_or(0.0, |second| (second / fastest - 1.0).abs())
        };
        let before = differ(self.core_before, self.second_before);
        before.max(differ(self.core_after, self.second_after))
    }

    /// Returns why a sample under this clock is void: its chains disagreed or it moved.
    pub fn void(&self) -> Option<String> {
        if self.disagreement() > core_clock::AGREEMENT {
            return Some(chains_differ());
        }
        over(self.moved(), CLOCK_MOVED, "the core clock moved by")
    }
}

/// Names a value that is over its limit, which is a share.
pub(crate) fn over(value: f64, limit: f64, what: &str) -> Option<String> {
    (value > limit).then(|| format!("{what} over {:.0}%", limit * 100.0))
}

/// The cause of a void sample whose chains disagreed: the same text however far, so that causes can be counted.
fn chains_differ() -> String {
    let limit = core_clock::AGREEMENT * 100.0;
    format!("the two fastest chains of the core clock differ by over {limit:.0}%")
}

/// What one role answered.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Where it ran.
    pub host: String,
    /// The id of its environment.
    pub environment: String,
    /// Metric to value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, f64>,
    /// What disturbed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<machine::noise::NoiseDelta>,
    /// What was observed there.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub covariates: BTreeMap<String, Level>,
}

/// One step of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// The level tried.
    pub level: f64,
    /// Whether the condition held; absent where the trial is void.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<bool>,
    /// Why the trial does not count; where `holds` is given too, it held in spite of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub void: Option<String>,
    /// What the trial measured.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, f64>,
}

/// What kind of failure stands in a sample's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// This machine lacks what the point needs: a result.
    Unavailable,
    /// This CPU lacks the instruction: a result.
    Unsupported,
    /// The suite could not measure.
    Failed,
    /// The process died.
    Crashed,
    /// The process did not answer within its limit.
    Timeout,
    /// The probe's check of its own result failed.
    Check,
    /// From a probe: this try does not count, and is made again. In a journal: every sample in every round was
    /// void, because the machine is too busy or the measured thing too unsteady.
    Void,
}

impl FailureKind {
    /// Whether it makes the run exit 1 at its end.
    pub fn is_fault(self) -> bool {
        !matches!(self, Self::Unavailable | Self::Unsupported)
    }

    /// The word in the journal.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::Unsupported => "unsupported",
            Self::Failed => "failed",
            Self::Crashed => "crashed",
            Self::Timeout => "timeout",
            Self::Check => "check",
            Self::Void => "void",
        }
    }
}

/// Why there is no sample.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{}: {why}{}", kind.name(), remedy.as_ref().map(|r| format!(" ({r})")).unwrap_or_default())]
pub struct Failure {
    /// What kind of failure.
    pub kind: FailureKind,
    /// The reason in one line.
    pub why: String,
    /// How to enable it, in one line, where one can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Failure {
    /// A failure of a kind, with its reason.
    pub fn new(kind: FailureKind, why: impl Into<String>) -> Self {
        Self { kind, why: why.into(), remedy: None }
    }

    /// This machine lacks what the point needs.
    pub fn unavailable(why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { kind: FailureKind::Unavailable, why: why.into(), remedy: Some(remedy.into()) }
    }

    /// This CPU lacks the instruction.
    pub fn unsupported(why: impl Into<String>) -> Self {
        Self::new(FailureKind::Unsupported, why)
    }

    /// The suite could not measure.
    pub fn failed(why: impl Into<String>) -> Self {
        Self::new(FailureKind::Failed, why)
    }

    /// This try does not count: the sample is void for this cause, and is tried again.
    pub fn void(why: impl Into<String>) -> Self {
        Self::new(FailureKind::Void, why)
    }

    /// The probe's check of its own result failed.
    pub fn check(why: impl Into<String>) -> Self {
        Self::new(FailureKind::Check, why)
    }
}

impl From<machine::kvm::KvmUnavailable> for Failure {
    fn from(absence: machine::kvm::KvmUnavailable) -> Self {
        Self::unavailable(absence.why, absence.remedy)
    }
}

impl From<machine::SysError> for Failure {
    fn from(refusal: machine::SysError) -> Self {
        let machine::SysError { attempt, source, remedy } = refusal;
        Self { remedy: Some(remedy), ..Self::failed(format!("{attempt}: {source}")) }
    }
}

impl From<Doubtful> for Failure {
    fn from(doubtful: Doubtful) -> Self {
        match doubtful {
            Doubtful::NoTime(why) => Self::failed(format!("the core clock: {why}")),
            Doubtful::NotLearnt => Self::void(UNKNOWN_LATENCIES),
            Doubtful::Differ(_) => Self::void(chains_differ()),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::failed(error.to_string())
    }
}
