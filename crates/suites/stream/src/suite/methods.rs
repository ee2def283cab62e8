//! The methods: the next packet as soon as one comes back, a load with and without times, and a search.

use std::time::Duration;

use lab::measure::{Context, Measurement};
use lab::method::{AnyMethod, Method, Params, Probe};
use lab::metric::Metric;
use lab::proximity;
use lab::sample::Failure;
use machine::tsc::Tsc;

use super::params::{ClosedParams, CommonParams, LoadParams, SearchParams};
use super::setting::{Cpus, Setting};
use super::{ceiling, closed, load, measured, metrics, search};

/// What a sample takes besides what it measures: threads, rings and their memory, how near the cores are.
const BESIDES: Duration = Duration::from_millis(20);
/// What each MiB of rings adds: all of it is made and touched first.
const A_MEBIBYTE: Duration = Duration::from_millis(3);
/// What a trial of a search takes besides its duration: it waits first, and for what is lost at its end.
const A_TRIAL: Duration = Duration::from_millis(3);
/// What a sample takes that cannot be measured here.
const NONE: Duration = Duration::from_millis(1);

/// All of them.
pub(super) static METHODS: &[&dyn AnyMethod] =
    &[&INTERFACES, &LINE_RATE, &RTT_VS_LOAD, &THROUGHPUT];

/// Sends the next packet as soon as one comes back.
static INTERFACES: StreamMethod<ClosedParams> =
    StreamMethod { name: "interfaces", timed: one_trial, measure: closed::measure };

/// Sends at a rate.
static LINE_RATE: StreamMethod<LoadParams> =
    StreamMethod { name: "line-rate", timed: one_trial, measure: load::measure::<false> };

/// Sends at a rate and takes round-trip times.
static RTT_VS_LOAD: StreamMethod<LoadParams> =
    StreamMethod { name: "rtt-vs-load", timed: one_trial, measure: load::measure::<true> };

/// Searches for the largest load without loss.
static THROUGHPUT: StreamMethod<SearchParams> =
    StreamMethod { name: "throughput", timed: trials, measure: search::measure };

/// What a method differs in from the others.
struct StreamMethod<P> {
    name: &'static str,
    /// How long it sends, from a sample's budget.
    timed: fn(Duration) -> Duration,
    measure: Measure<P>,
}

type Measure<P> = fn(&P, &Setting, &Cpus, Duration, &Tsc) -> Result<Measurement, Failure>;

impl<P: Params + AsRef<CommonParams>> Method for StreamMethod<P> {
    type Params = P;

    fn name(&self) -> &'static str {
        self.name
    }

    fn metrics(&self) -> &'static [Metric] {
        metrics::METRICS
    }

    fn available(&self, params: &P) -> Result<(), Failure> {
        available(params.as_ref())
    }

    fn expected(&self, params: &P, budget: Duration) -> Duration {
        match available(params.as_ref()) {
            Ok(()) => takes(params.as_ref(), (self.timed)(budget)),
            Err(_) => NONE,
        }
    }

    fn probe(&self) -> Result<Box<dyn Probe<P>>, Failure> {
        Ok(Box::new(StreamProbe(self.measure)))
    }
}

/// Checks whether the machine has the cores and the memory that a point needs.
fn available(common: &CommonParams) -> Result<(), Failure> {
    Setting::new(common).cpus(&machine::topology::allowed_cpus()).map(|_| ())
}

/// How long a sample takes on a machine that has what its point needs.
fn takes(common: &CommonParams, timed: Duration) -> Duration {
    let setting = Setting::new(common);
    let mebibytes = u32::try_from(setting.interface.memory(&setting) >> 20);
    let rings = A_MEBIBYTE.saturating_mul(mebibytes.unwrap_or(u32::MAX));
    rings.saturating_add(BESIDES).saturating_add(timed)
}

/// A trial and its warm-up.
fn one_trial(budget: Duration) -> Duration {
    budget.saturating_mul(5) / 4
}

/// The trials of a search.
fn trials(budget: Duration) -> Duration {
    budget.saturating_add(A_TRIAL).saturating_mul(search::TRIALS)
}

/// Measures points by one method.
struct StreamProbe<P>(Measure<P>);

impl<P: Params + AsRef<CommonParams>> Probe<P> for StreamProbe<P> {
    fn measure(&mut self, context: &mut Context, params: &P) -> Result<Measurement, Failure> {
        let setting = Setting::new(params.as_ref());
        let cpus = setting.cpus(context.cpus)?;
        let (tsc, budget) = (context.tsc()?, context.budget);
        proximity::among(cpus.nic, &cpus.applications, || {
            // Before and after, as the CPUs may have come nearer.
            let before = ceiling::measure(&cpus, tsc)?;
            let measured = (self.0)(params, &setting, &cpus, budget, tsc)?;
            let ceiling = ceiling::measure(&cpus, tsc)?.or(before);
            Ok(measured::with_setting(measured, &setting, ceiling))
        })
    }
}

#[cfg(test)]
mod tests {
    use lab::experiment::{Experiment, Profile};
    use lab::plan;
    use lab::sample::Item;
    use lab::soundness;

    use super::*;

    #[test]
    fn quick_is_quick_and_standard_takes_two_hours_at_most() {
        // On a machine that has what all points need.
        let one = |experiment: &Experiment, item: &Item| {
            let timed = match experiment.method.as_str() {
                "throughput" => trials(experiment.effort.budget),
                _ => one_trial(experiment.effort.budget),
            };
            takes(&CommonParams::from_point(&item.point).unwrap(), timed).as_secs_f64()
        };
        let of_experiment = |experiment: &Experiment| {
            let round: f64 = plan::items(experiment).iter().map(|item| one(experiment, item)).sum();
            round * f64::from(experiment.effort.rounds)
        };
        let seconds = |profile| -> f64 {
            soundness::experiments(&crate::SUITE, profile).unwrap().iter().map(of_experiment).sum()
        };
        let (quick, standard) = (seconds(Profile::Quick), seconds(Profile::Standard));
        println!("quick {quick:.0} s, standard {standard:.0} s");
        assert!(quick < 20.0 && standard < 7200.0, "quick {quick:.0} s, standard {standard:.0} s");
    }
}
