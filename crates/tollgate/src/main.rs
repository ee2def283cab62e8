//! tollgate: what does it cost to cross a boundary?

mod arguments;
mod commands;
mod fault;
mod output;
mod progress;
mod select;
mod usage;

use std::process::ExitCode;

use clap::FromArgMatches;
use lab::run::Lab;
use lab::suite::{Suite, UsageError};
use lab::terminal::OutputError;

use arguments::{Arguments, Command};
use fault::Fault;

/// Every suite; a new one is one more line.
static SUITES: &[&dyn Suite] = &[
    &copy::SUITE,
    &crossing::SUITE,
    &enclave::SUITE,
    &bounds::SUITE,
    &stream::SUITE,
    &planted::SUITE,
];

/// The lab with all suites.
static LAB: Lab = Lab { suites: SUITES, version: env!("CARGO_PKG_VERSION") };

fn main() -> ExitCode {
    machine::file::survive_size_limit();
    let ended = match arguments::command(SUITES).try_get_matches() {
        Ok(matches) => match matches.subcommand() {
            Some((name, given)) if lab::suite::find(SUITES, name).is_some() => by_hand(name, given),
            _ => Arguments::from_arg_matches(&matches)
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

fn by_hand(name: &str, given: &clap::ArgMatches) -> Result<u8, Fault> {
    let words: Vec<String> = given.get_many("arguments").into_iter().flatten().cloned().collect();
    let suite = lab::suite::find(SUITES, name)
        .ok_or_else(|| Fault::usage(format!("there is no suite '{name}'")))?;
    match suite.by_hand(&words, &LAB) {
        Ok(status) => Ok(u8::try_from(status).unwrap_or(1)),
        Err(error) => match error.downcast::<clap::Error>() {
            Ok(told) => usage::told(&format!("tollgate {name}"), &told),
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
