//! The cost of bounds checks: as instructions, in check sequences, in the operating system and in programs; and whether
//! they are correct when threads share pointers.

// A new level of a factor must not compile until every match defines it.
#![deny(clippy::wildcard_enum_match_arm)]

mod assembler;
mod bounds_registers;
mod callgrind;
mod checks;
mod cli;
mod instructions;
mod kernels;
mod mpx;
mod races;
mod software;
mod tables;
mod timing;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use lab::capability::Capability;
use lab::suite::{CommandError, Lab, Suite, SuiteCommand};

pub use instructions::{OperandRole, operand_roles};
pub use tables::in_kernel::PATCH as TABLES_PATCH;

/// The suite.
pub static SUITE: Suite = Suite::new(
    "bounds",
    "pointers checked against their bounds: instructions, tables, programs, threads",
    lab::suite_data!(),
    &[
        &instructions::Instructions,
        &instructions::sharing::Sharing,
        &checks::Checks,
        &tables::Tables,
        &tables::in_kernel::KernelTables,
        &kernels::tables::TableProgram,
        &kernels::Kernels,
        &kernels::detection::Detection,
        &races::Races,
    ],
)
.with_capabilities(capabilities)
.with_command(SuiteCommand { command: Options::command, run: run_command });

fn capabilities() -> Vec<Capability> {
    let mut capabilities = vec![
        assembler::AS.capability(),
        instructions::audit::capability(),
        instructions::counted::capability(),
        callgrind::VALGRIND.capability(),
        tables::capability(),
    ];
    capabilities.extend(kernels::capabilities());
    capabilities.push(mpx::capability());
    capabilities
}

/// Measure bounds checks and print the results next to the published values
#[derive(Debug, Parser)]
#[command(name = "bounds", disable_version_flag = true, max_term_width = 100)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure the latency and throughput of instructions
    Table(instructions::cli::Options),
    /// Measure the instructions per cycle of check sequences
    Checks(checks::cli::Options),
    /// Measure the cost of bounds tables in the operating system
    Tables(tables::cli::Options),
    /// Measure the overhead of bounds checking in small programs (kernels), and which bugs it catches
    Kernels(kernels::cli::Options),
    /// Measure how often bounds are wrong when two threads share pointers
    Races(races::cli::Options),
}

fn run_command(matches: &ArgMatches, lab: &Lab) -> Result<i32, CommandError> {
    match Options::from_arg_matches(matches)?.command {
        Command::Table(options) => instructions::cli::main(&options, lab),
        Command::Checks(options) => checks::cli::main(&options, lab),
        Command::Tables(options) => tables::cli::main(&options, lab),
        Command::Kernels(options) => kernels::cli::main(&options, lab),
        Command::Races(options) => races::cli::main(&options, lab),
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    #[test]
    fn experiments_claims_and_figures_are_consistent() {
        assert_eq!(lab::soundness::faults(&crate::SUITE).unwrap(), Vec::<String>::new());
    }

    #[test]
    #[should_panic(expected = "overflow")]
    fn release_builds_panic_on_integer_overflow() {
        black_box(black_box(u64::MAX) + black_box(1));
    }
}
