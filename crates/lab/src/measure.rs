//! What a probe is given, and what it gives back.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::artefact::{self, Artefacts};
use crate::histogram;
use crate::message::Rendezvous;
use crate::point::Level;
use crate::sample::{Failure, Trial};

/// What a probe is given for one point.
pub struct Context<'a> {
    /// How long to measure; preparing is not counted.
    pub budget: Duration,
    /// The round, from 0.
    pub round: u32,
    /// A seed that differs for each point and round and is the same in every run of the plan.
    pub seed: u64,
    /// The CPUs that the process may use, in order.
    pub cpus: &'a [usize],
    /// The role that the process plays; empty where the experiment has none.
    pub role: &'a str,
    /// Whether the process runs inside the guest that the point asks for.
    pub inside: bool,
    /// What the person allowed or set by name: `physical-address`, `allow-physical-write`.
    pub options: &'a BTreeMap<String, String>,
    pub(crate) tsc: Result<&'static machine::tsc::Tsc, Failure>,
    pub(crate) artefacts: &'a Artefacts,
    pub(crate) rendezvous: &'a mut Rendezvous,
}

impl Context<'_> {
    /// The time-stamp counter of this machine. What only counts needs none, and so runs on an
    /// emulated CPU too.
    ///
    /// # Errors
    /// Why no time may be taken here.
    pub fn tsc(&self) -> Result<&'static machine::tsc::Tsc, Failure> {
        self.tsc.clone()
    }

    /// Where a prepared artefact lies.
    ///
    /// # Errors
    /// Why it could not be made.
    pub fn artefact(&self, name: &str) -> Result<&Path, Failure> {
        artefact::find(self.artefacts, name)
    }

    /// Says that this role is ready, and waits until all are.
    ///
    /// # Errors
    /// When another role failed or the lab is gone.
    pub fn ready(&mut self) -> Result<(), Failure> {
        self.rendezvous.ready()
    }

    /// Tells the other roles to stop.
    ///
    /// # Errors
    /// When the lab is gone.
    pub fn stop(&mut self) -> Result<(), Failure> {
        self.rendezvous.stop()
    }

    /// Whether another role said stop; does not wait.
    pub fn stopped(&mut self) -> bool {
        self.rendezvous.stopped()
    }
}

/// What one point gave in one round.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Measurement {
    /// Metric to value, in the metric's unit.
    pub values: BTreeMap<String, f64>,
    /// Metric to encoded histogram.
    pub histograms: BTreeMap<String, String>,
    /// What was observed and not chosen: `proximity` = near.
    pub covariates: BTreeMap<String, Level>,
    /// The steps of a search.
    pub trials: Vec<Trial>,
    /// Why the sample does not count, where the probe saw that it does not.
    pub void: Option<String>,
}

impl Measurement {
    /// Adds a value in the metric's unit.
    #[must_use]
    pub fn value(mut self, metric: &str, value: f64) -> Self {
        self.values.insert(metric.into(), value);
        self
    }

    /// Adds a covariate.
    #[must_use]
    pub fn covariate(mut self, name: &str, level: impl Into<Level>) -> Self {
        self.covariates.insert(name.into(), level.into());
        self
    }

    /// Adds a histogram of one metric.
    ///
    /// # Errors
    /// When it cannot be encoded.
    pub fn histogram(mut self, metric: &str, histogram: &Histogram<u64>) -> Result<Self, Failure> {
        let text = histogram::encode(histogram)
            .map_err(|why| Failure::failed(format!("the histogram '{metric}': {why}")))?;
        self.histograms.insert(metric.into(), text);
        Ok(self)
    }
}
