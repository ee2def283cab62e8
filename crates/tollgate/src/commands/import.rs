//! `tollgate import`: results of another program next to those of a run.

use exchange::{ImportOptions, compare, cpu_of};
use lab::terminal;
use report::table::Page;

use crate::arguments::Import;
use crate::error::CliError;
use crate::output::{print, print_json};
use crate::stored_run;

/// Prints a comparison with the newest run.
pub(crate) fn import(args: &Import) -> Result<u8, CliError> {
    check_options(args)?;
    let run = stored_run::open(&args.results.folder)?;
    stored_run::check_one_program(&run)?;
    let options = ImportOptions {
        benchmark: args.benchmark.clone(),
        operations: args.operations,
        architecture: args.architecture.clone(),
        cpu: cpu_of(&run).cloned(),
    };
    let import = exchange::import(args.format.format(), &args.file, &options)?;
    let output = compare(&import, &run)?;
    if args.json {
        print_json(&output)?;
    } else if args.csv {
        // Names in a foreign file are text from outside.
        print(&terminal::lines(&exchange::csv(&output)?))?;
    } else {
        print(&exchange::text(&output, args.all, Page::stdout()))?;
    }
    Ok(0)
}

/// Checks that each option is one of the format.
fn check_options(args: &Import) -> Result<(), CliError> {
    use exchange::Format::{Escape, Instlatx64, Mbw, PerfBench, UopsInfo};
    let (is_perf, is_uops, has_forms) = match args.format.format() {
        PerfBench => (true, false, false),
        UopsInfo => (false, true, true),
        Instlatx64 => (false, false, true),
        Escape | Mbw => (false, false, false),
    };
    let wrong = [
        (
            args.benchmark.is_some() && !is_perf,
            "--benchmark: only perf-bench has benchmarks; omit it",
        ),
        (
            args.architecture.is_some() && !is_uops,
            "--arch: only uops-info has architectures; omit it",
        ),
        (
            args.all && !has_forms,
            "--all: only instlatx64 and uops-info have instruction forms; omit it",
        ),
    ];
    match wrong.into_iter().find(|(is_wrong, _)| *is_wrong) {
        Some((_, line)) => Err(CliError::usage(line)),
        None => Ok(()),
    }
}
