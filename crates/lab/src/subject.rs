//! The subject of a claim or figure: its experiment, and the method that measures it.

use crate::experiment::{Experiment, suite_name};
use crate::factor::{self, Factor};
use crate::method::AnyMethod;
use crate::metric::Metric;
use crate::point::{Filter, Level};
use crate::suite::{self, Suite};

/// An experiment with its method, against which names and levels are checked. All errors are one line.
pub(crate) struct Subject<'a> {
    pub(crate) experiment: &'a Experiment,
    method: &'static dyn AnyMethod,
}

impl<'a> Subject<'a> {
    /// Finds the experiment with this ID.
    ///
    /// # Errors
    /// Returns the known experiments of the suite, or of all suites if the suite is unknown too.
    pub(crate) fn find(
        suites: &[&Suite],
        experiments: &'a [Experiment],
        id: &str,
    ) -> Result<Self, String> {
        let experiment = experiments.iter().find(|one| one.id() == id).ok_or_else(|| {
            let all = || experiments.iter().map(Experiment::id);
            let mut known: Vec<_> = all().filter(|it| suite_name(it) == suite_name(id)).collect();
            if known.is_empty() {
                known = all().collect();
            }
            format!("unknown experiment '{id}'; expected one of {}", known.join(", "))
        })?;
        let method = suite::find_method(suites, &experiment.suite, &experiment.method)?;
        Ok(Self { experiment, method })
    }

    /// Returns a metric, by default the experiment's.
    ///
    /// # Errors
    /// Returns the metrics of the method.
    pub(crate) fn metric(&self, name: Option<&str>) -> Result<&'static Metric, String> {
        self.method.metric(name.unwrap_or(&self.experiment.metric))
    }

    /// Returns a factor of the method; `key` names it in the error.
    ///
    /// # Errors
    /// Returns the factors of the method.
    pub(crate) fn factor(&self, key: &str, name: &str) -> Result<&'static Factor, String> {
        factor::find(self.method.factors(), name).map_err(|why| format!("{key}: {why}"))
    }

    /// Returns a filter with its levels in canonical spelling; `key` names it in errors.
    ///
    /// # Errors
    /// Returns the factors of the method, or the levels of a factor.
    pub(crate) fn filter(&self, key: &str, filter: &Filter) -> Result<Filter, String> {
        filter.canonical(self.method.factors()).map_err(|why| format!("{key}: {why}"))
    }

    /// Returns levels of a factor in canonical spelling; `key` names them in errors.
    ///
    /// # Errors
    /// Returns the factors of the method, or the levels of the factor.
    pub(crate) fn levels(
        &self,
        key: &str,
        factor: &str,
        levels: &[Level],
    ) -> Result<Vec<Level>, String> {
        let levels = factor::find(self.method.factors(), factor)
            .and_then(|factor| levels.iter().map(|level| factor.levels(level.as_str())).collect());
        levels.map(|levels: Vec<_>| levels.concat()).map_err(|why| format!("{key}: {why}"))
    }
}
