//! The suite: its methods, data, capabilities and command.

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use lab::adhoc::SuiteCommand;
use lab::method::AnyMethod;
use lab::run::Lab;
use lab::suite::{Capability, Data, Suite};

use crate::cli::Error;
use crate::{assembler, checks, instructions, kernels, mpx, races, tables};

/// The cost of bounds checks.
pub struct BoundsSuite;

impl Suite for BoundsSuite {
    fn name(&self) -> &'static str {
        "bounds"
    }

    fn about(&self) -> &'static str {
        "pointers checked against their bounds: instructions, tables, programs, threads"
    }

    fn methods(&self) -> &'static [&'static dyn AnyMethod] {
        &[
            &instructions::Instructions,
            &instructions::sharing::Sharing,
            &checks::Checks,
            &tables::Tables,
            &kernels::Kernels,
            &kernels::detection::Detection,
            &races::Races,
        ]
    }

    fn data(&self) -> Data {
        Data {
            experiments: include_str!("../experiments.toml"),
            claims: include_str!("../claims.toml"),
            promises: include_str!("../promises.toml"),
            figures: include_str!("../figures.toml"),
        }
    }

    fn capabilities(&self) -> Vec<Capability> {
        let mut capabilities = vec![
            assembler::AS.capability(),
            instructions::audit::capability(),
            instructions::counted::capability(),
        ];
        capabilities.extend(kernels::capabilities());
        capabilities.push(mpx::capability());
        capabilities
    }
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
    /// Measure the overhead of bounds checking in programs, and which bugs it catches
    Kernels(kernels::cli::Options),
    /// Measure whether bounds are correct when two threads share pointers
    Races(races::cli::Options),
}

impl SuiteCommand for BoundsSuite {
    fn command(&self) -> Option<clap::Command> {
        Some(Options::command())
    }

    fn run_command(&self, matches: &ArgMatches, lab: &Lab) -> Result<i32, Error> {
        match Options::from_arg_matches(matches)?.command {
            Command::Table(options) => instructions::cli::main(&options, lab),
            Command::Checks(options) => checks::cli::main(&options, lab),
            Command::Tables(options) => tables::cli::main(&options, lab),
            Command::Kernels(options) => kernels::cli::main(&options, lab),
            Command::Races(options) => races::cli::main(&options, lab),
        }
    }
}

#[cfg(test)]
mod tests {
    use lab::soundness;

    #[test]
    fn experiments_claims_and_figures_are_consistent() {
        assert_eq!(soundness::faults(&crate::SUITE).unwrap(), Vec::<String>::new());
    }
}
