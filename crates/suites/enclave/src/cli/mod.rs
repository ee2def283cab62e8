//! The command `tollgate enclave`, with the options and the output of the Open Enclave sample.
//!
//! The options have the sample's meaning. The lab measures: in rounds of a random order, each in a fresh process. The
//! command prints medians over rounds; a speed-up is computed within rounds.

mod options;
mod output;

use std::io::Write;
use std::time::Duration;

use clap::{ArgMatches, CommandFactory, FromArgMatches};
use lab::adhoc::{AdhocRun, Measured, PointValues};
use lab::experiment::{Effort, Experiment, Profile};
use lab::method::{Params, complete};
use lab::point::Point;
use lab::quantity::format_bytes;
use lab::sample::Failure;
use lab::suite::Lab;
use lab::suite::UsageError;
use lab::{artefact, option};

use crate::SUITE;
use crate::conf::Conf;
use crate::images::supplied;
use crate::loaded;
use crate::params::{AllocationParams, EnclaveParams};
use options::Options;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Returns the clap command.
pub fn command() -> clap::Command {
    Options::command()
}

/// Measures and prints in the format of the sample. Returns the exit status: 0, or 1 if measuring failed.
///
/// # Errors
/// Returns one line with the cause, the location and the fix.
pub fn main(matches: &ArgMatches, lab: &Lab) -> Result<i32, Error> {
    let options = Options::from_arg_matches(matches)?;
    let conf = options.conf().map_err(|failure| UsageError::new(failure.why))?;
    let kind = kind(&options)?;
    let allowed = option::read(&[&SUITE], &options.allow, &[])?;
    let libraries = || options.allocators.iter().filter(|one| supplied::is_path(one));
    for library in libraries() {
        option::check_code_argument(&allowed, "--allocators", library)?;
        supplied::check(library)?;
    }
    for library in libraries() {
        artefact::prepare(&supplied::recipe(library))?;
    }
    let rows = rows(&options, &conf, kind);
    let experiment = experiment(&rows, options.rounds);
    let mut out = lab::terminal::stdout();
    if !options.output.json {
        output::head(&mut out, kind, &options)?;
        out.flush()?;
    }
    let adhoc = AdhocRun {
        suite: &SUITE,
        experiments: vec![experiment],
        profile: Profile::Quick,
        results: &options.results,
        options: allowed,
    };
    let measured = adhoc.measure(lab, Duration::ZERO)?;
    if options.output.json {
        return Ok(measured.print_json()?);
    }
    let Measured { run, status } = measured;
    let values = PointValues::of(&run.samples);
    let cores = machine::topology::Topology::detect().physical_cores();
    for threads in rows.chunks(options.allocators.len()) {
        output::threads(&mut out, threads, &values, cores)?;
    }
    writeln!(out, "{}", run.folder.display())?;
    Ok(status)
}

/// Returns the kind of enclave: simulated if requested, otherwise SGX if it is available.
fn kind(options: &Options) -> Result<&'static str, Failure> {
    if options.simulate {
        return Ok("simulate");
    }
    let hardware = EnclaveParams::with_defaults(&Point::from([("kind", "sgx")]))?;
    loaded::available(&hardware).map_err(|failure| {
        let remedy = failure.remedy.unwrap_or_default();
        Failure::unavailable(
            failure.why,
            format!("add --simulate to simulate the enclave, or {remedy}"),
        )
    })?;
    Ok("sgx")
}

/// A line of the output: one allocator with one number of threads.
struct Row {
    threads: u64,
    allocator: String,
    point: Point,
}

/// Returns the lines in the sample's order.
fn rows(options: &Options, conf: &Conf, kind: &str) -> Vec<Row> {
    let row = |threads: u64, allocator: &String| Row {
        threads,
        allocator: allocator.clone(),
        point: complete(
            AllocationParams::FACTORS,
            &Point::from([
                ("kind", kind),
                ("allocator", allocator),
                ("threads", &threads.to_string()),
                ("max_size", &format_bytes(options.max_allocation_size)),
                ("touch", "no"),
                ("num_allocations", &options.num_allocations.to_string()),
                ("heap", &conf.heap_pages.to_string()),
                ("stack", &conf.stack_pages.to_string()),
                ("tcs", &conf.tcs.to_string()),
                ("debug", if conf.debug { "yes" } else { "no" }),
            ]),
        ),
    };
    let row = &row;
    (1..=options.max_threads)
        .flat_map(|threads| options.allocators.iter().map(move |allocator| row(threads, allocator)))
        .collect()
}

/// Returns the experiment that measures the lines.
fn experiment(rows: &[Row], rounds: u32) -> Experiment {
    let points: Vec<Point> = rows.iter().map(|row| row.point.clone()).collect();
    Experiment {
        suite: "enclave".into(),
        name: "allocation".into(),
        method: "allocation".into(),
        about: "the options of the Open Enclave sample".into(),
        metric: "wall".into(),
        baseline: points.first().cloned().unwrap_or_default(),
        defaults: Point::default(),
        sweeps: vec![["allocator", "threads"].map(String::from).into()],
        twins: points.first().cloned().into_iter().collect(),
        points,
        roles: Vec::new(),
        skipped: Vec::new(),
        blocking: Vec::new(),
        alternatives: None,
        compared: Vec::new(),
        batch: 64,
        limit: None,
        effort: Effort {
            min_rounds: rounds,
            rounds,
            budget: Profile::Quick.effort().budget,
            resolve: 0.02,
        },
    }
}
