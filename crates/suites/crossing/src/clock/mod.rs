//! `crossing/clock` and `crossing/one-way-clock`: whether the ticks or the core cycles of a crossing stay fixed when the
//! core clock changes.
//!
//! xperf asks whether its cycles, which are ticks of the counter, change with the frequency of the core or are fixed.
//! So each sample alternates the same crossing with and without a load that changes the core clock, and calibrates the
//! clock before and after each phase.

mod load;
mod one_way;
mod slow;

use std::time::Duration;

use lab::factor::LevelType;
use lab::measure::{Context, Measurement};
use lab::method::{Method, Params, Probe};
use lab::metric::{Better, Metric};
use lab::sample::Failure;
use lab::statistics::median;
use machine::core_clock;
use machine::tsc::Tsc;

use crate::trips::{Conditions, TripParams, Trips};
use load::Load;
pub(crate) use one_way::OneWayClock;

/// Phases with and phases without the load, per sample.
const PHASES: u32 = 5;
/// Minimum duration of a phase.
const MIN_PHASE: Duration = Duration::from_micros(500);
/// Minimum relative change of the core clock at which ticks and cycles can be distinguished.
const MIN_CHANGE: f64 = 0.01;

/// The load that changes the core clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub(crate) enum LoadKind {
    None,
    OtherCore,
    SlowClock,
}

/// Params of `clock`.
#[derive(Debug, Clone, Copy, Params)]
pub(crate) struct ClockParams {
    #[factor(flatten)]
    trip: TripParams,
    /// load that changes the core clock: none, other-core (vector arithmetic on all other cores) or slow-clock (cpufreq's minimum)
    #[factor(default = "none")]
    load: LoadKind,
}

const METRICS: &[Metric] = &[
    Metric::time("time", "crossing under the load: median of the phases"),
    Metric::new(
        "ticks",
        "ticks",
        Better::Lower,
        "crossing under the load, in ticks of the counter: median of the phases",
    ),
    Metric::new(
        "cycles",
        "cycles",
        Better::Lower,
        "crossing under the load, in core cycles: median of the phases",
    )
    .called("crossing"),
    Metric::new("core_clock", "Hz", Better::Neither, "core clock under the load"),
    Metric::time("time_unloaded", "crossing without the load: median of the phases"),
    Metric::new(
        "clock_moved",
        "1",
        Better::Neither,
        "ratio of the core clock under the load to that without",
    )
    .from_time(),
    Metric::new(
        "follows_core_clock",
        "1",
        Better::Neither,
        "share of the clock's change in the time: 0 if ticks stay fixed, 1 if core cycles do",
    )
    .signed()
    .from_time(),
];

/// The method `clock`.
pub(crate) struct Clock;

impl Method for Clock {
    type Params = ClockParams;

    fn name(&self) -> &'static str {
        "clock"
    }

    fn how(&self) -> &'static str {
        "Five phases without and five with a load that changes the core clock time the same trip, and the \
         core clock is calibrated before and after each. Trips are verified as in round-trips; a load that \
         changes the clock by less than 1% gives no value."
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn available(&self, params: &ClockParams) -> Result<(), Failure> {
        crate::trips::available(params.trip)?;
        load::available(params.load, &machine::topology::allowed_cpus())
    }

    fn expected(&self, _: &ClockParams, budget: Duration) -> Duration {
        let phase = (budget / (2 * PHASES)).max(MIN_PHASE);
        (phase + Duration::from_millis(2)) * (2 * PHASES)
    }

    fn timed_modules(&self) -> &'static [&'static str] {
        &["crossing::trips"]
    }

    fn probe(&self) -> Result<Box<dyn Probe<ClockParams>>, Failure> {
        Ok(Box::new(measure))
    }
}

/// Time of a crossing and core clock of one phase.
#[derive(Clone, Copy)]
struct Phase {
    ns: f64,
    hertz: f64,
}

fn measure(context: &mut Context, params: &ClockParams) -> Result<Measurement, Failure> {
    load::available(params.load, context.cpus)?;
    let tsc = context.tsc()?;
    let trip = params.trip;
    let conditions = Conditions {
        cpus: context.cpus,
        budget: (context.budget / (2 * PHASES)).max(MIN_PHASE),
        seed: context.seed,
        folder: std::env::temp_dir(),
    };
    let load = Load::prepare(params.load, context)?;
    let mut trips = Trips::default();
    let (without, under) = alternate(load, "time", || trips.measure_trip(trip, &conditions, tsc))?;
    to_measurement(&without, &under, params.load, tsc)
}

/// Measures phases without and phases under a load in turn; `metric` of `measure` is the time. Returns both.
fn alternate(
    mut load: Load,
    metric: &str,
    mut measure: impl FnMut() -> Result<Measurement, Failure>,
) -> Result<(Vec<Phase>, Vec<Phase>), Failure> {
    let mut phase = || {
        let before = core_clock::hertz()?;
        let measured = measure()?;
        let after = core_clock::hertz()?;
        let ns = measured.values.get(metric).copied();
        let ns = ns.ok_or_else(|| Failure::failed(format!("the crossing has no {metric}")))?;
        Ok::<_, Failure>(Phase { ns, hertz: (before + after) / 2.0 })
    };
    let (mut without, mut under) = (Vec::new(), Vec::new());
    for _ in 0..PHASES {
        without.push(phase()?);
        load.start()?;
        let result = phase();
        load.stop()?;
        under.push(result?);
    }
    Ok((without, under))
}

/// Converts the phases to metrics.
///
/// # Errors
/// Returns `unavailable` if a load did not change the clock.
fn to_measurement(
    without: &[Phase],
    under: &[Phase],
    load: LoadKind,
    tsc: &Tsc,
) -> Result<Measurement, Failure> {
    let of = |phases: &[Phase], part: fn(&Phase) -> f64| {
        median(&phases.iter().map(part).collect::<Vec<_>>())
            .ok_or_else(|| Failure::failed("no phase was measured"))
    };
    let (time, hertz) = (of(under, |phase| phase.ns)?, of(under, |phase| phase.hertz)?);
    let (unloaded, unloaded_hertz) =
        (of(without, |phase| phase.ns)?, of(without, |phase| phase.hertz)?);
    let moved = hertz / unloaded_hertz;
    let measurement = Measurement::default()
        .value("time", time)
        .value("ticks", time * tsc.hertz / 1e9)
        .value("cycles", of(under, |phase| phase.ns * phase.hertz / 1e9)?)
        .value("core_clock", hertz)
        .value("time_unloaded", unloaded)
        .value("clock_moved", moved);
    match load {
        LoadKind::None => return Ok(measurement),
        LoadKind::OtherCore | LoadKind::SlowClock => {}
    }
    if (moved - 1.0).abs() < MIN_CHANGE {
        return Err(Failure::unavailable(
            format!(
                "this load changed the core clock by only {:.2}%; below {:.0}% ticks and cycles \
                 cannot be distinguished",
                (moved - 1.0).abs() * 100.0,
                MIN_CHANGE * 100.0
            ),
            "use a machine whose core clock varies: with cpufreq, or with more cores",
        )
        .with_cause("this load changed the core clock too little"));
    }
    Ok(measurement.value("follows_core_clock", (time / unloaded).ln() / (1.0 / moved).ln()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TSC: Tsc = Tsc { hertz: 2e9, step: 1, overhead: 20, min_overhead: 20 };

    fn phases(ns: f64, hertz: f64) -> Vec<Phase> {
        vec![Phase { ns, hertz }; 5]
    }

    fn follows(under: (f64, f64)) -> f64 {
        let (ns, hertz) = under;
        let measurement =
            to_measurement(&phases(100.0, 4e9), &phases(ns, hertz), LoadKind::SlowClock, &TSC)
                .unwrap();
        measurement.values["follows_core_clock"]
    }

    #[test]
    fn fixed_core_cycles_follow_the_clock_and_fixed_ticks_do_not() {
        // At half the clock, 400 cycles take twice as long.
        assert!((follows((200.0, 2e9)) - 1.0).abs() < 1e-9);
        // The same number of ticks.
        assert!(follows((100.0, 2e9)).abs() < 1e-9);
        assert!((follows((141.421_356, 2e9)) - 0.5).abs() < 1e-6);
    }

    #[test]
    fn a_trip_has_times_in_ns_ticks_and_cycles() {
        let measurement =
            to_measurement(&phases(100.0, 4e9), &phases(200.0, 2e9), LoadKind::SlowClock, &TSC)
                .unwrap();
        let value = |name| measurement.values[name];
        assert_eq!([value("time"), value("ticks"), value("cycles")], [200.0, 400.0, 400.0]);
        assert_eq!([value("clock_moved"), value("time_unloaded")], [0.5, 100.0]);
    }

    #[test]
    fn an_unchanged_clock_gives_no_answer() {
        let unchanged = phases(100.0, 4.01e9);
        let failure =
            to_measurement(&phases(100.0, 4e9), &unchanged, LoadKind::OtherCore, &TSC).unwrap_err();
        assert!(failure.why.contains("0.25%"), "{failure}");
        let measurement =
            to_measurement(&phases(100.0, 4e9), &unchanged, LoadKind::None, &TSC).unwrap();
        assert!(!measurement.values.contains_key("follows_core_clock"));
    }
}
