//! Selection of the rows of a summary that a figure shows.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use lab::experiment::Profile;
use lab::figure::{Figure, FigureKind, Y};
use lab::journal::Run;
use lab::point::{Level, Point};
use lab::summary::{Row, Summary};

use super::published::absolute;
use super::{FigureError, Summaries};

/// Summarises an experiment by `metric`, or by the experiment's default metric, in the unit of a figure.
pub(super) fn summary(
    figure: &Figure,
    summaries: &Summaries,
    experiment: &str,
    metric: Option<&str>,
) -> Result<Rc<Summary>, FigureError> {
    let summary = summaries.in_unit(experiment, metric, figure.unit.as_deref());
    summary.map_err(|why| FigureError::Summary { figure: figure.id.clone(), why })
}

/// Rows of one experiment that a figure shows.
pub(super) struct Selection<'a> {
    /// Levels that all rows share, except those that are the method's default.
    pub(super) fixed: Point,
    /// Rows by the levels of series and x, each empty if the figure has no such factor.
    pub(super) rows: BTreeMap<(Level, Level), &'a Row>,
    /// All levels of series and x in the order of the rows.
    order: Vec<Level>,
    /// The factors of series and x, each empty if the figure has none.
    factors: [String; 2],
}

impl<'a> Selection<'a> {
    /// Selects rows by the figure's `where`; x and series take all their levels, every other factor
    /// its level in the baseline.
    ///
    /// # Errors
    /// Returns an error if the figure names an unknown factor, if two rows have the same levels of
    /// series and x, or if no row has a value and nothing published is drawn.
    pub(super) fn new(
        figure: &Figure,
        run: &Run,
        summary: &'a Summary,
    ) -> Result<Self, FigureError> {
        let declared = run.record.experiments.get(&figure.experiment);
        let baseline = declared.map(|e| e.baseline.clone()).unwrap_or_default();
        let defaults = declared.map(|e| e.defaults.clone()).unwrap_or_default();
        check_factors(figure, &baseline)?;
        let varies = |factor: &str| figure.x == factor || figure.series.as_deref() == Some(factor);
        let is_named = |factor: &str| varies(factor) || figure.filter.0.contains_key(factor);
        let at_baseline = |point: &Point| {
            baseline.levels().all(|(name, level)| is_named(name) || point.get(name) == Some(level))
        };
        let is_shown = |row: &&Row| figure.filter.matches(&row.point) && at_baseline(&row.point);
        let rows: Vec<&Row> = summary.rows.iter().filter(is_shown).collect();
        let others = levels(&rows, |factor| !varies(factor));
        let mut selection = Self {
            fixed: Point::default(),
            rows: BTreeMap::new(),
            order: Vec::new(),
            factors: [figure.series.clone().unwrap_or_default(), figure.x.clone()],
        };
        for (factor, levels) in &others {
            if let [level] = levels.iter().collect::<Vec<_>>().as_slice()
                && defaults.get(factor) != Some(level)
            {
                selection.fixed = selection.fixed.with(factor, Level::clone(level));
            }
        }
        for row in rows {
            let no_level = || Level::from("");
            let level = |factor: &str| row.point.get(factor).cloned();
            let series = figure.series.as_deref().and_then(level);
            let key = (series.unwrap_or_else(no_level), level(&figure.x).unwrap_or_else(no_level));
            for level in [&key.0, &key.1] {
                if !selection.order.contains(level) {
                    selection.order.push(level.clone());
                }
            }
            if selection.rows.insert(key, row).is_some() {
                return Err(several_levels(figure, &others));
            }
        }
        if selection.rows.values().any(|row| row.estimate.is_some()) || draws_published(figure) {
            return Ok(selection);
        }
        let baseline = baseline.without_levels(&defaults);
        Err(selection.no_value(figure, run.record.profile, &baseline))
    }

    /// Returns the error of a selection without values, with the levels that were searched for.
    fn no_value(&self, figure: &Figure, profile: Profile, baseline: &Point) -> FigureError {
        let is_at_baseline = |factor: &str| {
            factor != figure.x
                && figure.series.as_deref() != Some(factor)
                && !figure.filter.0.contains_key(factor)
        };
        let at = baseline.levels().filter(|(factor, _)| is_at_baseline(factor));
        let mut at: Vec<String> = at.map(|(name, level)| format!("{name}={level}")).collect();
        for (name, levels) in &figure.filter.0 {
            let levels: Vec<_> = levels.levels().iter().map(Level::as_str).collect();
            at.push(format!("{name}={}", levels.join(",")));
        }
        let why = self.missing_reason(figure, profile);
        FigureError::Nothing { figure: figure.id.clone(), at: at.join(" "), why }
    }

    /// Returns why a selection has no value; `None` if it has one.
    pub(super) fn absence(&self, figure: &Figure, run: &Run) -> Option<String> {
        let has_value = self.rows.values().any(|row| row.estimate.is_some());
        (!has_value).then(|| self.missing_reason(figure, run.record.profile))
    }

    fn missing_reason(&self, figure: &Figure, profile: Profile) -> String {
        if self.rows.values().any(|row| row.errors.is_empty() && row.void_rounds == 0) {
            return "the samples have no such metric; see 'tollgate doctor'".into();
        }
        let failed = self.rows.values().flat_map(|row| &row.errors).next();
        failed.map_or_else(
            || not_in_run(figure, profile),
            |(kind, fault)| match &fault.remedy {
                Some(remedy) => format!("{}: {}; {remedy}", kind.name(), fault.why),
                None => format!("{}: {}", kind.name(), fault.why),
            },
        )
    }

    /// Names levels of series and x with their factors, e.g. `function=glibc length=4 KiB`; empty ones are left out.
    pub(super) fn named(&self, series: &str, x: &str) -> String {
        let levels = self.factors.iter().zip([series, x]);
        let named = levels.filter(|(_, level)| !level.is_empty());
        let texts: Vec<_> = named.map(|(factor, level)| format!("{factor}={level}")).collect();
        texts.join(" ")
    }

    /// Returns the levels of x or series that have rows: numbers by size, then names in row order.
    pub(super) fn levels(&self, of: impl Fn(&(Level, Level)) -> &Level) -> Vec<Level> {
        let present: BTreeSet<&Level> = self.rows.keys().map(of).collect();
        let mut levels: Vec<Level> =
            self.order.iter().filter(|level| present.contains(level)).cloned().collect();
        crate::table::sort_levels(&mut levels);
        levels
    }
}

/// Returns whether a figure has published values that are drawn without any of ours.
fn draws_published(figure: &Figure) -> bool {
    figure.kind == FigureKind::Curves && figure.y == Y::Median && absolute(figure).next().is_some()
}

/// States that no point of a figure is in a run, and which run may have one.
fn not_in_run(figure: &Figure, profile: Profile) -> String {
    let of_run = "no such point was measured";
    let larger = match profile {
        Profile::Quick => Profile::Standard,
        Profile::Standard => Profile::Full,
        Profile::Full => return format!("{of_run}; 'tollgate show' lists the measured points"),
    };
    let (experiment, larger) = (&figure.experiment, larger.name());
    format!("{of_run}; more points: tollgate run {experiment} --profile {larger}")
}

fn check_factors(figure: &Figure, baseline: &Point) -> Result<(), FigureError> {
    let x = Some(&figure.x).filter(|x| !x.is_empty());
    let mut named = x.into_iter().chain(&figure.series).chain(figure.filter.0.keys());
    match named.find(|factor| baseline.get(factor).is_none()) {
        None => Ok(()),
        Some(factor) => {
            let known = baseline.factors().collect::<Vec<_>>().join(", ");
            let experiment = &figure.experiment;
            Err(FigureError::declaration(
                figure,
                format!("{experiment} has no factor '{factor}'; expected one of {known}"),
            ))
        }
    }
}

/// Returns the levels in `rows` of each factor that `is_wanted` accepts.
fn levels<'a>(
    rows: &[&'a Row],
    is_wanted: impl Fn(&str) -> bool,
) -> BTreeMap<&'a str, BTreeSet<&'a Level>> {
    let mut levels: BTreeMap<&str, BTreeSet<&Level>> = BTreeMap::new();
    for (factor, level) in rows.iter().flat_map(|row| row.point.levels()) {
        if is_wanted(factor) {
            levels.entry(factor).or_default().insert(level);
        }
    }
    levels
}

fn several_levels(figure: &Figure, levels: &BTreeMap<&str, BTreeSet<&Level>>) -> FigureError {
    let text = |(factor, levels): (&&str, &BTreeSet<&Level>)| {
        let levels: Vec<_> = levels.iter().map(|level| level.as_str()).collect();
        format!("{factor} ({})", levels.join(", "))
    };
    let factors = levels.iter().filter(|(_, levels)| levels.len() > 1).map(text);
    let factors = factors.collect::<Vec<_>>().join(" and ");
    FigureError::declaration(
        figure,
        format!("several levels of {factors}; fix them with 'where' or choose one as series"),
    )
}
