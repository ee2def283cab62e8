//! The routes held together: within one boot a part is no larger than its whole.
//!
//! The first tracepoint lies behind the first instruction of the entry, so user to tracepoint is at
//! least user to kernel; and user to kernel, the kernel's own time and kernel to user make up the
//! round trip. Where the intervals say otherwise, one of the figures is wrong, and it is said.

use lab::journal::Run;
use lab::sample::Sample;
use lab::statistics::{Estimate, estimate};
use lab::summary::Samples;

/// The experiment that stamps both ways.
const ONE_WAY: &str = "crossing/one-way";
/// The experiment that stamps to the first tracepoint.
const TRACEPOINT: &str = "crossing/tracepoint";

/// What cannot all be right in the newest boot that the run measured in; one line each.
pub fn breaks(run: &Run) -> Vec<String> {
    let Some(samples) = Samples::newest(run, ONE_WAY) else {
        return Vec::new();
    };
    let boot = Boot { run, id: samples.environment };
    ["off", "on"].iter().flat_map(|isolation| boot.breaks(isolation)).collect()
}

/// The samples of one boot.
struct Boot<'a> {
    run: &'a Run,
    id: &'a str,
}

impl Boot<'_> {
    fn breaks(&self, isolation: &str) -> Vec<String> {
        [self.tracepoint_before_entry(isolation), self.parts_beside_whole(isolation)]
            .into_iter()
            .flatten()
            .collect()
    }

    /// User to tracepoint below user to kernel.
    fn tracepoint_before_entry(&self, isolation: &str) -> Option<String> {
        let u2k = self.stamped(isolation, |sample| sample.values.get("u2k").copied())?;
        ["tracefs", "bpf"].iter().find_map(|through| {
            let is = |sample: &Sample| {
                sample.point.text("event") == "page-fault"
                    && sample.point.text("through") == *through
            };
            let u2t = self.estimate(TRACEPOINT, is, |sample| sample.values.get("u2t").copied())?;
            (u2t.interval.high < u2k.interval.low).then(|| {
                format!(
                    "page fault, isolation {isolation}: user to tracepoint by {through} ({}) is \
                     less than user to kernel ({}), which lies on its way",
                    told(&u2t),
                    told(&u2k)
                )
            })
        })
    }

    /// The three parts of the round trip beside the whole. Each is stamped in steps of the counter,
    /// so that the four stamps may be a step off each.
    fn parts_beside_whole(&self, isolation: &str) -> Option<String> {
        let sum = |sample: &Sample| {
            let part = |name| sample.values.get(name).copied();
            Some(part("u2k")? + part("kernel")? + part("k2u")?)
        };
        let parts = self.stamped(isolation, sum)?;
        let whole = self.stamped(isolation, |sample| sample.values.get("round_trip").copied())?;
        let step = self.stamped(isolation, |sample| {
            sample.clock.map(|clock| clock.tsc_step as f64 * 1e9 / clock.tsc_hertz)
        })?;
        let slack = 4.0 * step.median;
        let apart = parts.interval.low > whole.interval.high + slack
            || parts.interval.high < whole.interval.low - slack;
        apart.then(|| {
            format!(
                "page fault, isolation {isolation}: user to kernel, kernel and kernel to user make \
                 up {}, but the round trip is {}",
                told(&parts),
                told(&whole)
            )
        })
    }

    /// What the patched kernel of this boot gave for a page fault.
    fn stamped(&self, isolation: &str, of: impl Fn(&Sample) -> Option<f64>) -> Option<Estimate> {
        let is = |sample: &Sample| {
            sample.point.text("route") == "patched"
                && sample.point.text("kind") == "page-fault"
                && sample.point.text("isolation") == isolation
        };
        self.estimate(ONE_WAY, is, of)
    }

    fn estimate(
        &self,
        experiment: &str,
        is: impl Fn(&Sample) -> bool,
        of: impl Fn(&Sample) -> Option<f64>,
    ) -> Option<Estimate> {
        let all = Samples::in_environment(self.run, experiment, self.id);
        let own = all.all().filter(|sample| sample.environment == self.id && sample.is_valid());
        let values: Vec<f64> = own.filter(|sample| is(sample)).filter_map(of).collect();
        estimate(&values).ok()
    }
}

fn told(estimate: &Estimate) -> String {
    let interval = &estimate.interval;
    format!("{:.1} ns, {:.1} to {:.1}", estimate.median, interval.low, interval.high)
}
