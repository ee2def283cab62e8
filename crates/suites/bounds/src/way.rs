//! The ways of measuring of this suite, each a module: what the lab asks for by an experiment's name.

use std::time::Duration;

use lab::artefact::Recipe;
use lab::factor::Factor;
use lab::method::{AnyMethod, Method, Probe};
use lab::metric::Metric;
use lab::point::Point;
use lab::sample::Failure;

use crate::{checks, instructions, kernels, races, tables};

/// One way of measuring.
pub(crate) struct Way {
    /// What experiments call it: `checks`.
    pub(crate) name: &'static str,
    /// The factors that it knows. One of the same name in another way is the same factor.
    pub(crate) factors: &'static [Factor],
    /// What it measures.
    pub(crate) metrics: &'static [Metric],
    /// Whether a point can be measured here, cheaply and with no side effect.
    pub(crate) available: fn(&Point) -> Result<(), Failure>,
    /// How long a sample takes.
    pub(crate) expected: fn(&Point, Duration) -> Duration,
    /// What must be made first.
    pub(crate) artefacts: fn(&Point) -> Vec<Recipe>,
    /// What measures.
    pub(crate) probe: fn() -> Box<dyn Probe>,
}

/// All of them.
pub(crate) static WAYS: &[&dyn AnyMethod] = &[
    &instructions::WAY,
    &instructions::sharing::WAY,
    &checks::WAY,
    &tables::WAY,
    &kernels::WAY,
    &kernels::detection::WAY,
    &races::WAY,
];

impl Method for Way {
    type Params = Point;

    fn name(&self) -> &'static str {
        self.name
    }

    fn factors(&self) -> &'static [Factor] {
        self.factors
    }

    fn metrics(&self) -> &'static [Metric] {
        self.metrics
    }

    fn available(&self, point: &Point) -> Result<(), Failure> {
        (self.available)(point)
    }

    fn expected(&self, point: &Point, budget: Duration) -> Duration {
        (self.expected)(point, budget)
    }

    fn artefacts(&self, point: &Point) -> Vec<Recipe> {
        (self.artefacts)(point)
    }

    fn probe(&self) -> Result<Box<dyn Probe>, Failure> {
        Ok((self.probe)())
    }
}
