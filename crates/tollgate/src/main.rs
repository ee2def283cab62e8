//! tollgate: what does it cost to cross a boundary?

mod arguments;
mod commands;
mod fault;
mod output;
mod progress;
mod select;
mod usage;

use std::process::ExitCode;

use clap::{ArgMatches, FromArgMatches};
use lab::adhoc::SuiteCommand;
use lab::run::Lab;
use lab::suite::{Suite, UsageError};
use lab::terminal::OutputError;

use arguments::{Arguments, Command};
use fault::Fault;

/// Every suite. A new suite is one line.
static COMMANDS: &[&dyn SuiteCommand] = &[
    &copy::SUITE,
    &crossing::SUITE,
    &enclave::SUITE,
    &bounds::SUITE,
    &stream::SUITE,
    &planted::SUITE,
];

/// The same suites, without their commands.
static SUITES: &[&dyn Suite] = &{
    let mut suites: [&dyn Suite; COMMANDS.len()] = [COMMANDS[0]; COMMANDS.len()];
    let mut index = 0;
    while index < suites.len() {
        suites[index] = COMMANDS[index];
        index += 1;
    }
    suites
};

/// The lab with all suites.
static LAB: Lab = Lab { suites: SUITES, version: env!("CARGO_PKG_VERSION") };

fn main() -> ExitCode {
    machine::file::survive_size_limit();
    let ended = match arguments::command(COMMANDS).try_get_matches() {
        Ok(matches) => match suite_command(&matches) {
            Some((suite, given)) => run_suite_command(suite, given),
            None => Arguments::from_arg_matches(&matches)
                .map_err(|told| usage::fault(&usage::program(), &told))
                .and_then(|arguments| dispatch(arguments.command)),
        },
        Err(told) => usage::told(&usage::program(), &told),
    };
    match ended {
        Ok(status) => ExitCode::from(status),
        Err(fault) => {
            output::error(&fault);
            ExitCode::from(fault.status())
        }
    }
}

fn dispatch(command: Command) -> Result<u8, Fault> {
    match command {
        Command::Doctor(given) => commands::doctor::run(&given),
        Command::List(given) => commands::list::run(&given),
        Command::Run(given) => commands::run::run(&given),
        Command::Show(given) => commands::show::run(&given),
        Command::Plot(given) => commands::plot::run(&given),
        Command::Claims(given) => commands::claims::run(&given),
        Command::Compare(given) => commands::compare::run(&given),
        Command::Export(given) => commands::export::run(&given),
        Command::Completions { shell } => commands::completions::run(shell),
        Command::Worker { probe } => Ok(worker(probe)),
    }
}

fn worker(probe: bool) -> u8 {
    let status =
        if probe { lab::probe::main(SUITES) } else { lab::worker::main(SUITES, LAB.version) };
    u8::try_from(status).unwrap_or(1)
}

/// Finds the suite whose command was given.
fn suite_command(matches: &ArgMatches) -> Option<(&'static dyn SuiteCommand, &ArgMatches)> {
    let (name, given) = matches.subcommand()?;
    let suite = COMMANDS.iter().copied().find(|suite| suite.name() == name)?;
    Some((suite, given))
}

fn run_suite_command(suite: &dyn SuiteCommand, given: &ArgMatches) -> Result<u8, Fault> {
    match suite.run_command(given, &LAB) {
        Ok(status) => Ok(u8::try_from(status).unwrap_or(1)),
        Err(error) => match error.downcast::<clap::Error>() {
            Ok(told) => usage::told(&format!("tollgate {}", suite.name()), &told),
            Err(other) if other.is::<UsageError>() => Err(Fault::usage(other)),
            Err(other) => match OutputError::of(&*other) {
                // A reader that went away is no fault.
                Some(why) if why.kind() == std::io::ErrorKind::BrokenPipe => Ok(0),
                Some(why) => Err(output::unwritten(why)),
                None => Err(Fault::failed(other)),
            },
        },
    }
}
