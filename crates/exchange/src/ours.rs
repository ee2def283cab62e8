//! Our values: estimates of a run's points, by experiment and metric.

use std::collections::BTreeMap;
use std::rc::Rc;

use lab::journal::Run;
use lab::point::Point;
use lab::summary::{Row, Summary, Unit, summarise};

/// Summaries of a run, each computed once.
pub(crate) struct OurValues<'a> {
    pub(crate) run: &'a Run,
    summaries: BTreeMap<(String, String), Option<Rc<Summary>>>,
}

/// The row of a point, or why there is none.
pub(crate) enum Found {
    Row(Box<Row>),
    /// One line.
    Missing(String),
}

impl<'a> OurValues<'a> {
    pub(crate) fn new(run: &'a Run) -> Self {
        Self { run, summaries: BTreeMap::new() }
    }

    /// Returns the summary of a metric; `None` if the run has no samples of the experiment.
    pub(crate) fn summary(&mut self, experiment: &str, metric: &str) -> Option<Rc<Summary>> {
        let key = (experiment.to_owned(), metric.to_owned());
        let run = self.run;
        let summarised = || summarise(run, experiment, metric, Unit::Own).ok().map(Rc::new);
        self.summaries.entry(key).or_insert_with(summarised).clone()
    }

    /// Returns the row of the point with these levels; factors that are not named are at the experiment's baseline.
    pub(crate) fn find(
        &mut self,
        experiment: &str,
        metric: &str,
        levels: &BTreeMap<String, String>,
    ) -> Found {
        let Some(summary) = self.summary(experiment, metric) else {
            return Found::Missing(format!("not in this run: tollgate run {experiment}"));
        };
        let declared = self.run.record.experiments.get(experiment);
        let wanted = |factor: &str| {
            let named = levels.get(factor).map(String::as_str);
            let of = |point: &'_ Point| point.get(factor).map(|level| level.as_str().to_owned());
            let fixed = || declared.and_then(|one| of(&one.baseline).or_else(|| of(&one.defaults)));
            named.map(str::to_owned).or_else(fixed)
        };
        let is_wanted = |row: &&Row| {
            let has_factors = levels.keys().all(|factor| row.point.get(factor).is_some());
            let mut all = row.point.levels();
            has_factors
                && all.all(|(factor, level)| {
                    wanted(factor).is_none_or(|wanted| wanted == level.as_str())
                })
        };
        match summary.rows.iter().filter(is_wanted).collect::<Vec<_>>()[..] {
            [row] if row.estimate.is_some() => Found::Row(Box::new(row.clone())),
            [row] => Found::Missing(why_missing(row)),
            [] => Found::Missing(format!("{experiment} has no such point in this run")),
            [..] => Found::Missing(format!("several points of {experiment}")),
        }
    }
}

/// Returns why a row has no value.
pub(crate) fn why_missing(row: &Row) -> String {
    let failure = row.errors.iter().next();
    let failure = failure.map(|(kind, failure)| format!("{}: {}", kind.name(), failure.why));
    failure.unwrap_or_else(|| match row.void_rounds {
        0 => "no value of this metric".into(),
        _ => "void in every round".into(),
    })
}
