//! The ways of measuring of this suite, each a module: what the lab asks for by an experiment's name.

use std::time::Duration;

use lab::artefact::Recipe;
use lab::factor::Factor;
use lab::metric::Metric;
use lab::point::Point;
use lab::sample::Failure;
use lab::suite::Probe;

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
pub(crate) static WAYS: &[&Way] = &[
    &instructions::WAY,
    &instructions::sharing::WAY,
    &checks::WAY,
    &tables::WAY,
    &kernels::WAY,
    &kernels::detection::WAY,
    &races::WAY,
];

/// The way of a name.
///
/// # Errors
/// There is none: which there are.
pub(crate) fn find(name: &str) -> Result<&'static Way, Failure> {
    WAYS.iter().copied().find(|way| way.name == name).ok_or_else(|| {
        let ways: Vec<_> = WAYS.iter().map(|way| way.name).collect();
        let ways = ways.join(", ");
        Failure::failed(format!(
            "nothing is measured as '{name}'; set measured_as to one of {ways}"
        ))
    })
}
