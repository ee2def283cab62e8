//! Claims: published values and shapes as data, and the verdict on each from a run.
//!
//! Our own promises are claims with the source `tollgate`: the same engine judges them.

mod check;
mod evidence;
mod expect;
mod judge;
mod ratio;
mod read;
mod repeats;
mod shape;
mod steps;
mod twins;
mod verdict;
mod winner;
mod words;

use machine::proximity::Class;
use serde::Serialize;

pub use check::{check, needs};
pub use expect::{Bounds, Condition, Expect, Quantifier, Trend};
pub use judge::judge;
pub(crate) use read::Declared;
pub use verdict::{MeasuredValue, Verdict, VerdictKind};

use crate::data::{DataError, SourceLocation};
use crate::experiment::Profile;
use crate::point::Filter;
use crate::statistics::ORDER_STATISTIC_ROUNDS;

/// The source of our own promises.
pub const PROMISE: &str = "tollgate";

/// A published value or shape, with its source.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// The name on the command line: `threads-help-mapped`.
    pub id: String,
    /// What is claimed, in one sentence.
    pub says: String,
    /// Where it was published; [`PROMISE`] for our own.
    pub source: String,
    /// Which experiment can tell: `copy/throughput`.
    pub experiment: String,
    /// All points that the claim looks at.
    pub filter: Filter,
    /// The metric; the experiment's own if absent.
    pub metric: Option<String>,
    /// The value as published.
    pub published: Option<Published>,
    /// Whether the published value is expected of any hardware. If not, and nothing else is
    /// expected, it is shown beside ours and not judged.
    pub carries_over: bool,
    /// How many physical cores it needs.
    pub cores: Option<usize>,
    /// The only profile whose runs count.
    pub profile: Option<Profile>,
    /// How near the cores must have been: rounds of another class do not count.
    pub class: Option<Class>,
    /// How many rounds must judge; see [`Claim::rounds_needed`].
    pub rounds: Option<usize>,
    /// What must hold.
    pub expect: Option<Expect>,
    /// Location of its declaration.
    pub location: SourceLocation,
}

/// A value as published.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Published {
    /// In `unit`.
    pub value: f64,
    /// The unit, which is that of the metric.
    pub unit: String,
    /// By which share of it ours may differ.
    pub tolerance: Option<f64>,
    /// The hardware on which it was measured.
    pub on: Option<String>,
}

impl Claim {
    /// Whether it is one of our own.
    pub fn is_promise(&self) -> bool {
        self.source == PROMISE
    }

    /// How many rounds must judge: the first number of rounds whose interval covers 95%, unless
    /// the claim says otherwise. With fewer the verdict is inconclusive.
    pub fn rounds_needed(&self) -> usize {
        self.rounds.unwrap_or(ORDER_STATISTIC_ROUNDS)
    }

    fn error(&self, what: &str) -> DataError {
        self.location.error(format!("claim '{}': {what}", self.id))
    }
}
