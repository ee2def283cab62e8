//! The suite by hand: `tollgate copy`, with the options of the seed's `memcpy_test`.
//!
//! The options mean what they mean there; what is measured is measured by the lab: warmed up, in
//! rounds of a random order, each in a fresh process. `-r` is the number of copies that a sample
//! makes at least between two readings of its clock, and what is printed is the median over rounds.
//! In place of apex, which is not here, stands our own function as `tollgate_memcpy`.

mod options;
mod output;
mod plan;

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::AtomicBool;

use clap::Parser;
use lab::experiment::Profile;
use lab::point::Point;
use lab::quantity::format_duration;
use lab::run::{Event, Lab, Wanted, Watch};
use lab::sample::Failure;
use lab::statistics::median;

use crate::metrics;
use options::Options;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Measures what the arguments ask for, prints the seed's table and writes its CSV file. Gives the
/// exit status: 0, or 1 where measuring failed.
///
/// # Errors
/// One line: what, where, and what to do.
pub fn main(arguments: &[String], lab: &Lab) -> Result<i32, Error> {
    let words = std::iter::once("tollgate copy").chain(arguments.iter().map(String::as_str));
    let options = Options::try_parse_from(words)?;
    let pairs = options.pairs()?;
    let _priority = options.priority.map(machine::priority::raise).transpose()?;
    let experiment = plan::experiment(&options, &pairs);
    let mut out = std::io::stdout().lock();
    output::head(&mut out, &options, &pairs)?;
    out.flush()?;
    let expected = lab::plan::expected(&experiment, &crate::SUITE) + plan::asleep(&options, &pairs);
    writeln!(std::io::stderr(), "measuring: about {}", format_duration(expected))?;
    let wanted = Wanted {
        experiments: vec![experiment],
        profile: Profile::Quick,
        // Apart from what `run` resumes and `show` shows.
        results: options.results.join("by-hand"),
        fresh: true,
        seed: None,
        options: options.for_probes()?,
        interrupted: &AtomicBool::new(false),
    };
    let mut gathered = Gathered::default();
    let ended = lab.run(&wanted, &mut gathered)?;
    let rows = plan::rows(&options, &pairs);
    for pair in &pairs {
        output::pair(&mut out, *pair, &rows, &gathered, &options)?;
    }
    output::csv(&options.csv, &rows, &gathered, &options)?;
    writeln!(out, "run_per_mem_type_pair Done")?;
    writeln!(out, "{} and {}", options.csv.display(), ended.folder.display())?;
    Ok(i32::from(!ended.faults.is_empty()))
}

/// What the rounds gave for each point.
#[derive(Default)]
struct Gathered {
    values: BTreeMap<Point, Vec<(f64, f64)>>,
    failures: BTreeMap<Point, Failure>,
}

impl Watch for Gathered {
    fn event(&mut self, event: Event<'_>) {
        let Event::Sample(sample) = event else { return };
        if let Some(failure) = &sample.error {
            self.failures.entry(sample.point.clone()).or_insert_with(|| failure.clone());
        }
        let value = |metric| sample.values.get(metric).copied();
        if let (true, Some(rate), Some(time)) =
            (sample.counts(), value(metrics::THROUGHPUT), value(metrics::TIME))
        {
            self.values.entry(sample.point.clone()).or_default().push((rate, time));
        }
    }
}

impl Gathered {
    /// The medians over the rounds of a point: B/s, and ns a copy.
    fn medians(&self, point: &Point) -> Option<(f64, f64)> {
        let values = self.values.get(point)?;
        let of =
            |part: fn(&(f64, f64)) -> f64| median(&values.iter().map(part).collect::<Vec<_>>());
        Some((of(|value| value.0)?, of(|value| value.1)?))
    }
}
