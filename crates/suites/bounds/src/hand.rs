//! The suite by hand: `tollgate bounds`, which prints the seed's tables with its figures beside ours.

pub(crate) mod measured;
pub(crate) mod text;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use lab::run::Lab;

use crate::{checks, instructions, kernels, races, tables};

/// What a person reads where something is wrong.
pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;

/// Pointers checked against their bounds: the seed's tables beside this machine's figures
#[derive(Debug, Parser)]
#[command(name = "bounds", disable_version_flag = true, max_term_width = 100)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Latency and throughput of instructions
    Table(instructions::hand::Options),
    /// Instructions a cycle of check sequences
    Checks(checks::hand::Options),
    /// What tables of bounds cost in the operating system
    Tables(tables::hand::Options),
    /// What bounds checking costs programs, and which bugs it catches
    Kernels(kernels::hand::Options),
    /// Whether bounds hold where two threads share pointers
    Races(races::hand::Options),
}

/// Returns the clap command.
pub(crate) fn command() -> clap::Command {
    Options::command()
}

/// Does what the arguments ask for. Gives the exit status: 0, or 1 where measuring failed.
///
/// # Errors
/// One line: what, where, and what to do.
pub(crate) fn main(matches: &ArgMatches, lab: &Lab) -> Result<i32, Error> {
    match Options::from_arg_matches(matches)?.command {
        Command::Table(options) => instructions::hand::main(&options, lab),
        Command::Checks(options) => checks::hand::main(&options, lab),
        Command::Tables(options) => tables::hand::main(&options, lab),
        Command::Kernels(options) => kernels::hand::main(&options, lab),
        Command::Races(options) => races::hand::main(&options, lab),
    }
}
