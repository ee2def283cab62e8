//! Methods that run one trial per sample: a fixed window (closed loop) or a fixed rate (open loop).

use std::time::Duration;

use hdrhistogram::Histogram;
use lab::measure::Measurement;
use lab::sample::Failure;
use machine::tsc::Tsc;

use super::params::{ClosedParams, LoadParams};
use super::testbed::{Testbed, TrialReport};
use super::testbed_config::{Cpus, TestbedConfig};
use super::{metrics, stall};

/// Divisor of the budget for the uncounted warm-up, in which rings and caches reach their steady state.
pub(super) const WARM_UP: u32 = 4;
/// Upper bound of the round-trip-time histogram, in ns.
const MAX_RTT: u64 = 10_000_000_000;

/// Measures one point of `interfaces`.
///
/// # Errors
/// Returns the failure to record in place of a sample.
pub(super) fn measure_window(
    params: &ClosedParams,
    config: &TestbedConfig,
    cpus: &Cpus,
    budget: Duration,
    tsc: &Tsc,
) -> Result<Measurement, Failure> {
    let window = params.window.min(config.max_window());
    let mut testbed = Testbed::new(config, cpus, tsc.rate())?;
    testbed.warm_up(|testbed| testbed.closed(window, budget / WARM_UP))?;
    let trial = testbed.closed(window, budget)?;
    Ok(with_testbed(of_window(&trial, tsc), &testbed))
}

/// Measures one point of `line-rate` or, with round-trip times, of `rtt-vs-load`.
///
/// # Errors
/// Returns the failure to record in place of a sample.
pub(super) fn measure_rate<const TIMES: bool>(
    params: &LoadParams,
    config: &TestbedConfig,
    cpus: &Cpus,
    budget: Duration,
    tsc: &Tsc,
) -> Result<Measurement, Failure> {
    let mut testbed = Testbed::new(config, cpus, tsc.rate())?;
    testbed.warm_up(|testbed| testbed.offer(params.load.0, budget / WARM_UP, TIMES))?;
    let trial = testbed.offer(params.load.0, budget, TIMES)?;
    Ok(with_testbed(of_load(&trial, tsc)?, &testbed))
}

/// Returns the metrics of a trial of an offered load.
///
/// # Errors
/// See [`with_times`].
pub(super) fn of_load(trial: &TrialReport, tsc: &Tsc) -> Result<Measurement, Failure> {
    let mut measurement = metrics::from_trial(trial, tsc)
        .value("offered", trial.report.offered() * tsc.hertz)
        .value("delivered", 1.0 - trial.lost() as f64 / trial.asked as f64);
    measurement.void = stall::void(trial, tsc);
    let measurement = match &trial.report.times {
        Some(times) if !times.is_empty() => with_times(measurement, times, tsc)?,
        _ => measurement,
    };
    Ok(metrics::with_bottleneck(measurement, trial))
}

/// Returns the metrics of a trial of a closed loop.
pub(super) fn of_window(trial: &TrialReport, tsc: &Tsc) -> Measurement {
    let mut measurement = metrics::from_trial(trial, tsc);
    measurement.void = stall::void_rate(trial);
    metrics::with_bottleneck(measurement, trial)
}

/// Records the pages of shared memory, how packets pass the kernel, if they do, and how many flows have no rule, if they
/// should.
pub(super) fn with_testbed(measurement: Measurement, testbed: &Testbed) -> Measurement {
    let measurement = measurement.covariate("memory_pages", testbed.memory_pages().as_str());
    let measurement = match testbed.flows_without_rule() {
        Some(flows) => measurement.value("flows_without_rule", flows as f64),
        None => measurement,
    };
    match testbed.link() {
        Some(link) => measurement.covariate("link", link.as_str()),
        None => measurement,
    }
}

/// Records round-trip times.
///
/// # Errors
/// Returns `failed` if their histogram cannot be encoded.
pub(super) fn with_times(
    measurement: Measurement,
    ticks: &Histogram<u64>,
    tsc: &Tsc,
) -> Result<Measurement, Failure> {
    let refused = |why: &dyn std::fmt::Display| Failure::failed(format!("round-trip times: {why}"));
    let mut times = Histogram::new_with_bounds(1, MAX_RTT, 3).map_err(|why| refused(&why))?;
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
