//! Content of a file of another program: its source, its conditions and its values.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::input::{Digest, Input};
use crate::instructions::ForeignForm;

/// Format of a file of another program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// `results.csv` of ESCAPE's `memcpy_test`.
    Escape,
    /// Output of `mbw`.
    Mbw,
    /// Output of `perf bench`, in its default or its simple format.
    PerfBench,
    /// Dump of InstLatX64 (AIDA64).
    Instlatx64,
    /// `instructions.xml` of uops.info.
    UopsInfo,
}

impl Format {
    /// Returns the name of the source.
    pub fn source(self) -> &'static str {
        match self {
            Self::Escape => "ESCAPE",
            Self::Mbw => "mbw",
            Self::PerfBench => "perf bench",
            Self::Instlatx64 => "InstLatX64",
            Self::UopsInfo => "uops.info",
        }
    }

    /// Returns the name in data files.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Escape => "escape",
            Self::Mbw => "mbw",
            Self::PerfBench => "perf-bench",
            Self::Instlatx64 => "instlatx64",
            Self::UopsInfo => "uops-info",
        }
    }

    /// Returns whether its values are those of instructions.
    pub(crate) fn is_of_instructions(self) -> bool {
        matches!(self, Self::Instlatx64 | Self::UopsInfo)
    }
}

/// Source of imported values.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Source {
    /// Format of the file.
    pub format: Format,
    /// Program or project that measured.
    pub program: String,
    /// Name of the file.
    pub file: String,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// SHA-256 digest of the file.
    pub sha256: String,
    /// Conditions that the file states, and how its values are read. None of it is verified.
    pub conditions: Vec<Condition>,
}

/// Condition of a measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Condition {
    /// Name, e.g. `CPU`.
    pub name: String,
    /// Value or statement.
    pub value: String,
}

/// Value that a source states.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Stated {
    /// The value; the middle of the range if the source states a range only.
    pub value: f64,
    /// Smallest value that the source states.
    pub low: f64,
    /// Largest value that the source states.
    pub high: f64,
    /// Number of runs that the source states.
    pub runs: Option<u64>,
    /// Whether the source states that the true value may be smaller.
    pub is_upper_bound: bool,
}

impl Stated {
    /// Returns a single value.
    pub(crate) fn exact(value: f64) -> Self {
        Self { value, low: value, high: value, runs: None, is_upper_bound: false }
    }

    /// Returns the distance of a value from the stated range; 0 within it.
    pub(crate) fn distance(&self, value: f64) -> f64 {
        let low = if self.is_upper_bound { f64::NEG_INFINITY } else { self.low };
        (low - value).max(value - self.high).max(0.0)
    }
}

/// Imported value with the properties by which its counterpart is found.
#[derive(Debug, Clone, PartialEq)]
pub struct ForeignValue {
    /// Name in the file, e.g. `MEMCPY 256 MiB`.
    pub name: String,
    /// Name of its kind in the data of counterparts, e.g. `MEMCPY`.
    pub key: String,
    /// Levels of tollgate's factors that the file states.
    pub levels: BTreeMap<String, String>,
    /// Metric of tollgate to which the value corresponds.
    pub metric: &'static str,
    /// Unit of the value, that of `metric`.
    pub unit: &'static str,
    /// The value; `None` if the file states no number, e.g. `inf`.
    pub stated: Option<Stated>,
    /// Reason why the value is hard to compare or missing.
    pub remark: Option<String>,
}

/// Content of a file of another program.
#[derive(Debug, Clone, PartialEq)]
pub struct Import {
    /// Program, machine and conditions that the file states.
    pub source: Source,
    /// Values in the order of the file.
    pub values: Vec<ForeignValue>,
    /// Latency and throughput of instruction forms; empty for other formats.
    pub(crate) forms: Vec<ForeignForm>,
    /// CPU on which the values were measured.
    pub(crate) cpu: ForeignCpu,
}

/// CPU of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ForeignCpu {
    /// The source does not state it.
    Unknown,
    /// Family and model, as the kernel shows them.
    Model(u32, u32),
    /// Name of its microarchitecture at uops.info.
    Architecture(String),
}

impl Import {
    /// Returns values that are not of instructions.
    pub(crate) fn of_values(source: Source, values: Vec<ForeignValue>) -> Self {
        Self { source, values, forms: Vec::new(), cpu: ForeignCpu::Unknown }
    }

    /// Returns the instruction forms of a CPU.
    pub(crate) fn of_forms(source: Source, forms: Vec<ForeignForm>, cpu: ForeignCpu) -> Self {
        Self { source, values: Vec::new(), forms, cpu }
    }
}

impl Source {
    /// Returns the source of a file without conditions.
    pub(crate) fn new(format: Format, program: &str, file: &str, digest: &Digest) -> Self {
        let Digest { bytes, sha256 } = digest.clone();
        let (program, file) = (program.into(), file.into());
        Self { format, program, file, bytes, sha256, conditions: Vec::new() }
    }

    /// Returns the source of a file that was read whole.
    pub(crate) fn of(format: Format, program: &str, input: &Input) -> Self {
        Self::new(format, program, &input.file, &input.digest)
    }

    /// Adds a condition, unless its value is empty.
    pub(crate) fn condition(&mut self, name: &str, value: impl Into<String>) {
        let value = value.into();
        if !value.is_empty() {
            self.conditions.push(Condition { name: name.into(), value });
        }
    }
}
