//! The suite by hand: `tollgate copy`, with the options of the seed's `memcpy_test`.
//!
//! The options mean what they mean there; what is measured is measured by the lab: warmed up, in
//! rounds of a random order, each in a fresh process. `-r` is the number of copies that a sample
//! makes at least between two readings of its clock, and what is printed is the median over rounds.
//! In place of apex, which is not here, stands our own function as `tollgate_memcpy`.

// Arguments may be any numbers: this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod options;
mod output;
mod plan;

use std::io::Write;

use clap::{ArgMatches, CommandFactory, FromArgMatches};
use lab::adhoc::{AdhocRun, Measured, PointValues};
use lab::experiment::Profile;
use lab::run::Lab;

use options::Options;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Returns the clap command.
pub fn command() -> clap::Command {
    Options::command()
}

/// Measures what the arguments ask for, prints the seed's table and writes its CSV file. Gives the
/// exit status: 0, or 1 where measuring failed.
///
/// # Errors
/// One line: what, where, and what to do.
pub fn main(matches: &ArgMatches, lab: &Lab) -> Result<i32, Error> {
    let options = Options::from_arg_matches(matches)?;
    let pairs = options.pairs()?;
    let for_probes = options.for_probes()?;
    options.check_objects()?;
    output::check_csv(&options.csv)?;
    let _priority = options.priority.map(machine::priority::raise).transpose()?;
    let experiment = plan::experiment(&options, &pairs);
    let mut out = lab::terminal::stdout();
    if !options.output.json {
        output::head(&mut out, &options, &pairs)?;
        out.flush()?;
    }
    let adhoc = AdhocRun {
        suite: &crate::SUITE,
        experiments: vec![experiment],
        profile: Profile::Quick,
        results: &options.results,
        options: for_probes,
    };
    let measured = adhoc.measure(lab, plan::asleep(&options, &pairs))?;
    let gathered = PointValues::of(&measured.run.samples);
    let rows = plan::rows(&options, &pairs);
    if options.output.json {
        output::csv(&options.csv, &rows, &gathered, &options)?;
        return Ok(measured.print_json()?);
    }
    let Measured { run, status } = &measured;
    for pair in &pairs {
        output::pair(&mut out, *pair, &rows, &gathered, &options)?;
    }
    output::csv(&options.csv, &rows, &gathered, &options)?;
    writeln!(out, "run_per_mem_type_pair Done")?;
    writeln!(out, "{} and {}", options.csv.display(), run.folder.display())?;
    Ok(*status)
}
