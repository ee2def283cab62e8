//! Our points for results of other programs, as data.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use lab::data::{DataError, read_toml};
use serde::Deserialize;

use crate::source::Format;

const FILE: &str = "exchange/counterparts.toml";
static BUILT_IN: LazyLock<Result<Counterparts, DataError>> =
    LazyLock::new(|| read_toml(FILE, include_str!("../counterparts.toml")));

/// The data.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Counterparts {
    method: Vec<Method>,
    escape: Vec<EscapeExperiment>,
    operations: Vec<Operations>,
    counterpart: Vec<DeclaredCounterpart>,
    apart: Vec<Apart>,
}

/// Method by which a program measures.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Method {
    format: String,
    says: String,
}

/// Experiment of ESCAPE's `memcpy_test`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct EscapeExperiment {
    description: String,
    levels: BTreeMap<String, String>,
}

/// Operations that a benchmark of perf executes by default.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Operations {
    benchmark: String,
    count: u64,
}

/// Our points for a result.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeclaredCounterpart {
    format: String,
    result: String,
    pub(crate) experiment: String,
    pub(crate) metric: String,
    pub(crate) point: BTreeMap<String, String>,
    pub(crate) remark: Option<String>,
}

/// Result without a counterpart.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Apart {
    format: String,
    result: String,
    because: String,
}

impl Counterparts {
    /// Returns the built-in data.
    ///
    /// # Errors
    /// Returns the first fault with its line.
    pub(crate) fn built_in() -> Result<&'static Self, DataError> {
        BUILT_IN.as_ref().map_err(Clone::clone)
    }

    /// Returns what a program does; empty if nothing is known.
    pub(crate) fn method(&self, format: Format) -> &str {
        let method = self.method.iter().find(|one| one.format == format.name());
        method.map_or("", |method| method.says.as_str())
    }

    /// Returns the levels of an experiment of `memcpy_test`.
    pub(crate) fn escape(&self, description: &str) -> Option<&BTreeMap<String, String>> {
        let known = self.escape.iter().find(|one| one.description == description);
        known.map(|one| &one.levels)
    }

    /// Returns the descriptions of all experiments of `memcpy_test`.
    pub(crate) fn escape_descriptions(&self) -> Vec<&str> {
        self.escape.iter().map(|one| one.description.as_str()).collect()
    }

    /// Returns the number of operations that a benchmark of perf executes by default.
    pub(crate) fn operations(&self, benchmark: &str) -> Option<u64> {
        let known = self.operations.iter().find(|one| one.benchmark == benchmark);
        known.map(|one| one.count)
    }

    /// Returns our points for a result.
    pub(crate) fn of(&self, format: Format, result: &str) -> Vec<&DeclaredCounterpart> {
        let is = |one: &&DeclaredCounterpart| one.format == format.name() && one.result == result;
        self.counterpart.iter().filter(is).collect()
    }

    /// Returns why a result has no counterpart, if it is known.
    pub(crate) fn apart(&self, format: Format, result: &str) -> Option<&str> {
        let is = |one: &&Apart| one.format == format.name() && one.result == result;
        self.apart.iter().find(is).map(|one| one.because.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_data_are_complete() {
        let data = Counterparts::built_in().unwrap();
        let formats = [Format::Escape, Format::Mbw, Format::PerfBench];
        assert!(formats.iter().all(|format| !data.method(*format).is_empty()));
        let known: Vec<_> = formats.iter().map(|format| format.name()).collect();
        let named = data.counterpart.iter().map(|one| &one.format);
        let named = named.chain(data.apart.iter().map(|one| &one.format));
        assert!(
            named
                .chain(data.method.iter().map(|one| &one.format))
                .all(|it| known.contains(&it.as_str()))
        );
        assert_eq!(data.of(Format::Mbw, "MEMCPY").len(), 2);
        assert!(data.apart(Format::Mbw, "MCBLOCK").unwrap().contains("one block"));
        assert_eq!(data.escape_descriptions().len(), 6);
        // A result is comparable or not.
        for one in &data.apart {
            assert!(data.counterpart.iter().all(|it| it.result != one.result), "{}", one.result);
        }
    }
}
