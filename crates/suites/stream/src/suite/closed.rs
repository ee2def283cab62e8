//! `closed`: how fast packets come round where the next is sent as soon as one comes back.

use std::time::Duration;

use lab::measure::Measurement;
use lab::sample::Failure;
use machine::tsc::Tsc;

use super::params::ClosedParams;
use super::setting::{Cpus, Setting};
use super::stand::Stand;
use super::{measured, stall};

/// What is not counted, as a share of the budget: rings and caches come to what they stay at.
const WARM_UP: u32 = 4;

/// Measures one point.
///
/// # Errors
/// What stands in the sample's place.
pub(super) fn measure(
    params: &ClosedParams,
    setting: &Setting,
    cpus: &Cpus,
    budget: Duration,
    tsc: &Tsc,
) -> Result<Measurement, Failure> {
    let window = params.window.min(setting.max_window());
    let stand = Stand::new(setting, cpus, tsc)?;
    stand.closed(window, budget / WARM_UP)?;
    let tried = stand.closed(window, budget)?;
    let mut measurement = measured::of(&tried, setting, tsc);
    measurement.void = stall::void_rate(&tried.report, tried.application.stood);
    Ok(measurement)
}
