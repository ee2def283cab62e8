//! uops.info's table of instructions, `instructions.xml`: reading it, and writing ours in its format.

mod architecture;
mod operand;
mod read;
mod write;

pub(crate) use architecture::Architectures;
pub use operand::Role;
pub use write::{ExportedTable, export_uops_info};

use std::fs::File;
use std::path::Path;

use crate::ImportOptions;
use crate::error::ExchangeError;
use crate::input::named;
use crate::source::{ForeignCpu, Format, Import, Source};

/// Number of architectures that an error names.
const MAX_NAMED: usize = 40;

/// Reads the forms of one architecture.
///
/// # Errors
/// Returns an error if the architecture is not known, or if the file cannot be read or has no measurements of it.
pub(crate) fn import(path: &Path, options: &ImportOptions) -> Result<Import, ExchangeError> {
    let (path, file) = named(path);
    let by_cpu = match &options.cpu {
        Some(cpu) => Architectures::built_in()?.of(cpu),
        None => None,
    };
    let named = options.architecture.as_deref();
    let Some(architecture) = named.or(by_cpu.map(|known| known.name)) else {
        let cpu = options.cpu.as_ref().map_or("unknown", |cpu| cpu.brand.as_str());
        let line = format!(
            "the architecture of this run's CPU ({cpu}) is not known; choose one with --arch, e.g. SKL"
        );
        return Err(ExchangeError::Option(line));
    };
    let input = File::open(&path).map_err(|why| ExchangeError::Read { file: file.clone(), why })?;
    let table = read::read(input, &file, architecture)?;
    if table.forms.is_empty() {
        let known: Vec<&str> =
            table.architectures.iter().map(String::as_str).take(MAX_NAMED).collect();
        let line = format!(
            "{file}: no measurements of '{architecture}'; choose one with --arch: {}",
            known.join(", ")
        );
        return Err(ExchangeError::Option(line));
    }
    let mut source = Source::new(Format::UopsInfo, "uops.info", &file, &table.digest);
    source.condition("date", table.date.unwrap_or_default());
    let chosen = match named {
        Some(_) => "as named",
        None if by_cpu.is_some_and(|known| known.is_same) => "that of this run's CPU",
        None => "related to this run's CPU",
    };
    source.condition("architecture", format!("{architecture}, {chosen}"));
    source.condition(
        "instructions",
        format!(
            "{}, {} with measurements and plain operands",
            table.instructions,
            table.forms.len()
        ),
    );
    source.condition("throughput", "the smaller one of unrolled copies and of copies in a loop");
    source.condition(
        "latency",
        "by pair of operands; the range over all pairs that our chain may be",
    );
    let cpu = ForeignCpu::Architecture(architecture.to_owned());
    Ok(Import::of_forms(source, table.forms, cpu))
}
