//! Arguments of `tollgate export`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::ResultsArgs;

/// File format of an export.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// Samples as comma-separated values
    Csv,
    /// Samples and the records of their runs
    Json,
    /// Samples as compressed columns with types
    Parquet,
    /// Values in Bencher Metric Format
    Bmf,
    /// Values as custom JSON of github-action-benchmark
    GithubActionBenchmark,
    /// Values as OpenMetrics text, in base units
    Openmetrics,
    /// Summary of headlines, verdicts and what the machine lacks
    Markdown,
    /// Instruction table in the format of uops.info's instructions.xml
    UopsXml,
}

/// Better direction of metrics.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Direction {
    /// Higher values are better: customBiggerIsBetter
    Higher,
    /// Lower values are better: customSmallerIsBetter
    Lower,
}

#[derive(Args)]
pub(crate) struct Export {
    /// File format
    pub(crate) format: ExportFormat,
    #[command(flatten)]
    pub(crate) results: ResultsArgs,
    /// Export a fleet, the runs of many nodes below this folder: its comparison as openmetrics, or with --output DIR the
    /// samples of all nodes as parquet, in a folder for each host
    #[arg(long, value_name = "DIR", conflicts_with_all = ["folder", "files"])]
    pub(crate) fleet: Option<PathBuf>,
    /// Output file [default: standard output]
    #[arg(short = 'o', long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Direction of the exported metrics; for github-action-benchmark only, which requires it
    #[arg(long, value_enum, value_name = "DIRECTION")]
    pub(crate) better: Option<Direction>,
    /// Name of the architecture; for uops-xml only [default: uops.info's name of the run's CPU]
    #[arg(long = "arch", value_name = "NAME")]
    pub(crate) architecture: Option<String>,
    /// Extra TOML file of claims and headlines; for openmetrics and markdown (repeatable)
    #[arg(short = 'e', long = "experiments", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Suites or experiments [default: all of the run]
    pub(crate) names: Vec<String>,
}
