//! Which rows of a summary a figure shows.

use std::collections::{BTreeMap, BTreeSet};

use lab::journal::Run;
use lab::point::{Level, Point};
use lab::summary::{Row, Summary, Unit, summarise};

use super::FigureError;
use lab::figure::Figure;

/// The summary of an experiment by the metric that a figure or line names.
pub(super) fn summary(
    figure: &Figure,
    run: &Run,
    experiment: &str,
    metric: Option<&str>,
) -> Result<Summary, FigureError> {
    let own = run.record.experiments.get(experiment).map(|e| e.metric.as_str());
    let metric = metric.or(own).unwrap_or_default();
    summarise(run, experiment, metric, Unit::Own)
        .map_err(|why| FigureError::Summary { figure: figure.id.clone(), why })
}

/// What a figure shows of its experiment.
pub(super) struct Selection<'a> {
    /// What stands still in every point shown, where it is one level.
    pub(super) fixed: Point,
    /// The rows by series and x, both empty where the figure has none.
    pub(super) rows: BTreeMap<(Level, Level), &'a Row>,
    /// Every level in the order of the rows.
    pub(super) order: Vec<Level>,
}

impl<'a> Selection<'a> {
    /// The rows that the figure names: `where` as given, x and series over all their levels, every
    /// other factor at the experiment's baseline.
    pub(super) fn of(
        figure: &Figure,
        run: &Run,
        summary: &'a Summary,
    ) -> Result<Self, FigureError> {
        let declared = run.record.experiments.get(&figure.experiment);
        let baseline = declared.map(|e| e.baseline.clone()).unwrap_or_default();
        let defaults = declared.map(|e| e.defaults.clone()).unwrap_or_default();
        check_factors(figure, &baseline)?;
        let varies = |factor: &str| figure.x == factor || figure.series.as_deref() == Some(factor);
        let named = |factor: &str| varies(factor) || figure.filter.0.contains_key(factor);
        let at_baseline = |point: &Point| {
            baseline.0.iter().all(|(name, level)| named(name) || point.get(name) == Some(level))
        };
        let shown = |row: &&Row| figure.filter.matches(&row.point) && at_baseline(&row.point);
        let rows: Vec<&Row> = summary.rows.iter().filter(shown).collect();
        let still = levels(&rows, |factor| !varies(factor));
        let mut selection =
            Self { fixed: Point::default(), rows: BTreeMap::new(), order: Vec::new() };
        for (factor, levels) in &still {
            if let [level] = levels.iter().collect::<Vec<_>>().as_slice()
                && defaults.get(factor) != Some(level)
            {
                selection.fixed = selection.fixed.with(factor, Level::clone(level));
            }
        }
        for row in rows {
            let level = |factor: &str| row.point.get(factor).cloned();
            let series = figure.series.as_deref().and_then(level);
            let key = (series.unwrap_or_else(none), level(&figure.x).unwrap_or_else(none));
            for level in [&key.0, &key.1] {
                if !selection.order.contains(level) {
                    selection.order.push(level.clone());
                }
            }
            if selection.rows.insert(key, row).is_some() {
                return Err(several(figure, &still));
            }
        }
        selection.some(figure, &baseline.without_levels(&defaults))
    }

    /// The selection, if any row of it has a value.
    fn some(self, figure: &Figure, baseline: &Point) -> Result<Self, FigureError> {
        if self.rows.values().any(|row| row.estimate.is_some()) {
            return Ok(self);
        }
        let stands = |factor: &&String| {
            **factor != figure.x
                && figure.series.as_ref() != Some(*factor)
                && !figure.filter.0.contains_key(*factor)
        };
        let at = baseline.0.iter().filter(|(factor, _)| stands(factor));
        let mut at: Vec<String> = at.map(|(name, level)| format!("{name}={level}")).collect();
        for (name, levels) in &figure.filter.0 {
            let levels: Vec<_> = levels.levels().iter().map(Level::as_str).collect();
            at.push(format!("{name}={}", levels.join(",")));
        }
        let why = self.why_nothing();
        Err(FigureError::Nothing { figure: figure.id.clone(), at: at.join(" "), why })
    }

    /// Why no row has a value.
    fn why_nothing(&self) -> String {
        if self.rows.values().any(|row| row.errors.is_empty() && row.void_rounds == 0) {
            return "what was measured has no such metric here; see 'tollgate doctor'".into();
        }
        let failed = self.rows.values().flat_map(|row| &row.errors).next();
        failed.map_or_else(
            || "no such point was measured; see 'tollgate show' for those that were".into(),
            |(kind, fault)| match &fault.remedy {
                Some(remedy) => format!("{}: {}; {remedy}", kind.name(), fault.why),
                None => format!("{}: {}", kind.name(), fault.why),
            },
        )
    }

    /// The levels of x or of the series that have rows: numbers by size, then names in order.
    pub(super) fn levels(&self, of: impl Fn(&(Level, Level)) -> &Level) -> Vec<Level> {
        let there: BTreeSet<&Level> = self.rows.keys().map(of).collect();
        let mut levels: Vec<Level> =
            self.order.iter().filter(|level| there.contains(level)).cloned().collect();
        crate::table::sort_levels(&mut levels);
        levels
    }
}

/// What stands for a factor that a figure does not have.
pub(super) fn none() -> Level {
    Level::from("")
}

fn check_factors(figure: &Figure, baseline: &Point) -> Result<(), FigureError> {
    let x = Some(&figure.x).filter(|x| !x.is_empty());
    let mut named = x.into_iter().chain(&figure.series).chain(figure.filter.0.keys());
    match named.find(|factor| baseline.get(factor).is_none()) {
        None => Ok(()),
        Some(factor) => Err(FigureError::NoFactor {
            figure: figure.id.clone(),
            factor: factor.clone(),
            experiment: figure.experiment.clone(),
            known: baseline.0.keys().cloned().collect::<Vec<_>>().join(", "),
        }),
    }
}

/// The levels of some factors that rows have.
fn levels<'a>(
    rows: &[&'a Row],
    wanted: impl Fn(&str) -> bool,
) -> BTreeMap<&'a str, BTreeSet<&'a Level>> {
    let mut levels: BTreeMap<&str, BTreeSet<&Level>> = BTreeMap::new();
    for (factor, level) in rows.iter().flat_map(|row| row.point.0.iter()) {
        if wanted(factor) {
            levels.entry(factor).or_default().insert(level);
        }
    }
    levels
}

fn several(figure: &Figure, still: &BTreeMap<&str, BTreeSet<&Level>>) -> FigureError {
    let text = |(factor, levels): (&&str, &BTreeSet<&Level>)| {
        let levels: Vec<_> = levels.iter().map(|level| level.as_str()).collect();
        format!("{factor} ({})", levels.join(", "))
    };
    let factors = still.iter().filter(|(_, levels)| levels.len() > 1).map(text);
    FigureError::Several {
        figure: figure.id.clone(),
        factors: factors.collect::<Vec<_>>().join(" and "),
    }
}
