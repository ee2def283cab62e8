//! The trait by which the lab knows a suite. A suite is a folder and a line.

use std::collections::BTreeSet;

pub use crate::capability::{Capability, State};

use crate::factor::Factor;
use crate::journal::Run;
use crate::method::AnyMethod;
use crate::metric::Metric;
pub use crate::option::SuiteOption;
use crate::terminal::one_line;

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

    /// The ways of measuring that it has.
    fn methods(&self) -> &'static [&'static dyn AnyMethod];

    /// What a user may allow or set for it by name, beyond the options of the lab.
    fn options(&self) -> &'static [SuiteOption] {
        &[]
    }

    /// What the suite needs beyond what `machine` knows of, present or absent.
    fn capabilities(&self) -> Vec<Capability> {
        Vec::new()
    }

    /// Where figures of one run cannot all be right, such as a part that is larger than its whole;
    /// one line each.
    fn inconsistencies(&self, run: &Run) -> Vec<String> {
        let _ = run;
        Vec::new()
    }
}

/// Finds a suite by name.
pub fn find<'a>(suites: &[&'a dyn Suite], name: &str) -> Option<&'a dyn Suite> {
    suites.iter().copied().find(|suite| suite.name() == name)
}

/// Finds a method of a suite by its name.
///
/// # Errors
/// One line that names the suite's methods.
pub fn method(suite: &dyn Suite, name: &str) -> Result<&'static dyn AnyMethod, String> {
    suite.methods().iter().copied().find(|method| method.name() == name).ok_or_else(|| {
        let known: Vec<_> = suite.methods().iter().map(|method| method.name()).collect();
        let (name, known) = (one_line(name), known.join(", "));
        format!("unknown method '{name}' of suite '{}'; expected one of {known}", suite.name())
    })
}

/// Finds a method by the names of its suite and its own.
///
/// # Errors
/// One line if there is no such suite or method.
pub fn find_method(
    suites: &[&dyn Suite],
    suite: &str,
    name: &str,
) -> Result<&'static dyn AnyMethod, String> {
    let suite = find(suites, suite).ok_or_else(|| format!("unknown suite '{suite}'"))?;
    method(suite, name)
}

/// The factors of all methods of a suite, each name once.
pub fn factors(suite: &dyn Suite) -> Vec<Factor> {
    let all = suite.methods().iter().flat_map(|method| method.factors());
    first_of_each_name(all, |factor| factor.name)
}

/// The metrics of all methods of a suite, each name once.
pub fn metrics(suite: &dyn Suite) -> Vec<Metric> {
    let all = suite.methods().iter().flat_map(|method| method.metrics());
    first_of_each_name(all, |metric| metric.name)
}

fn first_of_each_name<'a, T: Copy + 'a>(
    all: impl Iterator<Item = &'a T>,
    name: fn(&T) -> &'static str,
) -> Vec<T> {
    let mut seen = BTreeSet::new();
    all.filter(|item| seen.insert(name(item))).copied().collect()
}
