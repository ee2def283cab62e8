//! How long a sample takes, for the plan and for time limits.

use std::time::Duration;

use super::layout::Layout;
use super::params::{ThroughputParams, Touch};
use super::{LAST_LEVEL, available};
use crate::memory::Kind;

/// Bytes a second at which memory is filled, copied or verified, roughly.
const RATE: f64 = 8e9;
/// The same of memory behind a bus.
const DEVICE_RATE: f64 = 100e6;
/// Bytes a second at which pages are first touched.
const FAULT_RATE: f64 = 2e9;
/// What every sample costs: its clocks before and after, and its journal line.
const FIXED: Duration = Duration::from_millis(2);
/// A region outlasts about so many of the points that need it.
const KEPT: f64 = 16.0;

/// How long a sample takes with all that it prepares.
pub(super) fn expected(params: &ThroughputParams, budget: Duration) -> Duration {
    if available(params).is_err() {
        return FIXED;
    }
    let longest = params.length.longest() as f64;
    if params.mbw().is_some() {
        // It fills two arrays, then copies three times.
        return FIXED + Duration::from_secs_f64(2.0 * longest / FAULT_RATE + 3.0 * longest / RATE);
    }
    let layout = Layout::of(params, *LAST_LEVEL, params.memory == Kind::HeapHuge);
    let bytes = layout.bytes() as f64;
    let rate = if params.memory.is_physical() { DEVICE_RATE } else { RATE };
    let fresh = if params.touch == Touch::Cold { 3.0 } else { 2.0 / KEPT };
    // Filling, warming up and verifying; then the budget, or one copy that is longer.
    let around = 2.0 * bytes / RATE + bytes * fresh / FAULT_RATE + 3.0 * longest / rate;
    let timed = budget.as_secs_f64().max(longest / rate);
    let threads = Duration::from_micros(200) * params.threads as u32;
    FIXED + threads + Duration::from_secs_f64(around + timed)
}
