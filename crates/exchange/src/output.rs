//! JSON output of `tollgate import`.

use std::collections::BTreeMap;

use lab::point::Point;
use lab::schema::JsonOutput;
use lab::statistics::Estimate;
use schemars::JsonSchema;
use serde::Serialize;

use crate::agreement::{Agreement, AgreementCount};
use crate::source::{Source, Stated};

/// Values of another source next to those of a run.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ImportOutput {
    /// The other source. Its values are no samples of the run: they have no rounds, are not paired with ours, and are not
    /// judged.
    pub source: Source,
    /// The run with our values.
    pub run: RunOutput,
    /// The values, in the order of the file; of instructions, in the order of our list.
    pub values: Vec<ComparedValue>,
    /// Number of values by agreement; empty unless they are of instructions.
    pub agreement: Vec<AgreementCount>,
    /// Remarks on all values.
    pub notes: Vec<String>,
}

impl JsonOutput for ImportOutput {
    const NAME: &'static str = "import";
    const WRITTEN_BY: &'static str = "tollgate import --json";
    const VERSION: u64 = 1;
}

/// A run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RunOutput {
    /// Name of the run.
    pub name: String,
    /// Name of the host.
    pub host: String,
    /// Brand of its CPU.
    pub cpu: String,
    /// Start of the run.
    pub start: String,
}

/// A value of the source, with one of ours if there is a counterpart.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ComparedValue {
    /// Name in the file.
    pub name: String,
    /// Our metric.
    pub metric: String,
    /// Unit of both values.
    pub unit: String,
    /// Value of the source; `null` if it states none.
    pub theirs: Option<Stated>,
    /// Our points; `null` if no experiment measures the same.
    pub counterpart: Option<Counterpart>,
    /// Our value; `null` if the run has none.
    pub ours: Option<OurValue>,
    /// Our median over the value of the source, unpaired.
    pub ratio: Option<f64>,
    /// Agreement; of instructions only.
    pub agreement: Option<Agreement>,
    /// Known reason of a difference.
    pub reason: Option<String>,
    /// Reasons why the values are hard to compare, or why one is missing.
    pub remarks: Vec<String>,
}

/// Points of ours that measure the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Counterpart {
    /// ID of the experiment.
    pub experiment: String,
    /// Levels; other factors are at the experiment's baseline.
    pub levels: BTreeMap<String, String>,
}

/// A value of ours.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct OurValue {
    /// The point.
    pub point: Point,
    /// Median over rounds with its interval.
    pub estimate: Estimate,
}
