//! A loop like lmbench's lat_pagefault, with counted faults.
//!
//! It maps a file, touches every page once in a random order, unmaps it, and times many touches with the system
//! clock. lmbench divides by the pages, but a fault also maps the pages around it, so lmbench reports up to 16 times
//! too short a time. This loop divides by the faults, and reports the time per page separately. lmbench subtracts the
//! time to map and unmap an untouched file, so its time includes unmapping the touched pages; here only the touches
//! are timed.

use std::time::{Duration, Instant};

use lab::measure::Measurement;
use lab::sample::Failure;
use lab::statistics;

use super::batch::Operation;
use super::faults::{PageTouches, Touch};
use super::pages::{Pages, permutation};

/// Mappings per total, since lmbench reports totals.
const PASSES: usize = 4;
/// Minimum number of totals.
const MIN_TOTALS: usize = 5;

/// Times the loop over the pages of a file.
///
/// # Errors
/// Returns `check` if the count of faults or the contents are wrong.
pub(super) fn measure(file: &Pages, seed: u64, budget: Duration) -> Result<Measurement, Failure> {
    let order = permutation(file.count(), seed);
    // Pages in another mapping would be cheaper, because the kernel counts a page as mapped only once.
    file.madvise_dontneed();
    let (mut times, mut faults, mut counted, mut touched) = (Vec::new(), 0, 0, 0);
    // Warm-up.
    total(file, &order)?;
    let end = Instant::now() + budget;
    while times.len() < MIN_TOTALS || Instant::now() < end {
        let total = total(file, &order)?;
        times.push(total.time.as_nanos() as f64 / total.faults as f64);
        faults += total.faults;
        counted += total.counted;
        touched += total.touched;
    }
    let median = statistics::median(&times).ok_or_else(|| Failure::failed("no total was timed"))?;
    Ok(Measurement::default()
        .value("time", median)
        .value("time_min", times.into_iter().fold(f64::INFINITY, f64::min))
        .value("time_per_page", median * faults as f64 / touched as f64)
        .value("operations", faults as f64)
        .value("faults_made", faults as f64)
        .value("faults_counted", counted as f64)
        .value("pages_touched", touched as f64))
}

/// Time and counts of [`PASSES`] mappings.
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
        let pages = file.remap()?;
        let mut touches = PageTouches::of_all(&pages, Touch::ReadFile, order.to_vec());
        touches.prepare(order.len())?;
        let start = Instant::now();
        touches.make(0..order.len());
        total.time += start.elapsed();
        total.faults += touches.check(order.len())?;
        total.counted += touches.counted();
        total.touched += order.len() as u64;
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::super::faults::void_if_disturbed;
    use super::*;

    #[test]
    fn times_per_fault_and_per_page_differ_by_the_pages_per_fault() {
        let file = Pages::file(512, &std::env::temp_dir()).unwrap();
        let measurement = match void_if_disturbed(measure(&file, 1, Duration::ZERO)).unwrap() {
            Measurement { void: Some(why), .. } => {
                return machine::untested::note("lmbench's loop over a file", &why);
            }
            measurement => measurement,
        };
        let value = |name: &str| measurement.values[name];
        assert_eq!(value("pages_touched"), (MIN_TOTALS * PASSES * 512) as f64);
        assert!(value("faults_made") >= (MIN_TOTALS * PASSES) as f64);
        assert!(value("faults_counted") >= value("faults_made"));
        let ratio = value("time") / value("time_per_page");
        let expected = value("pages_touched") / value("faults_made");
        assert!((ratio / expected - 1.0).abs() < 1e-9, "{ratio} {expected}");
    }
}
