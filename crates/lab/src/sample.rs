//! A sample: the measurement of one point in one round; a line of the journal.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use machine::core_clock::{self, Doubtful};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::point::{Level, Point};

/// Subject of one measurement per round: a point, or its twin.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Item {
    /// One level per factor.
    pub point: Point,
    /// Whether this is the second sample of the point.
    pub twin: bool,
}

/// A line of the journal.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// The experiment's id: `copy/throughput`.
    pub experiment: String,
    /// One level per factor.
    pub point: Point,
    /// Whether this is the second of two samples of the point, whose ratio is the noise floor.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub twin: bool,
    /// The round, from 0.
    pub round: u32,
    /// The number of the session that measured it, from 1; its record is in `run.json`.
    pub session: u32,
    /// The index in the round's order, from 0.
    pub position: u32,
    /// The host name.
    pub host: String,
    /// The id of the environment, as in `run.json`.
    pub environment: String,
    /// The number of the attempt, from 1; greater than 1 only after void samples.
    pub attempt: u32,
    /// The start, in seconds since 1970.
    pub at: f64,
    /// The duration including preparation, in seconds.
    pub seconds: f64,
    /// Metric to value, in the metric's unit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, f64>,
    /// Metric to histogram: HdrHistogram V2 in base64, in the metric's unit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub histograms: BTreeMap<String, String>,
    /// Counts of disturbances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<machine::noise::NoiseDelta>,
    /// The clocks before and after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<Clock>,
    /// Observed conditions, e.g. the proximity of the CPUs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub covariates: BTreeMap<String, Level>,
    /// The parts measured by each role, or by a guest.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parts: BTreeMap<String, Part>,
    /// The trials of a search, including void trials.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trials: Vec<Trial>,
    /// Why the sample is void, e.g. because the core clock changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub void: Option<String>,
    /// Why the sample failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
}

impl Sample {
    /// Returns whether its values are used: it neither failed nor is void.
    pub fn is_valid(&self) -> bool {
        self.error.is_none() && self.void.is_none()
    }

    /// Returns whether it is the last attempt of this session: it is valid, it failed, or no attempt is left.
    pub fn is_final(&self) -> bool {
        self.error.is_some() || self.void.is_none() || self.attempt >= MAX_ATTEMPTS
    }

    /// Returns whether a resumed run skips it: it is final and did not fail.
    pub fn is_complete(&self) -> bool {
        self.error.is_none() && self.is_final()
    }

    /// Returns the clock of what measured a metric, and the ID of its environment: those of the role that has it, if roles
    /// share the sample.
    pub(crate) fn clock_of(&self, metric: &str) -> Option<(Clock, &str)> {
        let roles = self.parts.iter().filter(|(role, _)| *role != GUEST);
        let part = roles.map(|(_, part)| part).find(|part| part.values.contains_key(metric));
        match part {
            Some(part) if part.environment != self.environment => {
                Some((part.clock?, &part.environment))
            }
            // Samples of earlier versions have the clock of the first role only.
            Some(Part { clock: Some(clock), .. }) => Some((*clock, &self.environment)),
            Some(_) | None => Some((self.clock?, &self.environment)),
        }
    }

    /// Checks that the attempt, the times and the clocks are possible.
    ///
    /// # Errors
    /// Returns one line with what is wrong.
    pub(crate) fn check_ranges(&self) -> Result<(), String> {
        if !(1..=MAX_ATTEMPTS).contains(&self.attempt) {
            return Err(format!("'attempt' is {}", self.attempt));
        }
        for (what, time) in [("seconds", self.seconds), ("at", self.at)] {
            if !(0.0..1e12).contains(&time) {
                return Err(format!("'{what}' is {time}"));
            }
        }
        let of_parts = self.parts.values().filter_map(|part| part.clock);
        self.clock.into_iter().chain(of_parts).try_for_each(|clock| clock.check_ranges())
    }
}

/// The maximum number of attempts at a sample.
pub const MAX_ATTEMPTS: u32 = 3;

/// The maximum change of the core clock during a sample, as a share; above it the sample is void. One step of an Intel
/// clock, 100 MHz, is 5% of 2 GHz.
const CLOCK_MOVED: f64 = 0.05;
/// The frequencies that a core clock or a time-stamp counter may have, in Hz: every x86-64 CPU has 0.8 to 7 GHz, and an
/// emulated one seems slower.
pub(crate) const POSSIBLE_HERTZ: RangeInclusive<f64> = 1e6..=1e11;
/// The cause of a void sample with an uncalibrated core clock.
pub const UNKNOWN_LATENCIES: &str =
    "the latencies of the core clock's chains could not be measured";

/// The clocks before and after a sample.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Clock {
    /// The frequency of the time-stamp counter, in Hz.
    pub tsc_hertz: f64,
    /// The step of the time-stamp counter, in ticks.
    pub tsc_step: u64,
    /// The median duration of an empty fenced pair of readings, in ticks, which is already subtracted.
    pub tsc_overhead: u64,
    /// The core clock before the sample from the fastest of three chains (two in a guest without an operating system),
    /// in Hz.
    pub core_before: f64,
    /// The same after the sample.
    pub core_after: f64,
    /// The core clock before the sample from the second fastest chain, in Hz; `None` if the latency of that chain is
    /// unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_before: Option<f64>,
    /// The same after the sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_after: Option<f64>,
    /// The independent adds per cycle before the sample, which a busy SMT sibling lowers; `None` in a guest without an
    /// operating system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issue_before: Option<f64>,
    /// The same after the sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issue_after: Option<f64>,
}

impl Clock {
    /// Returns the core clock during the sample, in Hz: the mean of before and after.
    pub fn core_hertz(&self) -> f64 {
        (self.core_before + self.core_after) / 2.0
    }

    /// Returns the change of the core clock during the sample, relative to before.
    pub fn moved(&self) -> f64 {
        (self.core_after / self.core_before - 1.0).abs()
    }

    /// Returns the relative difference of the two fastest chains: the larger of before and after.
    pub fn disagreement(&self) -> f64 {
        let differ = |fastest: f64, second: Option<f64>| {
            second.map_or(0.0, |second| (second / fastest - 1.0).abs())
        };
        let before = differ(self.core_before, self.second_before);
        before.max(differ(self.core_after, self.second_after))
    }

    /// Checks that the frequencies and rates are possible.
    fn check_ranges(&self) -> Result<(), String> {
        let second = self.second_before.into_iter().chain(self.second_after);
        let mut hertz =
            [self.tsc_hertz, self.core_before, self.core_after].into_iter().chain(second);
        if let Some(wrong) = hertz.find(|hertz| !POSSIBLE_HERTZ.contains(hertz)) {
            return Err(format!("a clock is {wrong} Hz"));
        }
        let mut rates = self.issue_before.into_iter().chain(self.issue_after);
        match rates.find(|rate| !(0.0..100.0).contains(rate)) {
            Some(wrong) => Err(format!("a core executes {wrong} adds per cycle")),
            None => Ok(()),
        }
    }

    /// Returns why a sample with these clocks is void; `None` if the chains agree and the core clock is stable.
    pub fn void(&self) -> Option<String> {
        if self.disagreement() > core_clock::AGREEMENT {
            return Some(chains_differ());
        }
        over(self.moved(), CLOCK_MOVED, "the core clock moved by")
    }
}

/// Returns a text for a share that is over its limit.
pub(crate) fn over(value: f64, limit: f64, what: &str) -> Option<String> {
    (value > limit).then(|| format!("{what} over {:.0}%", limit * 100.0))
}

/// Returns the cause of a void sample whose chains disagree: the same text for every difference, so that causes can be
/// counted.
fn chains_differ() -> String {
    let limit = core_clock::AGREEMENT * 100.0;
    format!("the two fastest chains of the core clock differ by over {limit:.0}%")
}

/// The name of the part that a guest measured, in the sample of its host.
pub(crate) const GUEST: &str = "guest";

/// The part of a sample that one role, or a guest, measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Part {
    /// The host name.
    pub host: String,
    /// The id of its environment.
    pub environment: String,
    /// Metric to value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, f64>,
    /// Counts of disturbances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<machine::noise::NoiseDelta>,
    /// The clocks of a role before and after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<Clock>,
    /// Observed conditions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub covariates: BTreeMap<String, Level>,
}

/// One trial of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Trial {
    /// The level.
    pub level: f64,
    /// Whether the condition was true; absent if the trial does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<bool>,
    /// Why the trial is void; if `holds` is present too, it counts nevertheless.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub void: Option<String>,
    /// Metric to value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, f64>,
}

/// The kind of a failure.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// This machine lacks what the point needs. This is a result, not a fault.
    Unavailable,
    /// This CPU lacks the instruction, or no machine can combine the levels of the point. This is a result, not a fault.
    Unsupported,
    /// The suite could not measure.
    Failed,
    /// The process died.
    Crashed,
    /// The process did not answer within its time limit.
    Timeout,
    /// The probe's check of its result failed.
    Check,
    /// From a probe: the sample is void and will be repeated. In a journal: all samples of all rounds were void,
    /// because the machine is too busy or the measured effect is unstable.
    Void,
}

impl FailureKind {
    /// Returns whether the run exits with 1 because of it.
    pub fn is_fault(self) -> bool {
        !matches!(self, Self::Unavailable | Self::Unsupported)
    }

    /// Returns the name in the journal.
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

/// Why a sample failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error, JsonSchema)]
#[error("{}: {why}{}", kind.name(), remedy.as_ref().map(|r| format!(" ({r})")).unwrap_or_default())]
pub struct Failure {
    /// The kind.
    pub kind: FailureKind,
    /// The reason in one line.
    pub why: String,
    /// The reason without details, which failures that differ in details share; `None` if `why` has no details.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// The remedy in one line, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Failure {
    /// Creates a failure without a remedy.
    pub fn new(kind: FailureKind, why: impl Into<String>) -> Self {
        Self { kind, why: why.into(), cause: None, remedy: None }
    }

    /// Adds the reason without details.
    pub fn with_cause(self, cause: impl Into<String>) -> Self {
        Self { cause: Some(cause.into()), ..self }
    }

    /// Returns the reason without details.
    pub fn cause(&self) -> &str {
        self.cause.as_deref().unwrap_or(&self.why)
    }

    /// Replaces the reason and keeps its cause.
    pub fn with_details(self, why: String) -> Self {
        Self { cause: Some(self.cause.unwrap_or(self.why)), why, ..self }
    }

    /// Creates a failure because this machine lacks what the point needs.
    pub fn unavailable(why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..Self::new(FailureKind::Unavailable, why) }
    }

    /// Creates a failure because the system refuses what the point needs.
    pub fn refused(error: machine::SysError) -> Self {
        let machine::SysError { attempt, source, remedy } = error;
        Self::unavailable(format!("{attempt}: {source}"), remedy).with_cause(attempt)
    }

    /// Creates a failure because this CPU lacks the instruction, or no machine can combine the levels of the point.
    pub fn unsupported(why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..Self::new(FailureKind::Unsupported, why) }
    }

    /// Creates a failure because the suite could not measure.
    pub fn failed(why: impl Into<String>) -> Self {
        Self::new(FailureKind::Failed, why)
    }

    /// Creates a failure that makes the sample void, so that it is repeated.
    pub fn void(why: impl Into<String>) -> Self {
        Self::new(FailureKind::Void, why)
    }

    /// Creates a failure because the probe's check of its result failed.
    pub fn check(why: impl Into<String>) -> Self {
        Self::new(FailureKind::Check, why)
    }
}

impl From<machine::Unavailable> for Failure {
    fn from(error: machine::Unavailable) -> Self {
        Self::unavailable(error.why, error.remedy)
    }
}

impl From<machine::SysError> for Failure {
    fn from(error: machine::SysError) -> Self {
        let machine::SysError { attempt, source, remedy } = error;
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
