//! `bounds/kernel-tables`: instructions of the kernel that makes bounds tables itself, as Linux 3.19 to 5.5 did.
//!
//! A minimal guest boots Linux 6.12 with a patch that restores the kernel's part of MPX. Its only process is the program of
//! `table-instructions`, and a plugin of QEMU counts the instructions of both modes.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use lab::artefact::Recipe;
use lab::factor::{LevelType, Levels};
use lab::measure::{Context, Measurement};
use lab::method::{Method, Params, Probe};
use lab::metric::{Better, Metric};
use lab::sample::Failure;
use vm::compiler;
use vm::counter::{self, CountedGuest, InstructionCounts};
use vm::patched_linux::{self, Patch};

use crate::kernels::tables::{HeapLifetime, MAX_COUNT};

/// The kernel, and the program with its file.
const LINUX: &str = "mpx-linux-6.12";
const PROGRAM: &str = "bounds-guest-tables";
const PROGRAM_FILE: &str = "init";
/// The program's main source first.
const SOURCES: [(&str, &str); 2] = [
    ("guest_tables.c", include_str!("../../kernels/guest_tables.c")),
    ("tables.c", include_str!("../../kernels/tables.c")),
];
/// As published, without optimisation; without the markers of indirect branches, which an old GCC does not insert.
const FLAGS: [&str; 4] = ["-O0", "-std=gnu11", "-fcf-protection=none", "-static"];
/// Each of 30,000 pointers needs four pages.
const MEMORY: &str = "1G";
/// Time of a boot and of a pointer under the plugin.
const BOOT: Duration = Duration::from_secs(2);
const TIME_PER_POINTER: Duration = Duration::from_micros(200);
/// Time limit of the guest, within that of the experiment: on a busy machine a boot takes many times as long.
const LIMIT: Duration = Duration::from_secs(15 * 60);

/// Part of the system that makes the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub(super) enum TableMaker {
    /// Nothing: MPX is off.
    None,
    /// The kernel, when the processor raises #BR.
    Kernel,
}

/// Params of `kernel-tables`.
#[derive(Debug, Clone, Copy, Params)]
pub(crate) struct KernelTableParams {
    /// none: MPX is off; kernel: the kernel makes the tables when the processor lacks one
    #[factor(default = "kernel")]
    tables: TableMaker,
    /// kept, or freed after the last store
    #[factor(default = "kept")]
    life: HeapLifetime,
    /// the number of pointers, each of which needs a separate table
    #[factor(default = "30000", levels = Levels::Count(1, MAX_COUNT))]
    count: usize,
}

impl KernelTableParams {
    fn expected(&self) -> Duration {
        BOOT + TIME_PER_POINTER.saturating_mul(u32::try_from(self.count).unwrap_or(u32::MAX))
    }
}

/// The method `kernel-tables`.
pub(crate) struct KernelTables;

impl Method for KernelTables {
    type Params = KernelTableParams;

    fn name(&self) -> &'static str {
        "kernel-tables"
    }

    fn how(&self) -> &'static str {
        "An emulated guest boots Linux with a patch that restores the kernel's bounds tables, and a plugin of \
         the emulator counts the kernel's instructions between two markers of one program; nothing is timed. \
         Every pointer must have had its table, and kept tables must contain the bounds."
    }

    fn metrics(&self) -> &'static [Metric] {
        const METRICS: &[Metric] = &[Metric::new(
            "system_instructions",
            "1",
            Better::Lower,
            "instructions per store in the kernel",
        )];
        METRICS
    }

    fn available(&self, _: &KernelTableParams) -> Result<(), Failure> {
        counter::available()
    }

    fn expected(&self, params: &KernelTableParams, _: Duration) -> Duration {
        params.expected()
    }

    fn artefacts(&self, _: &KernelTableParams) -> Vec<Recipe> {
        vec![linux(), program(), counter::plugin()]
    }

    fn probe(&self) -> Result<Box<dyn Probe<KernelTableParams>>, Failure> {
        Ok(Box::new(measure))
    }
}

/// The kernel's part of MPX.
pub const PATCH: Patch = Patch {
    name: "bounds-tables",
    text: include_str!("../../kernel/bounds-tables.patch"),
    options: "CONFIG_X86_BOUNDS_TABLES=y\n",
};

/// Returns the recipe of Linux with the kernel's part of MPX. It takes some minutes.
fn linux() -> Recipe {
    patched_linux::recipe(LINUX, PATCH.text, PATCH.options)
}

/// Returns the recipe of the program, which is static because nothing else is in the guest.
fn program() -> Recipe {
    let make =
        |_: &Recipe, folder: &Path| compiler::compile(folder, &FLAGS, &SOURCES, PROGRAM_FILE);
    let sources = SOURCES.iter().map(|(_, text)| (*text).to_owned());
    let inputs = sources.chain([FLAGS.join(" "), compiler::toolchain()]).map(String::into_bytes);
    Recipe { name: PROGRAM.into(), inputs: inputs.collect(), make }
}

fn measure(context: &mut Context, params: &KernelTableParams) -> Result<Measurement, Failure> {
    counter::available()?;
    let KernelTableParams { tables, life, count } = *params;
    let (linux, program, plugin) =
        (context.artefact(LINUX)?, context.artefact(PROGRAM)?, context.artefact(counter::PLUGIN)?);
    let arguments = [&count.to_string(), life.name(), tables.name()];
    let guest = CountedGuest {
        plugin,
        cpu: "max,+mpx",
        memory: MEMORY,
        kernel: linux.join("bzImage"),
        program: program.join(PROGRAM_FILE),
        arguments: &arguments,
        limit: LIMIT,
    };
    let counts = guest.run()?;
    check(params, &counts)?;
    Ok(Measurement::default()
        .value("system_instructions", counts.kernel as f64 / count as f64)
        .covariate("counted_by", "qemu-plugin")
        .emulated())
}

/// Checks that every pointer was stored and had a table afterwards, or none had one, and that at the end every one has a
/// table with its bounds, or none has one.
fn check(params: &KernelTableParams, counts: &InstructionCounts) -> Result<(), Failure> {
    let KernelTableParams { tables, life, count } = *params;
    let reported: BTreeMap<_, _> =
        counts.output.split_whitespace().filter_map(|word| word.split_once('=')).collect();
    let reported = |name| reported.get(name).and_then(|text: &&str| text.parse::<usize>().ok());
    let [stored, made, kept, bounds] = ["stored", "made", "tables", "bounds"].map(reported);
    let is_right = match (tables, life) {
        (TableMaker::None, _) => made == Some(0) && kept == Some(0),
        (TableMaker::Kernel, HeapLifetime::Freed) => made == Some(count) && kept == Some(0),
        (TableMaker::Kernel, HeapLifetime::Kept) => {
            made == Some(count) && kept == made && bounds == made
        }
    };
    match stored == Some(count) && is_right {
        true => Ok(()),
        false => {
            let output = counts.output.split_whitespace().collect::<Vec<_>>().join(" ");
            Err(Failure::check(format!("{count} pointers in the guest: '{output}'")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::sample::FailureKind;

    #[test]
    fn the_program_has_the_markers_of_the_counter() {
        let (_, program) = SOURCES[0];
        for (marker, name) in counter::MARKERS.iter().zip(["BEGIN", "END"]) {
            let line = format!("#define {name}_COUNT() __asm__ volatile(\"nopl {marker:#x}(");
            assert!(program.contains(&line), "{line}");
        }
    }

    #[test]
    fn a_guest_that_lost_a_table_or_kept_one_fails_the_check() {
        let result = |tables, life, output: &str| {
            let counts = InstructionCounts { user: 1, kernel: 1, output: output.into() };
            check(&KernelTableParams { tables, life, count: 3 }, &counts)
        };
        use {HeapLifetime::*, TableMaker::*};
        for (tables, life, output) in [
            (None, Kept, "stored=3\r\nmade=0 tables=0 bounds=0\r\nreboot: Restarting system\r\n"),
            (Kernel, Kept, "stored=3 made=3 tables=3 bounds=3\n"),
            (Kernel, Freed, "stored=3 made=3 tables=0 bounds=0\n"),
        ] {
            assert_eq!(result(tables, life, output), Ok(()));
        }
        for (tables, life, output) in [
            (None, Kept, "stored=3 made=3 tables=3 bounds=3\n"),
            (Kernel, Kept, "stored=3 made=3 tables=3 bounds=2\n"),
            (Kernel, Kept, "stored=2 made=3 tables=3 bounds=3\n"),
            (Kernel, Freed, "stored=3 made=3 tables=1 bounds=0\n"),
            // A kernel that makes no table has none to free.
            (Kernel, Freed, "stored=3 made=0 tables=0 bounds=0\n"),
            (Kernel, Freed, "Kernel panic\n"),
        ] {
            let failure = result(tables, life, output).unwrap_err();
            assert_eq!(failure.kind, FailureKind::Check, "{output}");
        }
    }
}
