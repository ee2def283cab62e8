//! `crossing/clock`: which of a crossing's three measures stays fixed when the core clock changes.
//!
//! The seed asks whether its cycles, which are ticks of the counter, change with the frequency of the
//! core or are something fixed. So the same trip is made with the core clock as it is and with the
//! clock changed, by turns within a sample, and the clock is calibrated around each turn.

mod load;
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

/// Turns of each kind in a sample.
const TURNS: u32 = 5;
/// The least time of a turn.
const LEAST: Duration = Duration::from_micros(500);
/// By how much the clock must differ between the turns before anything can be told apart.
const MOVED: f64 = 0.01;

/// What changes the core clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub(crate) enum LoadKind {
    None,
    OtherCore,
    SlowClock,
}

/// Levels of `clock`.
#[derive(Debug, Clone, Copy, Params)]
pub(crate) struct ClockParams {
    #[factor(flatten)]
    trip: TripParams,
    /// what changes the core clock: none, other-core (vector arithmetic on all others) or slow-clock (cpufreq's least)
    #[factor(default = "none")]
    load: LoadKind,
}

const METRICS: &[Metric] = &[
    Metric::time("time", "a round trip under the load: median"),
    Metric {
        name: "ticks",
        unit: "ticks",
        better: Better::Lower,
        about: "a round trip in ticks of the counter, under the load: median",
    },
    Metric {
        name: "cycles",
        unit: "cycles",
        better: Better::Lower,
        about: "a round trip in core cycles, under the load: median",
    },
    Metric {
        name: "core_clock",
        unit: "Hz",
        better: Better::Neither,
        about: "the core clock under the load",
    },
    Metric::time("time_unloaded", "a round trip in the turns without the load: median"),
    Metric {
        name: "clock_moved",
        unit: "1",
        better: Better::Neither,
        about: "the core clock under the load over the one without",
    },
    Metric {
        name: "follows_core_clock",
        unit: "1",
        better: Better::Neither,
        about: "how the time follows the core clock: 0 its ticks stay fixed, 1 its core cycles do",
    },
];

/// Makes the same trip with and without a load.
pub(crate) struct Clock;

impl Method for Clock {
    type Params = ClockParams;

    fn name(&self) -> &'static str {
        "clock"
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn available(&self, params: &ClockParams) -> Result<(), Failure> {
        crate::trips::available(params.trip)?;
        load::available(params.load, &machine::topology::allowed_cpus())
    }

    fn expected(&self, _: &ClockParams, budget: Duration) -> Duration {
        let turn = (budget / (2 * TURNS)).max(LEAST);
        (turn + Duration::from_millis(2)) * (2 * TURNS)
    }

    fn probe(&self) -> Result<Box<dyn Probe<ClockParams>>, Failure> {
        Ok(Box::new(Turning))
    }
}

struct Turning;

/// One turn: what a trip took, and the core clock meanwhile.
#[derive(Clone, Copy)]
struct Turn {
    ns: f64,
    hertz: f64,
}

impl Probe<ClockParams> for Turning {
    fn measure(
        &mut self,
        context: &mut Context,
        params: &ClockParams,
    ) -> Result<Measurement, Failure> {
        load::available(params.load, context.cpus)?;
        let tsc = context.tsc()?;
        let setup = params.trip;
        let conditions = Conditions {
            cpus: context.cpus,
            budget: (context.budget / (2 * TURNS)).max(LEAST),
            seed: context.seed,
            folder: std::env::temp_dir(),
        };
        let mut load = Load::prepare(params.load, context)?;
        let mut trips = Trips::default();
        let (mut without, mut under) = (Vec::new(), Vec::new());
        for _ in 0..TURNS {
            without.push(turn(&mut trips, setup, &conditions, tsc)?);
            load.begin()?;
            let turned = turn(&mut trips, setup, &conditions, tsc);
            load.end()?;
            under.push(turned?);
        }
        told(&without, &under, params.load, tsc)
    }
}

fn turn(
    trips: &mut Trips,
    setup: TripParams,
    conditions: &Conditions,
    tsc: &'static Tsc,
) -> Result<Turn, Failure> {
    let before = core_clock::hertz()?;
    let measured = trips.make(setup, conditions, tsc)?;
    let after = core_clock::hertz()?;
    let ns = measured.values.get("time").copied();
    let ns = ns.ok_or_else(|| Failure::failed("the trip gave no time"))?;
    Ok(Turn { ns, hertz: (before + after) / 2.0 })
}

/// What the turns give. Where a load left the clock as it was, its question has no answer here.
fn told(
    without: &[Turn],
    under: &[Turn],
    load: LoadKind,
    tsc: &Tsc,
) -> Result<Measurement, Failure> {
    let of = |turns: &[Turn], part: fn(&Turn) -> f64| {
        median(&turns.iter().map(part).collect::<Vec<_>>())
            .ok_or_else(|| Failure::failed("no turn was made"))
    };
    let (time, hertz) = (of(under, |turn| turn.ns)?, of(under, |turn| turn.hertz)?);
    let (unloaded, unloaded_hertz) =
        (of(without, |turn| turn.ns)?, of(without, |turn| turn.hertz)?);
    let moved = hertz / unloaded_hertz;
    let measurement = Measurement::default()
        .value("time", time)
        .value("ticks", time * tsc.hertz / 1e9)
        .value("cycles", of(under, |turn| turn.ns * turn.hertz / 1e9)?)
        .value("core_clock", hertz)
        .value("time_unloaded", unloaded)
        .value("clock_moved", moved);
    if load == LoadKind::None {
        return Ok(measurement);
    }
    if (moved - 1.0).abs() < MOVED {
        return Err(Failure::unavailable(
            format!(
                "under this load the core clock moved by {:.2}% only, and less than {:.0}% tells \
                 nothing apart",
                (moved - 1.0).abs() * 100.0,
                MOVED * 100.0
            ),
            "measure where the core clock varies: with cpufreq, or with more cores",
        ));
    }
    Ok(measurement.value("follows_core_clock", (time / unloaded).ln() / (1.0 / moved).ln()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TSC: Tsc = Tsc { hertz: 2e9, step: 1, overhead: 20, overhead_least: 20 };

    fn turns(ns: f64, hertz: f64) -> Vec<Turn> {
        vec![Turn { ns, hertz }; 5]
    }

    fn follows(under: (f64, f64)) -> f64 {
        let (ns, hertz) = under;
        let told = told(&turns(100.0, 4e9), &turns(ns, hertz), LoadKind::SlowClock, &TSC).unwrap();
        told.values["follows_core_clock"]
    }

    #[test]
    fn core_cycles_that_stay_fixed_follow_the_clock() {
        // Half the clock: 400 cycles take twice as long.
        assert!((follows((200.0, 2e9)) - 1.0).abs() < 1e-9);
        // Ticks that stay fixed do not.
        assert!(follows((100.0, 2e9)).abs() < 1e-9);
        assert!((follows((141.421_356, 2e9)) - 0.5).abs() < 1e-6);
    }

    #[test]
    fn the_same_crossing_in_three_units() {
        let told = told(&turns(100.0, 4e9), &turns(200.0, 2e9), LoadKind::SlowClock, &TSC).unwrap();
        let value = |name| told.values[name];
        assert_eq!([value("time"), value("ticks"), value("cycles")], [200.0, 400.0, 400.0]);
        assert_eq!([value("clock_moved"), value("time_unloaded")], [0.5, 100.0]);
    }

    #[test]
    fn a_clock_that_stayed_tells_nothing() {
        let stayed = turns(100.0, 4.01e9);
        let failure = told(&turns(100.0, 4e9), &stayed, LoadKind::OtherCore, &TSC).unwrap_err();
        assert!(failure.why.contains("0.25%"), "{failure}");
        let told = told(&turns(100.0, 4e9), &stayed, LoadKind::None, &TSC).unwrap();
        assert!(!told.values.contains_key("follows_core_clock"));
    }
}
