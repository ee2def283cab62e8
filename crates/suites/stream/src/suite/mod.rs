//! The suite's methods: their params, their metrics, and the testbed on which they measure.

// A new level of a factor must not compile until every match defines it.
#![deny(clippy::wildcard_enum_match_arm)]

mod alone;
mod application;
pub mod application_config;
pub mod ceiling;
mod counted;
mod counts;
pub mod dpdk;
pub mod driver;
mod links;
pub mod metrics;
mod pages;
pub mod params;
#[cfg(test)]
mod planted_stall;
mod search;
mod single_trial;
pub mod stall;
#[cfg(test)]
mod stall_tests;
mod testbed;
pub mod testbed_config;
#[cfg(test)]
mod tests;
pub mod traffic;
pub mod two_hosts;
mod utilisation;
mod workload;
#[cfg(test)]
mod workload_tests;

use std::time::Duration;

use lab::measure::{Context, Measurement};
use lab::method::{AnyMethod, Method, Params, Probe};
use lab::metric::Metric;
use lab::proximity;
use lab::sample::{Failure, FailureKind};
use machine::tsc::Tsc;

use params::{ClosedParams, CommonParams, LoadParams, SearchParams};
use testbed_config::{Cpus, TestbedConfig};

/// Overhead of a sample: starting threads, mapping rings, measuring the proximity of the cores.
const OVERHEAD: Duration = Duration::from_millis(20);
/// Additional overhead per MiB of rings, all of which is allocated and touched first.
const PER_MEBIBYTE: Duration = Duration::from_millis(3);
/// Overhead of one trial of a search: the waits before and after it.
const PER_TRIAL: Duration = Duration::from_millis(3);
/// Duration of a sample that is unavailable on this machine.
const UNAVAILABLE: Duration = Duration::from_millis(1);

/// All methods of the suite.
pub(crate) static METHODS: &[&dyn AnyMethod] =
    &[&INTERFACES, &LINE_RATE, &RTT_VS_LOAD, &THROUGHPUT, &two_hosts::RATE, &two_hosts::RTT];

/// Closed loop: sends the next packet as soon as one is echoed.
static INTERFACES: StreamMethod<ClosedParams> = StreamMethod {
    name: "interfaces",
    how: "A fixed number of packets is in flight for the budget, and the rate is that of returned or consumed \
          ones. The generator counts packets and checks order, and contents as the factor check states; stalls \
          of over 10% of the time make the sample void.",
    timed: one_trial,
    measure: single_trial::measure_window,
    window: |params| Some(params.window),
};

/// Open loop: sends at a fixed rate.
static LINE_RATE: StreamMethod<LoadParams> = StreamMethod {
    name: "line-rate",
    how: "The core of NIC and generator sends at a fixed rate for the budget, and other cores run the \
          application. The generator counts packets and checks order, and contents as the factor check states; \
          a stall of over 200 us, not a loss, makes the sample void.",
    timed: one_trial,
    measure: single_trial::measure_rate::<false>,
    window: |_| None,
};

/// Open loop with round-trip times.
static RTT_VS_LOAD: StreamMethod<LoadParams> = StreamMethod {
    name: "rtt-vs-load",
    how: "Packets are sent at a fixed rate; a round trip is timed from just before a packet is written to \
          memory until the NIC has read it back, for every packet or one in up to 19. Order is checked, and \
          contents as the factor check states; a stall of over 200 us makes the sample void.",
    timed: one_trial,
    measure: single_trial::measure_rate::<true>,
    window: |_| None,
};

/// Searches for the highest rate without loss.
static THROUGHPUT: StreamMethod<SearchParams> = StreamMethod {
    name: "throughput",
    how: "A binary search after RFC 2544 and a search after MLRsearch find the highest load without loss by \
          trials at fixed rates; only MLRsearch repeats a trial with a stall. The generator counts every \
          packet and checks order, and contents as the factor check states.",
    timed: trials,
    measure: search::measure,
    window: |_| Some(counted::WINDOW),
};

/// A method of this suite; only these fields differ between methods.
struct StreamMethod<P> {
    name: &'static str,
    /// How a sample is timed and verified, in two sentences.
    how: &'static str,
    /// Computes the sending time of a sample from its budget.
    timed: fn(Duration) -> Duration,
    measure: Measure<P>,
    /// Returns the packets in flight of a sample without a usable clock; `None` if the method varies nothing but times.
    window: fn(&P) -> Option<u64>,
}

type Measure<P> = fn(&P, &TestbedConfig, &Cpus, Duration, &Tsc) -> Result<Measurement, Failure>;

impl<P: Params + AsRef<CommonParams>> Method for StreamMethod<P> {
    type Params = P;

    fn name(&self) -> &'static str {
        self.name
    }

    fn how(&self) -> &'static str {
        self.how
    }

    fn metrics(&self) -> &'static [Metric] {
        metrics::METRICS
    }

    fn available(&self, params: &P) -> Result<(), Failure> {
        available(params.as_ref())
    }

    fn expected(&self, params: &P, budget: Duration) -> Duration {
        match available(params.as_ref()) {
            Ok(()) => sample_duration(params.as_ref(), (self.timed)(budget)),
            Err(_) => UNAVAILABLE,
        }
    }

    fn foreign_code(&self, params: &P) -> Vec<&'static str> {
        params.as_ref().foreign_code()
    }

    fn probe(&self) -> Result<Box<dyn Probe<P>>, Failure> {
        Ok(Box::new(StreamProbe { measure: self.measure, window: self.window }))
    }
}

/// Checks whether the machine has the cores and the memory that a point needs.
fn available(common: &CommonParams) -> Result<(), Failure> {
    TestbedConfig::new(common).cpus(&machine::topology::allowed_cpus()).map(|_| ())
}

/// Checks that there are the application and the traffic of a point, on any machine.
///
/// # Errors
/// Returns `unsupported` with what to use instead.
pub(crate) fn check_supported(common: &CommonParams) -> Result<(), Failure> {
    let config = TestbedConfig::new(common);
    match config.check_application() {
        Err(why) if why.kind == FailureKind::Unsupported => Err(why),
        // What a machine lacks is the result of a sample.
        Ok(()) | Err(_) => config.check_workload(),
    }
}

/// Estimates how long a sample takes on a machine that supports its point.
fn sample_duration(common: &CommonParams, timed: Duration) -> Duration {
    let config = TestbedConfig::new(common);
    let mebibytes = u32::try_from(config.memory() >> 20);
    let rings = PER_MEBIBYTE.saturating_mul(mebibytes.unwrap_or(u32::MAX));
    let start = OVERHEAD.saturating_add(config.application_start());
    rings.saturating_add(start).saturating_add(timed)
}

/// Returns the sending time of one trial and its warm-up.
fn one_trial(budget: Duration) -> Duration {
    budget.saturating_mul(5) / 4
}

/// Returns the sending time of all trials of a search.
fn trials(budget: Duration) -> Duration {
    budget.saturating_add(PER_TRIAL).saturating_mul(search::TRIALS)
}

/// The probe of a [`StreamMethod`].
struct StreamProbe<P> {
    measure: Measure<P>,
    window: fn(&P) -> Option<u64>,
}

impl<P: Params + AsRef<CommonParams>> Probe<P> for StreamProbe<P> {
    fn measure(&mut self, context: &mut Context, params: &P) -> Result<Measurement, Failure> {
        let config = TestbedConfig::new(params.as_ref());
        links::check_allowed(&config, context.options)?;
        let cpus = config.cpus(context.cpus)?;
        let (tsc, budget) = match (context.tsc(), (self.window)(params)) {
            (Ok(tsc), _) => (tsc, context.budget),
            // Only an emulated CPU: on a real one the reason and its remedy matter more than counts.
            (Err(_), Some(window)) if machine::cpu::lacks_time() => {
                return counted::measure(&config, &cpus, window);
            }
            (Err(why), _) => return Err(why),
        };
        proximity::among(cpus.nic, &cpus.applications, || {
            // Measured before and after the trials because the proximity of the CPUs may change.
            let before = ceiling::measure(&cpus, tsc)?;
            let measured = (self.measure)(params, &config, &cpus, budget, tsc)?;
            let ceiling = ceiling::measure(&cpus, tsc)?.max(before);
            Ok(metrics::with_config(measured, &config, ceiling))
        })
    }
}
