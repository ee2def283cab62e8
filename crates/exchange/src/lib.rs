//! Measurements of other programs next to those of a run, and those of a run in their formats.
//!
//! Imported values are another source's: they are never samples of a journal, never paired with rounds, and never judged.
//! Each comparison states the source, the digest of its file, its conditions, and what makes two values not comparable.

mod agreement;
mod comparison;
mod counterpart;
mod error;
mod escape;
mod form;
mod input;
mod instlatx64;
mod instructions;
mod mbw;
mod ours;
mod output;
mod perf_bench;
mod source;
mod table;
mod uops_info;

pub use agreement::{Agreement, AgreementCount};
pub use comparison::{compare, cpu_of};
pub use error::ExchangeError;
pub use output::{ComparedValue, Counterpart, ImportOutput, OurValue, RunOutput};
pub use perf_bench::Benchmark;
pub use source::{Condition, ForeignValue, Format, Import, Source, Stated};
pub use table::{csv, text};
pub use uops_info::{ExportedTable, Role, export_uops_info};

use std::path::Path;

use input::Input;

/// Properties that a file does not state.
#[derive(Debug, Clone, Default)]
pub struct ImportOptions {
    /// Benchmark of `perf bench --format simple`, e.g. `syscall basic`.
    pub benchmark: Option<Benchmark>,
    /// Operations that `perf bench --format simple` executed; by default perf's own number.
    pub operations: Option<u64>,
    /// Architecture of uops.info, e.g. `SKX`.
    pub architecture: Option<String>,
    /// CPU of the run, which chooses the architecture if none is named.
    pub cpu: Option<machine::cpu::Cpu>,
}

/// Reads a file of another program.
///
/// # Errors
/// Returns one line with the cause and a fix if the file cannot be read or is not of the format.
pub fn import(
    format: Format,
    path: &Path,
    options: &ImportOptions,
) -> Result<Import, ExchangeError> {
    match format {
        Format::Escape => escape::import(&Input::read(path)?),
        Format::Mbw => mbw::import(&Input::read(path)?),
        Format::PerfBench => perf_bench::import(&Input::read(path)?, options),
        Format::Instlatx64 => instlatx64::import(&Input::read(path)?),
        Format::UopsInfo => uops_info::import(path, options),
    }
}
