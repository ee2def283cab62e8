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
use lab::schema::{self, JsonOutput, OutputSchema};
use lab::suite::Lab;
use lab::terminal;
use machine::file;
use schemars::JsonSchema;
use serde::Serialize;

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
    match command {
        None => return measure(&arguments, &results, json, lab),
        Some(Command::Guest { write, rounds, crossings }) => {
            let params = StandaloneParams { rounds, crossings, ..StandaloneParams::default() };
            let written = write_guest(&write, &params)?;
            let text = format!(
                "{}: {} bytes; boot it with GRUB's 'multiboot' and a serial line at 115200 8N1, save the \
                 serial output, then run: tollgate crossing import OUTPUT",
                written.file, written.bytes
            );
            print(json, &written, &text)?;
        }
        Some(Command::Import { file, host, results }) => {
            let folder = import::main(&file, &host, &results, lab)?;
            let folder = folder.display().to_string();
            let text = format!("{folder}: tollgate show --results {folder}");
            print(json, &ImportOutput { folder, host }, &text)?;
        }
    }
    Ok(0)
}

/// Schemas of the outputs of `guest` and `import`.
pub(crate) const SCHEMAS: &[OutputSchema] =
    &[OutputSchema::of::<GuestOutput>(), OutputSchema::of::<ImportOutput>()];

/// A guest written to a file.
#[derive(Debug, Serialize, JsonSchema)]
struct GuestOutput {
    /// Path.
    file: String,
    /// Its size.
    bytes: usize,
    /// Rounds that it measures.
    rounds: u32,
    /// Crossings per sample.
    crossings: u64,
}

impl JsonOutput for GuestOutput {
    const NAME: &'static str = "crossing-guest";
    const WRITTEN_BY: &'static str = "tollgate crossing guest --json";
    const VERSION: u64 = 1;
}

/// Results of a guest, imported as a run.
#[derive(Debug, Serialize, JsonSchema)]
struct ImportOutput {
    /// Folder of the run.
    folder: String,
    /// Name of the host that ran the guest.
    host: String,
}

impl JsonOutput for ImportOutput {
    const NAME: &'static str = "crossing-import";
    const WRITTEN_BY: &'static str = "tollgate crossing import --json";
    const VERSION: u64 = 1;
}

/// Prints an output as JSON or as text.
fn print<T: JsonOutput>(is_json: bool, output: &T, text: &str) -> Result<(), Error> {
    let json = is_json.then(|| schema::to_value(output)).transpose()?;
    let text = json.map_or_else(|| text.to_owned(), |value| terminal::json(&value));
    writeln!(terminal::stdout(), "{text}")?;
    Ok(())
}

/// Writes the guest.
fn write_guest(path: &Path, params: &StandaloneParams) -> Result<GuestOutput, Error> {
    let image = multiboot_image(params)?;
    file::write(path, &image)
        .map_err(|e| format!("{}: {e}; choose another file", path.display()))?;
    let StandaloneParams { rounds, crossings, .. } = *params;
    Ok(GuestOutput { file: path.display().to_string(), bytes: image.len(), rounds, crossings })
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
