//! The input and the output of a probe.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::artefact::{self, Artefacts};
use crate::guest::EMULATOR;
use crate::histogram;
use crate::message::{Answer, Rendezvous, RoleMessage};
use crate::point::Level;
use crate::sample::{Failure, Trial};

/// Covariate that names the metrics whose value is the limit of their search, separated by spaces.
pub const CAPPED: &str = "capped";
/// Name of the covariate that states which part limited a sample, e.g. `application`.
pub const BOTTLENECK: &str = "bottleneck";
/// Name of the covariate that lists metrics whose values the instrument limited.
pub const LIMITED: &str = "limited_by_instrument";
/// Name of the covariate that lists the busy share of each core, e.g. `0.98, 0.42`. Tables do not show it: it has another
/// value in each round.
pub const BUSY_CORES: &str = "busy_cores";
/// Name of the covariate that states which emulator executed what a sample counts, while the CPU of the probe is a real one:
/// `tcg`. Claims about a real CPU are not judged from such samples.
pub const EXECUTED_BY: &str = "executed_by";

/// The conditions under which a probe measures one point.
pub struct Context<'a> {
    /// The time to measure, without preparation.
    pub budget: Duration,
    /// The round, from 0.
    pub round: u32,
    /// A seed per point and round, derived from the run's seed.
    pub seed: u64,
    /// The CPUs that the process may use, in order.
    pub cpus: &'a [usize],
    /// The role of the process; empty if the experiment has no roles.
    pub role: &'a str,
    /// Whether the process runs inside the guest of the point.
    pub inside: bool,
    /// The options that the user enabled or set, e.g. `physical-address`, `allow-physical-write`.
    pub options: &'a BTreeMap<String, String>,
    pub(crate) tsc: Result<&'static machine::tsc::Tsc, Failure>,
    pub(crate) artefacts: &'a Artefacts,
    pub(crate) rendezvous: &'a mut Rendezvous,
}

impl Context<'_> {
    /// Returns the time-stamp counter. A probe that only counts does not need it, and so works on an emulated CPU.
    ///
    /// # Errors
    /// Returns `unavailable` if the counter is not usable.
    pub fn tsc(&self) -> Result<&'static machine::tsc::Tsc, Failure> {
        self.tsc.clone()
    }

    /// Returns the path of a prepared artefact.
    ///
    /// # Errors
    /// Returns the failure of making it.
    pub fn artefact(&self, name: &str) -> Result<&Path, Failure> {
        artefact::find(self.artefacts, name)
    }

    /// Waits until all roles are ready.
    ///
    /// # Errors
    /// Returns `failed` if another role failed or the lab has exited.
    pub fn ready(&mut self) -> Result<(), Failure> {
        self.rendezvous.ready()
    }

    /// Asks the other roles to stop.
    ///
    /// # Errors
    /// Returns `failed` if the lab has exited.
    pub fn stop(&mut self) -> Result<(), Failure> {
        self.rendezvous.stop()
    }

    /// Returns whether another role asked this one to stop; does not wait.
    pub fn stopped(&mut self) -> bool {
        self.rendezvous.stopped()
    }

    /// Sends values to the other roles, e.g. what this side counted in a trial of a search.
    ///
    /// # Errors
    /// Returns `check` if a value is not finite, and `failed` if the lab has exited.
    pub fn send(&mut self, values: BTreeMap<String, f64>) -> Result<(), Failure> {
        if let Some((name, value)) = values.iter().find(|(_, value)| !value.is_finite()) {
            return Err(Failure::check(format!("'{name}' is {value}")));
        }
        let message = RoleMessage { role: self.role.into(), values };
        self.rendezvous.answer(&Answer::Message(message))
    }

    /// Waits for the next values of another role; `None` if it stopped or failed without sending any.
    pub fn message(&mut self) -> Option<RoleMessage> {
        self.rendezvous.message()
    }
}

/// The measured sample of one point.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Measurement {
    /// Metric to value, in the metric's unit.
    pub values: BTreeMap<String, f64>,
    /// Metric to encoded histogram.
    pub histograms: BTreeMap<String, String>,
    /// Observed conditions, e.g. `round_trip_ns` = `98.1`.
    pub covariates: BTreeMap<String, Level>,
    /// The steps of a search.
    pub trials: Vec<Trial>,
    /// Why the sample is void, if the probe detected that it is.
    pub void: Option<String>,
}

impl Measurement {
    /// Adds a value in the metric's unit.
    #[must_use]
    pub fn value(mut self, metric: &str, value: f64) -> Self {
        self.values.insert(metric.into(), value);
        self
    }

    /// States that QEMU's emulator executed what was measured.
    #[must_use]
    pub fn emulated(self) -> Self {
        self.covariate(EXECUTED_BY, EMULATOR)
    }

    /// Adds a covariate.
    #[must_use]
    pub fn covariate(mut self, name: &str, level: impl Into<Level>) -> Self {
        self.covariates.insert(name.into(), level.into());
        self
    }

    /// Records which metrics have the limit of their search as their value: the true value may be higher.
    #[must_use]
    pub fn capped(self, metrics: &[&str]) -> Self {
        if metrics.is_empty() { self } else { self.covariate(CAPPED, metrics.join(" ").as_str()) }
    }

    /// Records which part was the bottleneck, and which metrics the instrument limited: their true values may be better.
    #[must_use]
    pub fn bottleneck(self, part: &str, limited: &[&str]) -> Self {
        let measurement = self.covariate(BOTTLENECK, part);
        match limited.is_empty() {
            true => measurement,
            false => measurement.covariate(LIMITED, limited.join(" ").as_str()),
        }
    }

    /// Adds a histogram of one metric.
    ///
    /// # Errors
    /// Returns `failed` if it cannot be encoded.
    pub fn histogram(mut self, metric: &str, histogram: &Histogram<u64>) -> Result<Self, Failure> {
        let text = histogram::encode(histogram)
            .map_err(|why| Failure::failed(format!("the histogram '{metric}': {why}")))?;
        self.histograms.insert(metric.into(), text);
        Ok(self)
    }
}
