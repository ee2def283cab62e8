//! Consistency of the routes within one boot: a part must not exceed its whole.
//!
//! The first tracepoint comes after the first instruction of the entry, so user to tracepoint is at least user to
//! kernel. User to kernel, the kernel's work and kernel to user sum to the round trip. If the intervals contradict
//! this, at least one result is wrong.

use lab::format::interval;
use lab::journal::Run;
use lab::method::Params;
use lab::sample::Sample;
use lab::statistics::{Estimate, estimate};
use lab::summary::Samples;

use crate::guest::CrossingKind;
use crate::one_way::{Isolation, OneWayParams, Route};
use crate::trace::{Event, TraceBackend, TraceParams};

/// Experiment that stamps both ways.
const ONE_WAY: &str = "crossing/one-way";
/// Experiment that measures the time to the first tracepoint.
const TRACEPOINT: &str = "crossing/tracepoint";

/// Returns the contradictions in the newest boot of the run, one line each.
pub fn contradictions(run: &Run) -> Vec<String> {
    let Some(samples) = Samples::newest(run, ONE_WAY) else {
        return Vec::new();
    };
    let boot = Boot { run, id: samples.environment };
    Isolation::ALL.into_iter().flat_map(|isolation| boot.contradictions(isolation)).collect()
}

/// A run, restricted to one boot.
struct Boot<'a> {
    run: &'a Run,
    id: &'a str,
}

impl Boot<'_> {
    fn contradictions(&self, isolation: Isolation) -> Vec<String> {
        [self.check_tracepoint(isolation), self.check_parts(isolation)]
            .into_iter()
            .flatten()
            .collect()
    }

    /// Checks that user to tracepoint is not below user to kernel.
    fn check_tracepoint(&self, isolation: Isolation) -> Option<String> {
        let u2k = self.estimate_patched(isolation, |sample| sample.values.get("u2k").copied())?;
        TraceBackend::ALL.into_iter().find_map(|through| {
            let is = |p: &TraceParams| p.event == Event::PageFault && p.through == through;
            let u2t = self.estimate(TRACEPOINT, is, |sample| sample.values.get("u2t").copied())?;
            (u2t.interval.high < u2k.interval.low).then(|| {
                format!(
                    "page fault, isolation {isolation}: user to tracepoint by {through}, {}, is \
                     shorter than its part user to kernel, {}",
                    describe(&u2t),
                    describe(&u2k)
                )
            })
        })
    }

    /// Checks that the three parts sum to the round trip. Each of the four stamps may be off by one step of the
    /// counter.
    fn check_parts(&self, isolation: Isolation) -> Option<String> {
        let sum = |sample: &Sample| {
            let part = |name| sample.values.get(name).copied();
            Some(part("u2k")? + part("kernel")? + part("k2u")?)
        };
        let parts = self.estimate_patched(isolation, sum)?;
        let whole =
            self.estimate_patched(isolation, |sample| sample.values.get("round_trip").copied())?;
        let step = self.estimate_patched(isolation, |sample| {
            sample.clock.map(|clock| clock.tsc_step as f64 * 1e9 / clock.tsc_hertz)
        })?;
        let tolerance = 4.0 * step.median;
        let differs = parts.interval.low > whole.interval.high + tolerance
            || parts.interval.high < whole.interval.low - tolerance;
        differs.then(|| {
            format!(
                "page fault, isolation {isolation}: user to kernel, kernel and kernel to user \
                 sum to {}, but the round trip is {}",
                describe(&parts),
                describe(&whole)
            )
        })
    }

    /// Estimates a value of page faults on the route `patched`.
    fn estimate_patched(
        &self,
        isolation: Isolation,
        of: impl Fn(&Sample) -> Option<f64>,
    ) -> Option<Estimate> {
        let is = |p: &OneWayParams| {
            p.route == Route::Patched
                && p.kind == CrossingKind::PageFault
                && p.isolation == isolation
        };
        self.estimate(ONE_WAY, is, of)
    }

    fn estimate<P: Params>(
        &self,
        experiment: &str,
        is: impl Fn(&P) -> bool,
        of: impl Fn(&Sample) -> Option<f64>,
    ) -> Option<Estimate> {
        let samples = Samples::in_environment(self.run, experiment, self.id);
        let valid =
            samples.all().filter(|sample| sample.environment == self.id && sample.is_valid());
        let selected = valid.filter(|one| P::with_defaults(&one.point).is_ok_and(|p| is(&p)));
        let values: Vec<f64> = selected.filter_map(of).collect();
        estimate(&values).ok()
    }
}

fn describe(estimate: &Estimate) -> String {
    interval(estimate.median, &estimate.interval, "ns")
}
