//! The suite's command `tollgate copy`, with the options of ESCAPE's `memcpy_test`.
//!
//! The options have the same meaning as there, but the lab measures: warmed up, in rounds of random
//! order, each in a fresh process. `-r` is the minimum number of copies between two readings of the
//! clock, and the printed values are medians over rounds. Unless the user supplies apex, our function runs
//! in its place as `tollgate_memcpy`.

// Arguments may be any numbers: this crate is built without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

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
use lab::suite::Lab;

use crate::metrics;
use crate::throughput::ThroughputParams;
use options::{EscapeTest, Options};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Returns the clap command.
pub fn command() -> clap::Command {
    Options::command()
}

/// Measures as the arguments request, prints the table of `memcpy_test` and writes its CSV file.
/// Returns the exit status: 0, or 1 if a measurement failed.
///
/// # Errors
/// Returns one line with the cause and a fix.
pub fn main(matches: &ArgMatches, lab: &Lab) -> Result<i32, Error> {
    let options = Options::from_arg_matches(matches)?;
    let tests = options.tests()?;
    let for_probes = options.for_probes()?;
    options.check_objects()?;
    output::check_csv(&options.csv)?;
    let _priority = options.priority.map(machine::priority::raise).transpose()?;
    let experiment = experiment(&options, &tests);
    let mut out = lab::terminal::stdout();
    if !options.output.json {
        output::write_head(&mut out, &options, &tests)?;
        out.flush()?;
    }
    let adhoc = AdhocRun {
        suite: &crate::SUITE,
        experiments: vec![experiment],
        profile: Profile::Quick,
        results: &options.results,
        options: for_probes,
    };
    let measured = adhoc.measure(lab, total_sleep(&options, &tests))?;
    let values = PointValues::of(&measured.run.samples);
    let rows = rows(&options, &tests);
    if options.output.json {
        output::write_csv(&options.csv, &rows, &values, &options)?;
        return Ok(measured.print_json()?);
    }
    let Measured { run, status } = &measured;
    for test in &tests {
        output::write_test(&mut out, *test, &rows, &values, &options)?;
    }
    output::write_csv(&options.csv, &rows, &values, &options)?;
    writeln!(out, "run_per_mem_type_pair Done")?;
    writeln!(out, "{} and {}", options.csv.display(), run.folder.display())?;
    Ok(*status)
}

/// Time measured per sample.
const BUDGET: Duration = Duration::from_millis(2);

/// A row of the table: one length and one function of one experiment of `memcpy_test`.
struct Row {
    test: EscapeTest,
    length: u64,
    function: String,
    point: Point,
}

/// Returns the rows in the order of `memcpy_test`.
fn rows(options: &Options, tests: &[EscapeTest]) -> Vec<Row> {
    let mut rows = Vec::new();
    for test in tests {
        for length in options.lengths().iter().filter(|length| **length <= test.mapped) {
            for function in options.functions() {
                let point = Point::from([
                    ("direction", test.direction),
                    ("memory", &test.memory.to_string()),
                    ("length", &format_bytes(*length)),
                    ("function", &function),
                    ("threads", &options.threads.to_string()),
                    ("mode", "jobs"),
                ]);
                let point = complete(ThroughputParams::FACTORS, &point);
                rows.push(Row { test: *test, length: *length, function, point });
            }
        }
    }
    rows
}

/// Returns the total sleeping time of slow copies.
fn total_sleep(options: &Options, tests: &[EscapeTest]) -> Duration {
    let sleeps: u64 = rows(options, tests).iter().map(|row| row.length.div_ceil(4)).sum();
    Duration::from_secs(sleeps.saturating_mul(options.sleep))
}

/// Returns the experiment that measures the rows.
fn experiment(options: &Options, tests: &[EscapeTest]) -> Experiment {
    let rows = rows(options, tests);
    let points: Vec<Point> = rows.iter().map(|row| row.point.clone()).collect();
    // A slow copy is made once, to be watched.
    let slow = options.sleep > 0;
    let rounds = if slow { 1 } else { options.rounds };
    let longest = rows.iter().map(|row| row.length).max().unwrap_or(0);
    let sleep = longest.div_ceil(4).saturating_mul(options.sleep);
    let limit = Duration::from_secs(sleep.saturating_add(60));
    Experiment {
        suite: "copy".into(),
        name: "throughput".into(),
        method: "throughput".into(),
        about: "run directly, with the options of ESCAPE's memcpy_test".into(),
        metric: metrics::THROUGHPUT.into(),
        baseline: points.first().cloned().unwrap_or_default(),
        defaults: Point::default(),
        sweeps: vec![["direction", "memory", "length", "function"].map(String::from).into()],
        twins: if slow { Vec::new() } else { points.first().cloned().into_iter().collect() },
        points,
        roles: Vec::new(),
        skipped: Vec::new(),
        blocking: Vec::new(),
        alternatives: None,
        compared: Vec::new(),
        batch: 64,
        limit: slow.then_some(limit),
        effort: Effort { min_rounds: rounds, rounds, budget: BUDGET, resolve: 0.02 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn the_levels_of_points_are_canonical() {
        let options = Options::try_parse_from(["copy", "-n", "10", "-t", "2"]).unwrap();
        let tests = options.tests().unwrap();
        let experiment = experiment(&options, &tests);
        // Ten lengths, but only six for the host's physical memory.
        assert_eq!(experiment.points.len(), 3 * (4 * 10 + 2 * 6));
        for point in &experiment.points {
            for (name, level) in point.levels() {
                let factor = lab::factor::find(ThroughputParams::FACTORS, name).unwrap();
                assert_eq!(&factor.level(level.as_str()).unwrap(), level);
            }
        }
    }
}
