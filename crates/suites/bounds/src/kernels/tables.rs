//! `bounds/table-instructions`: user-mode instructions of the published program that makes bounds tables.
//!
//! The compilers of MPX are the only source of its instructions, and these execute as NOPs where there is no MPX, so
//! their number can be counted on any CPU. It does not contain the work of the kernel.

use std::time::Duration;

use lab::artefact::Recipe;
use lab::factor::{LevelType, Levels};
use lab::measure::{Context, Measurement};
use lab::method::{Method, Params, Probe};
use lab::metric::{Better, Metric};
use lab::sample::Failure;

use super::manifest::{self, Mechanism};
use super::{build, child, compiler, timed};
use crate::callgrind::{self, Counted, VALGRIND};

/// The functions of the program: `check` verifies what `run` stored.
const COUNTED: Counted = Counted { function: "run", without: Some("check") };
/// Maximum number of pointers, as in the published program.
pub(crate) const MAX_COUNT: u64 = 30_000;
/// Memory per pointer: its page, the pages of the allocator, and their page tables.
const BYTES_PER_POINTER: u64 = 4 * 4096;
/// Time of valgrind's start and of a pointer under callgrind.
const START: Duration = Duration::from_millis(500);
const TIME_PER_POINTER: Duration = Duration::from_micros(60);
/// Time limit as a multiple of the expected time: on a busy machine a sample takes many times as long.
const PATIENCE: u32 = 100;

/// Compiler of the program, with or without MPX.
#[derive(Debug, Clone, Copy, LevelType)]
pub(super) enum Build {
    /// The system's GCC.
    Gcc,
    /// A GCC with MPX, not used.
    GccMpxNone,
    /// A GCC with MPX.
    GccMpx,
}

impl Build {
    fn mechanism(self) -> Result<&'static Mechanism, Failure> {
        manifest::mechanism(self.name())
    }
}

/// Lifetime of the pointers' memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub(crate) enum HeapLifetime {
    /// Until the exit.
    Kept,
    /// Until all pointers are stored.
    Freed,
}

/// Params of `table-instructions`.
#[derive(Debug, Clone, Copy, Params)]
pub(crate) struct TableProgramParams {
    /// the compiler, as in mechanisms.toml, without or with MPX
    #[factor(default = "gcc")]
    mechanism: Build,
    /// kept, or freed after the last store
    #[factor(default = "kept")]
    life: HeapLifetime,
    /// the number of pointers, each of which needs a separate table
    #[factor(default = "3000", levels = Levels::Count(1, MAX_COUNT))]
    count: usize,
}

impl TableProgramParams {
    fn expected(&self) -> Duration {
        let count = u32::try_from(self.count).unwrap_or(u32::MAX);
        START + TIME_PER_POINTER.saturating_mul(count)
    }
}

/// Counts the instructions of the program.
pub(crate) struct TableProgram;

impl Method for TableProgram {
    type Params = TableProgramParams;

    fn name(&self) -> &'static str {
        "table-instructions"
    }

    fn how(&self) -> &'static str {
        "Callgrind counts the user-mode instructions of a compiled program that stores pointers, each of \
         which would need a bounds table; nothing is timed. The program checks what it stored and must report \
         the expected number."
    }

    fn metrics(&self) -> &'static [Metric] {
        const METRICS: &[Metric] = &[Metric::new(
            "user_instructions",
            "1",
            Better::Lower,
            "instructions per store in user mode",
        )];
        METRICS
    }

    fn available(&self, params: &TableProgramParams) -> Result<(), Failure> {
        compiler::program(params.mechanism.mechanism()?.compiler()?)?;
        VALGRIND.find().map(drop)
    }

    fn expected(&self, params: &TableProgramParams, _: Duration) -> Duration {
        params.expected()
    }

    fn artefacts(&self, params: &TableProgramParams) -> Vec<Recipe> {
        match (self.available(params), params.mechanism.mechanism()) {
            (Ok(()), Ok(mechanism)) => vec![build::recipe(build::TABLES, mechanism)],
            _ => Vec::new(),
        }
    }

    fn foreign_code(&self, _: &TableProgramParams) -> Vec<&'static str> {
        vec!["the C library's malloc, and valgrind, which translates the program while it runs"]
    }

    fn probe(&self) -> Result<Box<dyn Probe<TableProgramParams>>, Failure> {
        Ok(Box::new(measure))
    }
}

fn measure(context: &mut Context, params: &TableProgramParams) -> Result<Measurement, Failure> {
    TableProgram.available(params)?;
    let TableProgramParams { mechanism, life, count } = *params;
    child::has_memory(count as u64 * BYTES_PER_POINTER)?;
    let name = build::name(build::TABLES, mechanism.name());
    let program = context.artefact(&name)?.join(build::PROGRAM);
    let arguments = [&count.to_string(), life.name()];
    let limit = params.expected() * PATIENCE;
    let counts = callgrind::count(&program, &arguments, COUNTED, limit)?;
    let expected = format!("stored={count}");
    if counts.output.trim() != expected {
        let output = counts.output.trim();
        return Err(Failure::check(format!("{name} printed '{output}'; expected '{expected}'")));
    }
    timed::record_function(&program, COUNTED.function);
    Ok(Measurement::default()
        .value("user_instructions", counts.instructions as f64 / count as f64)
        .covariate("counted_by", "callgrind"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::artefact;

    /// Returns the instructions per store; `None` if this machine cannot count them.
    fn instructions(mechanism: Build, life: HeapLifetime, count: usize) -> Option<f64> {
        let params = TableProgramParams { mechanism, life, count };
        let counted = TableProgram.available(&params).and_then(|()| {
            let folder = artefact::prepare(&build::recipe(build::TABLES, mechanism.mechanism()?))?;
            let arguments = [&count.to_string(), life.name()];
            let program = folder.join(build::PROGRAM);
            callgrind::count(&program, &arguments, COUNTED, params.expected() * PATIENCE)
        });
        match counted {
            Ok(counts) => {
                assert_eq!(counts.output, format!("stored={count}\n"));
                Some(counts.instructions as f64 / count as f64)
            }
            Err(failure) if !failure.kind.is_fault() => {
                let what = format!("instructions of tables by {mechanism}");
                machine::untested::note(&what, &failure);
                None
            }
            Err(failure) => panic!("{failure}"),
        }
    }

    #[test]
    fn each_store_executes_the_same_number_of_instructions() {
        let of = |count| instructions(Build::Gcc, HeapLifetime::Kept, count);
        let (Some(few), Some(many)) = (of(100), of(400)) else { return };
        // The loop of the program, and the allocator.
        assert!(few > 50.0, "{few} instructions per store");
        // All that is not in the loop is less than 100 instructions.
        assert!((few - many).abs() * 100.0 < 100.0, "{few} and {many}");
        let freed = instructions(Build::Gcc, HeapLifetime::Freed, 400).unwrap();
        assert!(freed > many + 10.0, "{freed} and {many}");
    }

    #[test]
    fn mpx_adds_the_instructions_of_its_checks_to_each_store() {
        for life in HeapLifetime::ALL {
            let [Some(plain), Some(mpx)] =
                [Build::GccMpxNone, Build::GccMpx].map(|build| instructions(build, life, 400))
            else {
                return;
            };
            // A store checks the slot and the memory with both bounds, loads bounds and stores bounds.
            let added = mpx - plain;
            assert!((6.0..100.0).contains(&added), "{life}: {added} per store");
        }
    }
}
