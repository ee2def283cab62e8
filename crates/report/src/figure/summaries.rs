//! Summaries that figures share.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use lab::journal::Run;
use lab::summary::{Summary, SummaryError, Unit, summarise};

type SharedSummary = Result<Rc<Summary>, SummaryError>;
/// Experiment, metric and unit.
type Key = (String, String, Option<String>);

/// Summaries of the experiments of a run, each made once: several figures show one experiment.
pub struct Summaries<'a> {
    run: &'a Run,
    made: RefCell<BTreeMap<Key, SharedSummary>>,
}

impl<'a> Summaries<'a> {
    /// Creates the summaries of a run, which are made when they are needed.
    pub fn new(run: &'a Run) -> Self {
        Self { run, made: RefCell::default() }
    }

    /// Returns the run.
    pub fn run(&self) -> &'a Run {
        self.run
    }

    /// Summarises an experiment by `metric`, or by the experiment's default metric.
    ///
    /// # Errors
    /// Returns an error if the run has no samples of the experiment or no such metric.
    pub fn of(&self, experiment: &str, metric: Option<&str>) -> SharedSummary {
        self.in_unit(experiment, metric, None)
    }

    /// Summarises an experiment as [`Self::of`], in ticks or cycles if `unit` is one.
    ///
    /// # Errors
    /// As [`Self::of`], or if the metric is not a time that can be converted.
    pub fn in_unit(
        &self,
        experiment: &str,
        metric: Option<&str>,
        unit: Option<&str>,
    ) -> SharedSummary {
        let default = self.run.record.experiments.get(experiment).map(|one| one.metric.as_str());
        let metric = metric.or(default).unwrap_or_default();
        let key = (experiment.to_owned(), metric.to_owned(), unit.map(str::to_owned));
        let own = self.run.record.metric(experiment, metric).map_or("", |it| it.unit.as_str());
        let unit = unit.map_or(Unit::Own, |unit| Unit::of(unit, own));
        let summarise = || summarise(self.run, experiment, metric, unit).map(Rc::new);
        self.made.borrow_mut().entry(key).or_insert_with(summarise).clone()
    }
}
