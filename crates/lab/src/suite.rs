//! Suites: what the lab requires of each boundary that it measures.

use std::collections::BTreeSet;

pub use crate::capability::{Capability, State};
pub use crate::terminal::UsageError;

use crate::factor::Factor;
use crate::journal::Run;
use crate::method::AnyMethod;
use crate::metric::Metric;
use crate::terminal::one_line;

/// The TOML files of a suite, embedded in the program.
#[derive(Debug, Clone, Copy)]
pub struct Data {
    /// `experiments.toml`
    pub experiments: &'static str,
    /// `claims.toml`: published claims.
    pub claims: &'static str,
    /// `promises.toml`: claims of tollgate.
    pub promises: &'static str,
    /// `figures.toml`
    pub figures: &'static str,
}

/// The purpose of a suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Measures a boundary.
    Boundary,
    /// Tests the instrument: runs only if it is named.
    SelfTest,
}

/// An option of a suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SuiteOption {
    /// The key in the map of options: `allow-physical` for `--allow physical`, `dax-device` for
    /// `--set dax-device=VALUE`.
    pub name: &'static str,
    /// What it enables or sets, in one line.
    pub enables: &'static str,
    /// The type of the value of `--set`; unused by `--allow`.
    pub value: OptionValue,
}

/// The type of the value of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionValue {
    /// Any text that is not empty, e.g. a path.
    Text,
    /// An unsigned integer.
    Number,
    /// A physical address; see [`option::address`](crate::option::address).
    Address,
}

/// One boundary: its methods, options and data.
pub trait Suite: Sync {
    /// Returns the name on the command line, e.g. `copy`.
    fn name(&self) -> &'static str;

    /// Returns a one-line description.
    fn about(&self) -> &'static str;

    /// Returns the purpose.
    fn purpose(&self) -> Purpose {
        Purpose::Boundary
    }

    /// Returns the embedded TOML files.
    fn data(&self) -> Data;

    /// Returns the methods.
    fn methods(&self) -> &'static [&'static dyn AnyMethod];

    /// Returns the options that a user may enable or set, in addition to those of the lab.
    fn options(&self) -> &'static [SuiteOption] {
        &[]
    }

    /// Detects what the suite needs in addition to the capabilities of `machine`.
    fn capabilities(&self) -> Vec<Capability> {
        Vec::new()
    }

    /// Returns contradictions between the results of a run, e.g. a part that is larger than its whole; one line each.
    fn inconsistencies(&self, run: &Run) -> Vec<String> {
        let _ = run;
        Vec::new()
    }
}

/// Finds a suite by its name.
pub fn find<'a>(suites: &[&'a dyn Suite], name: &str) -> Option<&'a dyn Suite> {
    suites.iter().copied().find(|suite| suite.name() == name)
}

/// Finds a method of a suite by its name.
///
/// # Errors
/// Returns one line with the suite's methods if there is no such method.
pub fn method(suite: &dyn Suite, name: &str) -> Result<&'static dyn AnyMethod, String> {
    suite.methods().iter().copied().find(|method| method.name() == name).ok_or_else(|| {
        let known: Vec<_> = suite.methods().iter().map(|method| method.name()).collect();
        let (name, known) = (one_line(name), known.join(", "));
        format!("unknown method '{name}' of suite '{}'; expected one of {known}", suite.name())
    })
}

/// Finds a method by its name and the name of its suite.
///
/// # Errors
/// Returns one line if there is no such suite or method.
pub fn find_method(
    suites: &[&dyn Suite],
    suite: &str,
    name: &str,
) -> Result<&'static dyn AnyMethod, String> {
    let suite = find(suites, suite).ok_or_else(|| format!("unknown suite '{suite}'"))?;
    method(suite, name)
}

/// Returns the factors of all methods of a suite, without duplicates.
pub fn factors(suite: &dyn Suite) -> Vec<Factor> {
    let all = suite.methods().iter().flat_map(|method| method.factors());
    first_of_each_name(all, |factor| factor.name)
}

/// Returns the metrics of all methods of a suite, without duplicates.
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
