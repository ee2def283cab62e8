//! Arguments of `tollgate import`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use exchange::{Benchmark, Format};

use super::ResultsArgs;

/// Format of an imported file.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ImportFormat {
    /// results.csv of ESCAPE's memcpy_test
    Escape,
    /// Output of mbw
    Mbw,
    /// Output of perf bench, in its default or its simple format
    PerfBench,
    /// Dump of InstLatX64
    #[value(name = "instlatx64")]
    InstLatX64,
    /// instructions.xml of uops.info
    UopsInfo,
}

impl ImportFormat {
    /// Returns the format of the library.
    pub(crate) fn format(self) -> Format {
        match self {
            Self::Escape => Format::Escape,
            Self::Mbw => Format::Mbw,
            Self::PerfBench => Format::PerfBench,
            Self::InstLatX64 => Format::Instlatx64,
            Self::UopsInfo => Format::UopsInfo,
        }
    }
}

#[derive(Args)]
pub(crate) struct Import {
    /// Format of the file
    pub(crate) format: ImportFormat,
    /// File of the other program, or '-' for standard input
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) results: ResultsArgs,
    /// Benchmark of perf bench --format simple, e.g. 'syscall basic'
    #[arg(long, value_name = "NAME", value_parser = Benchmark::parse)]
    pub(crate) benchmark: Option<Benchmark>,
    /// Operations that perf bench --format simple executed [default: perf's number]
    #[arg(long, value_name = "N", requires = "benchmark", allow_negative_numbers = true,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) operations: Option<u64>,
    /// Architecture of uops.info, e.g. SKX [default: that of the run's CPU]
    #[arg(long = "arch", value_name = "NAME")]
    pub(crate) architecture: Option<String>,
    /// List all instruction forms, not only those that differ
    #[arg(long, conflicts_with_all = ["json", "csv"])]
    pub(crate) all: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print comma-separated values
    #[arg(long, conflicts_with = "json")]
    pub(crate) csv: bool,
}
