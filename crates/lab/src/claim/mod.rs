//! Claims: published values and trends as data, and the verdict on each from a run.
//!
//! Promises of tollgate itself are claims with the source `tollgate`.

mod best;
mod check;
mod classes;
mod elsewhere;
mod every_sample;
mod evidence;
mod expect;
mod judge;
mod lacking;
mod limited;
mod measured;
mod projection;
mod ratio;
mod read;
mod reason;
mod relative;
mod rounds;
mod setup;
mod shape;
mod states;
mod verdict;
mod winner;

use machine::proximity::Class;
use schemars::JsonSchema;
use serde::Serialize;

pub use check::{check, needs, needs_of_profiles};
pub use classes::ClassResult;
pub use elsewhere::OtherVerdict;
pub use expect::{Bounds, Condition, Expect, Quantifier, SpreadUnit, Trend};
pub use judge::{Judge, judge};
pub use lacking::LackingRounds;
pub(crate) use read::{Declared, DeclaredTable};
pub use reason::{LeftOut, Reason, Relation};
pub use setup::{CarriesOver, CpuModel, Setup, Unmet};
pub use verdict::{Judgement, MeasuredValue, Statistic, Verdict, VerdictKind, Violations};

use crate::data::{DataError, SourceLocation};
use crate::experiment::Profile;
use crate::point::Filter;
use crate::statistics::INTERVAL_ROUNDS;

/// Source of the promises of tollgate itself.
pub const PROMISE: &str = "tollgate";

/// Number of rounds of each point required to reproduce what never or always happens, unless the claim sets another.
/// After so many without a violation the rate of violations at the point is at most 26% with 95% confidence.
pub const RATE_ROUNDS: usize = 10;

/// A published value or trend, with its source.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// ID on the command line: `threads-help-mapped`.
    pub id: String,
    /// The claim in one sentence.
    pub says: String,
    /// Publication; [`PROMISE`] for promises of tollgate itself.
    pub source: String,
    /// Where its number comes from, if the source only plots or rounds it, or if it is computed from other numbers of the
    /// source; `None` if the source states it.
    pub origin: Option<String>,
    /// ID of the experiment that measures it: `copy/throughput`.
    pub experiment: String,
    /// Points that the claim is about.
    pub filter: Filter,
    /// Levels of the points that the source is about. If the run has a value of one of them, the others
    /// are not judged.
    pub prefer: Option<Filter>,
    /// Metric; `None` for the experiment's.
    pub metric: Option<String>,
    /// Unit of its values, in which its bounds are: that of the published value or of the metric; `None` until the claim is
    /// checked against the suites.
    pub unit: Option<String>,
    /// Value as published.
    pub published: Option<Published>,
    /// Where the published value is expected; `None` if `expect` is judged instead. Elsewhere the
    /// value is shown next to the measured one and not judged.
    pub carries_over: Option<CarriesOver>,
    /// Properties of the machine without which the claim is unmeasurable.
    pub requires: Option<Setup>,
    /// Whether an emulated CPU can show it: it is about counts that the CPU does not affect. Other claims are unmeasurable
    /// on an emulated CPU.
    pub emulated: bool,
    /// Number of physical cores required.
    pub cores: Option<usize>,
    /// Profile required of the run.
    pub profile: Option<Profile>,
    /// Proximity of the cores required: rounds of another class do not count.
    pub class: Option<Class>,
    /// Number of rounds required; see [`Claim::rounds_needed`].
    pub rounds: Option<usize>,
    /// Why no machine can measure it, or tollgate cannot yet.
    pub unmeasurable: Option<String>,
    /// Why a contrary result is no evidence against the claim. It is then incomparable.
    pub one_sided: Option<String>,
    /// Condition that must be true.
    pub expect: Option<Expect>,
    /// Location of its declaration.
    pub location: SourceLocation,
    /// Further arguments of the command that measures it, e.g. ` --results r`; empty by default.
    pub arguments: String,
}

/// A published value.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Published {
    /// Value in `unit`.
    pub value: f64,
    /// Unit: that of the metric, ticks or cycles.
    pub unit: String,
    /// Permitted difference, as a share of the value.
    pub tolerance: Option<f64>,
    /// Hardware on which it was measured.
    pub on: Option<String>,
}

impl Claim {
    /// Returns whether it is a promise of tollgate itself.
    pub fn is_promise(&self) -> bool {
        self.source == PROMISE
    }

    /// Returns the number of rounds required for a verdict: unless the claim sets one, the smallest
    /// number whose interval covers 95%, and [`RATE_ROUNDS`] for what never or always happens. With fewer the verdict
    /// is inconclusive.
    pub fn rounds_needed(&self) -> usize {
        let condition = self.expect.as_ref().map(|expect| &expect.kind);
        let default = match condition {
            Some(Condition::EverySample(_)) => RATE_ROUNDS,
            _ => INTERVAL_ROUNDS,
        };
        self.rounds.unwrap_or(default)
    }

    fn error(&self, what: &str) -> DataError {
        self.location.error(format!("claim '{}': {what}", self.id))
    }
}
