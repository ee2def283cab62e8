//! tollgate: what does it cost to cross a boundary?

mod arguments;
mod commands;
mod error;
mod output;
mod progress;
mod select;
mod slurm;
mod stored_run;
mod suites;
mod terms;
mod usage;

use std::io::Write;
use std::process::ExitCode;

use clap::{ArgMatches, FromArgMatches};
use lab::suite::{Lab, SuiteCommand, UsageError};
use lab::terminal::OutputError;

use arguments::{Arguments, Command};
use commands::{
    bundle, claims, compare, doctor, explain, export, fleet, guest, hosts, import, inspect, logs,
    man, plot, report, run, schema, show, summary,
};
use error::CliError;
use suites::SUITES;

/// The lab with all suites.
static LAB: Lab = Lab { suites: SUITES, version: env!("CARGO_PKG_VERSION") };

fn main() -> ExitCode {
    machine::file::survive_size_limit();
    report_panics();
    if vm::init::is_init() {
        let _ = vm::init::main();
    }
    let result = match arguments::command().try_get_matches() {
        Ok(matches) => match suite_command(&matches) {
            Some((name, command, matches)) => run_suite_command(name, command, matches),
            None => Arguments::from_arg_matches(&matches)
                .map_err(|message| usage::error(&usage::program(), &message))
                .and_then(|arguments| dispatch(arguments.command)),
        },
        Err(message) => usage::print_or_fail(&usage::program(), &message),
    };
    match result {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            output::print_error(&error);
            ExitCode::from(error.status())
        }
    }
}

/// Reports a panic with its location in the last line of standard error, which the lab keeps as the cause of a process's
/// end. A backtrace that the user requested precedes it.
fn report_panics() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if std::env::var_os("RUST_BACKTRACE").is_some() {
            default(panic);
        }
        let what = panic.payload_as_str().unwrap_or("panic");
        let place = panic.location().map(|place| format!(" at {place}")).unwrap_or_default();
        // An error of standard error must not cause a second panic.
        let _ = writeln!(std::io::stderr(), "{what}{place}");
    }));
}

fn dispatch(command: Command) -> Result<u8, CliError> {
    match command {
        Command::Doctor(args) => doctor::doctor(&args),
        Command::List(args) => inspect::list(&args),
        Command::Explain(args) => explain::explain(&args),
        Command::Run(args) => run::run(args),
        Command::Summary(args) => summary::summary(&args),
        Command::Show(args) => show::show(&args),
        Command::Plot(args) => plot::plot(&args),
        Command::Claims(args) => claims::claims(&args),
        Command::Compare(args) => compare::compare(args),
        Command::Fleet(args) => fleet::fleet(&args),
        Command::Report(args) => report::report(&args),
        Command::Export(args) => export::export(&args),
        Command::Import(args) => import::import(&args),
        Command::Schema(args) => schema::schema(&args),
        Command::Bundle(args) => bundle::bundle(&args),
        Command::Completions { shell } => inspect::completions(shell),
        Command::Man { folder } => man::man(&folder),
        Command::Guest(args) => guest::guest(&args),
        Command::Hosts { command } => hosts::hosts(&command),
        Command::Logs(args) => logs::logs(&args),
        // As init of a guest, `main` has started it.
        Command::GuestInit => vm::init::main().map(|()| 0).map_err(CliError::failed),
        Command::Worker { probe, remote } => Ok(worker(probe, remote.as_deref())),
    }
}

fn worker(probe: bool, remote: Option<&str>) -> u8 {
    let status = match probe {
        true => lab::probe::main(SUITES),
        false => lab::worker::main(SUITES, remote),
    };
    u8::try_from(status).unwrap_or(1)
}

/// Returns the name, the command and its matches if a suite's command was given.
fn suite_command(matches: &ArgMatches) -> Option<(&str, SuiteCommand, &ArgMatches)> {
    let (name, matches) = matches.subcommand()?;
    Some((name, lab::suite::find(SUITES, name)?.command()?, matches))
}

fn run_suite_command(
    name: &str,
    command: SuiteCommand,
    matches: &ArgMatches,
) -> Result<u8, CliError> {
    match (command.run)(matches, &LAB) {
        Ok(status) => Ok(u8::try_from(status).unwrap_or(1)),
        Err(error) => match error.downcast::<clap::Error>() {
            Ok(message) => usage::print_or_fail(&format!("tollgate {name}"), &message),
            Err(other) if other.is::<UsageError>() => Err(CliError::usage(other)),
            Err(other) => match OutputError::of(&*other) {
                // The reader of a pipe may close it early.
                Some(why) if why.kind() == std::io::ErrorKind::BrokenPipe => Ok(0),
                Some(why) => Err(output::output_error(why)),
                None => Err(CliError::failed(other)),
            },
        },
    }
}
