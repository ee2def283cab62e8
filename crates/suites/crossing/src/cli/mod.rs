//! The command `tollgate crossing`.

mod args;
mod import;
mod table;

use std::io::Write;
use std::path::Path;

use clap::{ArgMatches, CommandFactory, FromArgMatches};
use lab::adhoc::AdhocRun;
use lab::catalogue::Catalogue;
use lab::experiment::Experiment;
use lab::point::{Level, Point};
use lab::suite::Lab;
use lab::terminal;
use machine::file;
use serde_json::{Value, json};

use crate::SUITE;
use crate::guest::{StandaloneParams, multiboot_image};
use args::{Command, Measure, Options};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Experiments in the table, and its round trips.
const EXPERIMENTS: &[&str] = &["one-way", "tracepoint", "round-trips"];
const TRIPS: &[&str] = &["fault-anonymous", "unknown-syscall", "getppid"];

/// Returns the clap command.
pub fn command() -> clap::Command {
    Options::command()
}

/// Runs the command. Returns the exit status: 0, or 1 if measuring failed.
///
/// # Errors
/// Returns one line with the cause and the fix.
pub fn main(matches: &ArgMatches, lab: &Lab) -> Result<i32, Error> {
    let Options { command, measure: arguments, results, json } =
        Options::from_arg_matches(matches)?;
    let (value, text) = match command {
        None => return measure(&arguments, &results, json, lab),
        Some(Command::Guest { write, rounds, crossings }) => {
            let params = StandaloneParams { rounds, crossings, ..StandaloneParams::default() };
            write_guest(&write, &params)?
        }
        Some(Command::Import { file, host, results }) => {
            let folder = import::main(&file, &host, &results, lab)?;
            let shown = folder.display();
            let text = format!("{shown}: tollgate show --results {shown}");
            (json!({ "folder": shown.to_string(), "host": host }), text)
        }
    };
    let text = if json { terminal::json(&value) } else { text };
    writeln!(terminal::stdout(), "{text}")?;
    Ok(0)
}

/// Writes the guest. Returns the result as JSON and as text.
fn write_guest(path: &Path, params: &StandaloneParams) -> Result<(Value, String), Error> {
    let image = multiboot_image(params)?;
    file::write(path, &image)
        .map_err(|e| format!("{}: {e}; choose another file", path.display()))?;
    let StandaloneParams { rounds, crossings, .. } = params;
    let (file, length) = (path.display().to_string(), image.len());
    let value = json!({ "file": file, "bytes": length, "rounds": rounds, "crossings": crossings });
    let text = format!(
        "{file}: {length} bytes; boot it with GRUB's 'multiboot' and a serial line at 115200 8N1, save the \
         serial output, then run: tollgate crossing import OUTPUT"
    );
    Ok((value, text))
}

/// Measures the rows of the table and prints it.
fn measure(args: &Measure, results: &Path, json: bool, lab: &Lab) -> Result<i32, Error> {
    let options = args.allow.iter().map(|feature| (format!("allow-{feature}"), "yes".to_owned()));
    let adhoc = AdhocRun {
        suite: &SUITE,
        experiments: experiments(args)?,
        profile: args.profile,
        results,
        options: options.collect(),
    };
    adhoc.measure_and_print(lab, json, |run| table::format(run, import::newest(results).as_ref()))
}

/// Returns the suite's experiments, restricted to the rows of the table.
fn experiments(args: &Measure) -> Result<Vec<Experiment>, Error> {
    let all = Catalogue::of_suite(&SUITE)?.experiments(args.profile)?;
    let shown = all.into_iter().filter(|one| EXPERIMENTS.contains(&one.name.as_str()));
    Ok(shown.map(|one| restrict(one, args)).filter(|one| !one.points.is_empty()).collect())
}

fn restrict(mut one: Experiment, args: &Measure) -> Experiment {
    let is_shown = |point: &Point| match point.get("trip") {
        Some(trip) => TRIPS.contains(&trip.as_str()) && point.text("by") == "tollgate",
        None => point.get("kind").is_none_or(|kind| kind.as_str() == "page-fault"),
    };
    one.keep(is_shown);
    if let Some(rounds) = args.rounds {
        one.effort.rounds = rounds;
        one.effort.min_rounds = rounds;
    }
    if let Some(crossings) = args.crossings {
        let with_crossings = |point: &Point| match point.get("crossings") {
            Some(_) => point.clone().with("crossings", Level::from(crossings.to_string())),
            None => point.clone(),
        };
        one.points = one.points.iter().map(with_crossings).collect();
        one.twins = one.twins.iter().map(with_crossings).collect();
    }
    one
}
