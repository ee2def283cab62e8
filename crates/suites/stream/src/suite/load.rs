//! `load`: what comes back of a load, and how long it takes.

use std::time::Duration;

use hdrhistogram::Histogram;
use lab::measure::Measurement;
use lab::sample::Failure;
use machine::tsc::Tsc;

use super::params::LoadParams;
use super::setting::{Cpus, Setting};
use super::stand::Stand;
use super::{measured, stall};

/// How long the load is offered before it counts, as a share of the budget.
const WARM_UP: u32 = 4;
/// The longest round trip that is told from longer ones, ns.
const LONGEST: u64 = 10_000_000_000;

/// Measures what comes back of a load, with or without round-trip times. A loss that may be the host's makes the
/// sample void.
///
/// # Errors
/// What stands in the sample's place.
pub(super) fn measure<const TIMES: bool>(
    params: &LoadParams,
    setting: &Setting,
    cpus: &Cpus,
    budget: Duration,
    tsc: &Tsc,
) -> Result<Measurement, Failure> {
    let stand = Stand::new(setting, cpus, tsc)?;
    stand.offer(params.load.0, budget / WARM_UP, TIMES)?;
    let tried = stand.offer(params.load.0, budget, TIMES)?;
    let (lost, report) = (tried.lost(), &tried.report);
    let mut measurement = measured::of(&tried, setting, tsc)
        .value("offered", report.offered() * tsc.hertz)
        .value("delivered", 1.0 - lost as f64 / tried.asked as f64);
    measurement.void = stall::void(lost, tried.rate, report, tried.application.stood);
    match &report.times {
        Some(times) if !times.is_empty() => with_times(measurement, times, tsc),
        _ => Ok(measurement),
    }
}

fn with_times(
    measurement: Measurement,
    ticks: &Histogram<u64>,
    tsc: &Tsc,
) -> Result<Measurement, Failure> {
    let refused = |why: &dyn std::fmt::Display| Failure::failed(format!("round-trip times: {why}"));
    let mut times = Histogram::new_with_bounds(1, LONGEST, 3).map_err(|why| refused(&why))?;
    for one in ticks.iter_recorded() {
        let nanoseconds = tsc.nanoseconds(one.value_iterated_to() as f64).round() as u64;
        times.saturating_record_n(nanoseconds.max(1), one.count_at_value());
    }
    let at = |share| times.value_at_quantile(share) as f64;
    measurement
        .value("rtt", at(0.5))
        .value("rtt_p99", at(0.99))
        .value("rtt_p999", at(0.999))
        .histogram("rtt", &times)
}
