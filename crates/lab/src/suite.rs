//! The trait by which the lab knows a suite. A suite is a folder and a line.

use std::time::Duration;

pub use crate::capability::{Capability, State};

use crate::artefact::Recipe;
use crate::factor::Factor;
use crate::guest::Guest;
use crate::journal::Run;
use crate::measure::{Context, Measurement};
use crate::metric::Metric;
pub use crate::option::SuiteOption;
use crate::point::Point;
use crate::sample::Failure;

/// The TOML files of a suite, embedded in the binary.
#[derive(Debug, Clone, Copy)]
pub struct Data {
    /// `experiments.toml`
    pub experiments: &'static str,
    /// `claims.toml`: what the source published.
    pub claims: &'static str,
    /// `promises.toml`: what we promise.
    pub promises: &'static str,
    /// `figures.toml`
    pub figures: &'static str,
}

/// What a suite is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Measures a boundary.
    Boundary,
    /// Tests the instrument: runs only when asked for by name.
    SelfTest,
}

/// The command line, or a file that it names, is wrong: one line, `what: cause; fix`. The program exits
/// with 2.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(String);

impl UsageError {
    /// An error for whoever typed the command line.
    pub fn new(line: impl Into<String>) -> Self {
        Self(line.into())
    }
}

/// One boundary: what can be varied, what is measured, and how.
pub trait Suite: Sync {
    /// The name on the command line: `copy`.
    fn name(&self) -> &'static str;

    /// One line for people.
    fn about(&self) -> &'static str;

    /// What the suite is for.
    fn purpose(&self) -> Purpose {
        Purpose::Boundary
    }

    /// The embedded TOML files.
    fn data(&self) -> Data;

    /// The factors it offers, in the order in which people read them.
    fn factors(&self) -> &'static [Factor];

    /// The metrics it measures.
    fn metrics(&self) -> &'static [Metric];

    /// What a user may allow or set for it by name, beyond the options of the lab.
    fn options(&self) -> &'static [SuiteOption] {
        &[]
    }

    /// What the suite needs beyond what `machine` knows of, present or absent.
    fn capabilities(&self) -> Vec<Capability> {
        Vec::new()
    }

    /// Whether a point can be measured on this machine; cheap, no side effects.
    ///
    /// # Errors
    /// The reason why not, and the remedy.
    fn available(&self, experiment: &str, point: &Point) -> Result<(), Failure> {
        let _ = (experiment, point);
        Ok(())
    }

    /// How long a sample takes, with all that it prepares, for the plan and for time limits.
    fn expected(&self, experiment: &str, point: &Point, budget: Duration) -> Duration {
        let _ = (experiment, point);
        budget
    }

    /// The file with machine code from outside (a shared object, a static library) that a point would load.
    /// The lab makes nothing of such a point and hands it to no probe unless the user gave `--allow code`;
    /// [`Suite::available`] must not load it either.
    fn code(&self, experiment: &str, point: &Point) -> Option<String> {
        let _ = (experiment, point);
        None
    }

    /// What the host must make before it can measure this point.
    fn artefacts(&self, experiment: &str, point: &Point) -> Vec<Recipe> {
        let _ = (experiment, point);
        Vec::new()
    }

    /// The guest inside which a point is measured; none where it is measured on the host itself.
    fn guest(&self, experiment: &str, point: &Point) -> Option<Guest> {
        let _ = (experiment, point);
        None
    }

    /// Opens what measures the points of one order, in a fresh process.
    ///
    /// # Errors
    /// When nothing of the experiment can be measured here.
    fn probe(&self, experiment: &str) -> Result<Box<dyn Probe>, Failure>;

    /// Where figures of one run cannot all be right, such as a part that is larger than its whole;
    /// one line each.
    fn inconsistencies(&self, run: &Run) -> Vec<String> {
        let _ = run;
        Vec::new()
    }

    /// The suite by hand: the options that its source has. Gives the exit status.
    ///
    /// # Errors
    /// One line: what, where, and what to do. The program exits with 2 for a [`UsageError`] and for what
    /// clap says of the words, which it prints for all suites alike, and with 1 for anything else.
    fn by_hand(
        &self,
        arguments: &[String],
        lab: &crate::run::Lab,
    ) -> Result<i32, Box<dyn std::error::Error + Send + Sync>> {
        let _ = (arguments, lab);
        Err(format!("suite '{}' has no command of its own; use 'run {0}'", self.name()).into())
    }
}

/// What measures points; lives as long as one order, so that buffers outlast a point.
pub trait Probe {
    /// Measures one point once.
    ///
    /// # Errors
    /// What stands in the sample's place.
    fn measure(&mut self, context: &mut Context, point: &Point) -> Result<Measurement, Failure>;
}

/// Finds a suite by name.
pub fn find<'a>(suites: &[&'a dyn Suite], name: &str) -> Option<&'a dyn Suite> {
    suites.iter().copied().find(|suite| suite.name() == name)
}
