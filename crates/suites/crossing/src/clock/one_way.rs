//! `crossing/one-way-clock`: the same question of each way separately, as xperf asks it.

use std::time::Duration;

use lab::factor::LevelType;
use lab::measure::{Context, Measurement};
use lab::method::{Method, Params, Probe};
use lab::metric::Metric;
use lab::sample::Failure;

use super::load::Load;
use super::{LoadKind, METRICS, PHASES, alternate, load, to_measurement};
use crate::one_way::{self, OneWay, OneWayParams, Route};

/// One way of a crossing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub(crate) enum Way {
    /// User to kernel.
    In,
    /// Kernel to user.
    Out,
}

/// Params of `one-way-clock`.
#[derive(Debug, Clone, Copy, Params)]
pub(crate) struct OneWayClockParams {
    #[factor(flatten)]
    crossing: OneWayParams,
    /// the way that is measured: in (user to kernel) or out (kernel to user)
    #[factor(default = "in")]
    way: Way,
    /// load that changes the core clock: none, other-core (vector arithmetic on all other cores) or slow-clock (cpufreq's minimum)
    #[factor(default = "none")]
    load: LoadKind,
}

/// The method `one-way-clock`.
pub(crate) struct OneWayClock;

impl Method for OneWayClock {
    type Params = OneWayClockParams;

    fn name(&self) -> &'static str {
        "one-way-clock"
    }

    fn how(&self) -> &'static str {
        "One way of a crossing is timed by the stamps of one-way in five phases without and five with a load \
         that changes the core clock, which is calibrated before and after each. Stamps are verified as in \
         one-way; a load that changes the clock by less than 1% gives no value."
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn available(&self, params: &OneWayClockParams) -> Result<(), Failure> {
        if params.crossing.route == Route::PatchedVm {
            return Err(Failure::unavailable(
                "the core clock is changed outside of the virtual machine",
                "use route = guest or patched",
            ));
        }
        OneWay.available(&params.crossing)?;
        load::available(params.load, &machine::topology::allowed_cpus())
    }

    fn expected(&self, params: &OneWayClockParams, budget: Duration) -> Duration {
        let phase = OneWay.expected(&per_phase(params), budget) + Duration::from_millis(2);
        phase * (2 * PHASES)
    }

    fn timed_modules(&self) -> &'static [&'static str] {
        &["crossing::patched::touch"]
    }

    fn foreign_code(&self, params: &OneWayClockParams) -> Vec<&'static str> {
        params.crossing.foreign_code()
    }

    fn probe(&self) -> Result<Box<dyn Probe<OneWayClockParams>>, Failure> {
        Ok(Box::new(measure))
    }
}

/// Returns the params of one phase: the crossings are divided among all phases.
fn per_phase(params: &OneWayClockParams) -> OneWayParams {
    let crossings = params.crossing.crossings.div_ceil(2 * u64::from(PHASES));
    OneWayParams { crossings, ..params.crossing }
}

fn measure(context: &mut Context, params: &OneWayClockParams) -> Result<Measurement, Failure> {
    OneWayClock.available(params)?;
    let load = Load::prepare(params.load, context)?;
    let tsc = context.tsc()?;
    let metric = match params.way {
        Way::In => "u2k",
        Way::Out => "k2u",
    };
    let crossing = per_phase(params);
    let (without, under) = alternate(load, metric, || one_way::measure(context, &crossing))?;
    to_measurement(&without, &under, params.load, tsc)
}

#[cfg(test)]
mod tests {
    use lab::point::Point;
    use lab::sample::FailureKind;

    use super::*;

    fn params(factor: &str, level: &str) -> OneWayClockParams {
        OneWayClockParams::with_defaults(&Point::from([(factor, level)])).unwrap()
    }

    #[test]
    fn the_crossings_are_divided_among_the_phases() {
        assert_eq!(per_phase(&params("crossings", "100000")).crossings, 10_000);
        assert_eq!(per_phase(&params("crossings", "1")).crossings, 1);
    }

    #[test]
    fn routes_whose_clock_cannot_be_changed_are_unavailable() {
        for route in ["patched-vm", "bare-metal", "guest-emulated"] {
            let failure = OneWayClock.available(&params("route", route)).unwrap_err();
            assert_eq!(failure.kind, FailureKind::Unavailable, "{route}");
            assert!(failure.remedy.is_some(), "{route}");
        }
    }

    #[test]
    fn a_phase_without_a_time_is_an_error() {
        let failure = alternate(Load::None, "u2k", || Ok(Measurement::default())).err().unwrap();
        assert!(failure.why.contains("the crossing has no u2k"), "{failure}");
    }

    #[test]
    fn both_kinds_of_phases_alternate() {
        let mut calls = 0;
        let (without, under) = alternate(Load::None, "u2k", || {
            calls += 1;
            Ok(Measurement::default().value("u2k", f64::from(calls)))
        })
        .unwrap();
        let ns =
            |phases: &[super::super::Phase]| phases.iter().map(|one| one.ns).collect::<Vec<_>>();
        assert_eq!(ns(&without), [1.0, 3.0, 5.0, 7.0, 9.0]);
        assert_eq!(ns(&under), [2.0, 4.0, 6.0, 8.0, 10.0]);
    }
}
