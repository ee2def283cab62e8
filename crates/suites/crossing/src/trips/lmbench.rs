//! A loop as lmbench's lat_pagefault has it, with the faults counted.
//!
//! It maps a file anew, touches every page once in a random order, unmaps it, and takes the time of
//! many touches by the system's clock. lmbench divides by the pages; a fault brings in the pages around
//! it too, so that it reports up to 16 times too little: here the faults divide, and lmbench's own figure
//! stands beside it. lmbench subtracts mapping and unmapping an untouched file, which
//! leaves the unmapping of touched pages in its figure; here only the touches are in the clock.

use std::time::{Duration, Instant};

use lab::measure::Measurement;
use lab::sample::Failure;
use lab::statistics;

use super::batch::Operation;
use super::faults::{Touch, Touching};
use super::order::permutation;
use super::pages::Pages;

/// Mappings of one total, as lmbench reports totals.
const PASSES: usize = 4;
/// The least totals that make a median.
const LEAST_TOTALS: usize = 5;

/// Times the loop over a file's pages.
///
/// # Errors
/// Where the faults or the bytes are not those that there must be.
pub(super) fn measure(file: &Pages, seed: u64, budget: Duration) -> Result<Measurement, Failure> {
    let order = permutation(file.count(), seed);
    // Pages that another mapping holds would cost less: the kernel counts a page as mapped but once.
    file.unmap()?;
    let (mut times, mut faults, mut counted, mut touched) = (Vec::new(), 0, 0, 0);
    // The first total warms up.
    total(file, &order)?;
    let end = Instant::now() + budget;
    while times.len() < LEAST_TOTALS || Instant::now() < end {
        let total = total(file, &order)?;
        times.push(total.time.as_nanos() as f64 / total.faults as f64);
        faults += total.faults;
        counted += total.counted;
        touched += total.touched;
    }
    let median = statistics::median(&times).ok_or_else(|| Failure::failed("nothing was timed"))?;
    Ok(Measurement::default()
        .value("time", median)
        .value("time_min", times.into_iter().fold(f64::INFINITY, f64::min))
        .value("time_per_page", median * faults as f64 / touched as f64)
        .value("operations", faults as f64)
        .value("faults_made", faults as f64)
        .value("faults_counted", counted as f64)
        .value("pages_touched", touched as f64))
}

/// What some mappings took, each touched once.
#[derive(Default)]
struct Total {
    time: Duration,
    faults: u64,
    counted: u64,
    touched: u64,
}

fn total(file: &Pages, order: &[usize]) -> Result<Total, Failure> {
    let mut total = Total::default();
    for _ in 0..PASSES {
        let pages = file.mapped_anew()?;
        let mut touching = Touching::around(&pages, Touch::ReadFile, order.to_vec());
        touching.prepare(order.len())?;
        let begun = Instant::now();
        touching.make(0..order.len());
        total.time += begun.elapsed();
        total.faults += touching.check(order.len())?;
        total.counted += touching.counted();
        total.touched += order.len() as u64;
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::super::faults::settled;
    use super::*;

    #[test]
    fn faults_are_counted_and_pages_divide_lmbenchs_own_figure() {
        let file = Pages::file(512, &std::env::temp_dir()).unwrap();
        let told = match settled(measure(&file, 1, Duration::ZERO)).unwrap() {
            Measurement { void: Some(why), .. } => {
                return machine::untested::note("lmbench's loop over a file", &why);
            }
            told => told,
        };
        let value = |name: &str| told.values[name];
        assert_eq!(value("pages_touched"), (LEAST_TOTALS * PASSES * 512) as f64);
        assert!(value("faults_made") >= (LEAST_TOTALS * PASSES) as f64);
        assert!(value("faults_counted") >= value("faults_made"));
        let ratio = value("time") / value("time_per_page");
        let due = value("pages_touched") / value("faults_made");
        assert!((ratio / due - 1.0).abs() < 1e-9, "{ratio} {due}");
    }
}
