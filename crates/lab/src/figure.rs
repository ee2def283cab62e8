//! Figures as declared in TOML.

mod published;

use std::collections::BTreeMap;

use serde::Deserialize;

pub use published::PublishedValue;

use crate::claim::Claim;
use crate::data::is_plain_name;
use crate::experiment::Experiment;
use crate::metric::{Metric, MetricLabel, MetricRecord};
use crate::point::{Filter, Level};
use crate::subject::Subject;
use crate::suite::Suite;
use crate::summary::Unit;

/// A declared figure.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// ID on the command line and base name of the files.
    pub id: String,
    /// Title, drawn at the top.
    pub title: String,
    /// ID of the experiment: `copy/throughput`.
    pub experiment: String,
    /// Kind of drawing.
    #[serde(default)]
    pub kind: FigureKind,
    /// Metric; `None` for the experiment's.
    pub metric: Option<String>,
    /// Unit of its values: `ticks` or `cycles` for times; `None` for the metric's.
    pub unit: Option<String>,
    /// Further metrics of the same unit, each with curves next to those of `metric`.
    #[serde(default)]
    pub more_metrics: Vec<String>,
    /// Factor along the x axis, or of a grid's columns. Empty for a distribution, whose x axis is
    /// the metric, and for a grid with a single column.
    #[serde(default)]
    pub x: String,
    /// Factor with one curve per level, or of a grid's rows.
    pub series: Option<String>,
    /// Points to show. Factors named neither here nor as `x` or `series` are at the experiment's
    /// baseline.
    #[serde(default, rename = "where")]
    pub filter: Filter,
    /// Scale of the x axis; `None` to derive it from the levels.
    pub x_scale: Option<Axis>,
    /// Scale of the y axis, or of a grid's shades; `None` for linear.
    pub y_scale: Option<Axis>,
    /// Statistic of the metric.
    #[serde(default)]
    pub y: Y,
    /// Horizontal reference lines.
    #[serde(default)]
    pub lines: Vec<ReferenceLine>,
    /// Groups of a grid's rows: the first row of each shows values, the others ratios to it.
    #[serde(default)]
    pub groups: Vec<Vec<Level>>,
    /// Further panels of a grid, with the same rows.
    #[serde(default)]
    pub side_panels: Vec<SidePanel>,
    /// Unit of the factor along x; empty if it has none. Known once the figure is resolved.
    #[serde(skip)]
    pub x_unit: &'static str,
    /// Labels of metrics, by experiment and metric. Known once the figure is resolved.
    #[serde(skip)]
    pub labels: BTreeMap<(String, String), MetricLabel>,
    /// Published values of its points; see [`Figure::add_published`].
    #[serde(skip)]
    pub published: Vec<PublishedValue>,
}

/// Kind of drawing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FigureKind {
    /// Marks over x, joined if x is numeric.
    #[default]
    Curves,
    /// A cell per pair of levels of two factors: a shaded number, or a mark for yes or no.
    Grid,
}

/// Scale of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Axis {
    /// Logarithmic with ticks at powers of two.
    Log2,
    /// Logarithmic with ticks at powers of ten.
    Log10,
    /// Linear.
    Linear,
    /// One position per level, in order.
    Category,
}

/// Statistic of a metric that a figure shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Y {
    /// Median over rounds with its interval.
    #[default]
    Median,
    /// Complementary cumulative distribution within rounds, all rounds pooled: the share of values above x.
    Ccdf,
}

/// A horizontal line at a value of the run.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReferenceLine {
    /// Label in the legend.
    pub label: String,
    /// Experiment; `None` for the figure's.
    pub experiment: Option<String>,
    /// Metric; `None` for the figure's if the experiment is the figure's, else for the
    /// experiment's.
    pub metric: Option<String>,
    /// Points to choose from.
    #[serde(default, rename = "where")]
    pub filter: Filter,
    /// Which of their medians to draw.
    #[serde(default)]
    pub of: Extremum,
    /// Published values of these points, each drawn as a line.
    #[serde(skip)]
    pub published: Vec<PublishedValue>,
}

/// Choice among several medians.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Extremum {
    /// The largest.
    #[default]
    Largest,
    /// The smallest.
    Smallest,
}

/// A further panel of a grid: another metric or experiment with the same rows.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SidePanel {
    /// Experiment; `None` for the figure's.
    pub experiment: Option<String>,
    /// Metric; `None` for the experiment's.
    pub metric: Option<String>,
    /// Factor of the columns; empty for a single column.
    #[serde(default)]
    pub x: String,
    /// Points to show; the figure's filter on the row factor applies too.
    #[serde(default, rename = "where")]
    pub filter: Filter,
    /// Scale of the shades; `None` for linear.
    pub y_scale: Option<Axis>,
    /// Published values of its cells.
    #[serde(skip)]
    pub published: Vec<PublishedValue>,
}

impl Figure {
    /// Returns the figure of a command line: the medians of the experiment's metric over the factor
    /// `x`.
    pub fn adhoc(experiment: &str, x: &str) -> Self {
        Self {
            id: format!("{}-{x}", experiment.replace('/', "-")),
            title: experiment.into(),
            experiment: experiment.into(),
            kind: FigureKind::Curves,
            metric: None,
            unit: None,
            more_metrics: Vec::new(),
            x: x.into(),
            series: None,
            filter: Filter::default(),
            x_scale: None,
            y_scale: None,
            y: Y::Median,
            lines: Vec::new(),
            groups: Vec::new(),
            side_panels: Vec::new(),
            x_unit: "",
            labels: BTreeMap::new(),
            published: Vec::new(),
        }
    }

    /// Returns the label of a metric of its experiment.
    pub fn label(&self, metric: &str) -> MetricLabel {
        let known = self.labels.get(&(self.experiment.clone(), metric.to_owned()));
        known.cloned().unwrap_or_else(|| MetricLabel::of_name(metric))
    }

    /// Returns the label of an axis for all of its metrics, of which `metric` is the first: the statistic is stated if
    /// there is one.
    pub fn axis_label(&self, metric: &str) -> String {
        let labels = self.all_labels(metric);
        let mut texts: Vec<String> = Vec::new();
        for label in &labels {
            let text = if labels.len() > 1 { label.quantity.clone() } else { label.text() };
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        texts.join(", ")
    }

    /// Returns the name of the curve of a level of the series, which is empty without a series; `main` is the metric whose
    /// further ones it may have. If all are statistics of one quantity, the name has the statistic only.
    pub fn curve_name(&self, series: &str, metric: &str, main: &str) -> String {
        if self.more_metrics.is_empty() {
            return series.into();
        }
        let labels = self.all_labels(main);
        let label = self.label(metric);
        let is_one_quantity = labels.iter().all(|it| it.quantity == label.quantity);
        match label.statistic.filter(|_| is_one_quantity) {
            Some(statistic) => format!("{series} {statistic}").trim_start().into(),
            None if series.is_empty() => label.text(),
            None => format!("{series}, {}", label.text()),
        }
    }

    fn all_labels(&self, main: &str) -> Vec<MetricLabel> {
        let more = self.more_metrics.iter().map(String::as_str);
        std::iter::once(main).chain(more).map(|metric| self.label(metric)).collect()
    }

    /// Returns a side panel as a separate figure.
    #[must_use]
    pub fn side_panel(&self, panel: &SidePanel) -> Self {
        let mut filter = panel.filter.clone();
        let rows = self.filter.0.iter().filter(|(factor, _)| self.series.as_ref() == Some(*factor));
        filter.0.extend(rows.map(|(factor, levels)| (factor.clone(), levels.clone())));
        Self {
            experiment: panel.experiment.clone().unwrap_or_else(|| self.experiment.clone()),
            metric: panel.metric.clone(),
            more_metrics: Vec::new(),
            x: panel.x.clone(),
            filter,
            y_scale: panel.y_scale,
            groups: Vec::new(),
            side_panels: Vec::new(),
            unit: None,
            published: panel.published.clone(),
            ..self.clone()
        }
    }

    /// Returns the figure with its levels in canonical spelling. `experiments` are those of a profile that skips none.
    ///
    /// # Errors
    /// Returns one line for an unknown experiment, metric, factor or level.
    pub fn resolve(&self, suites: &[&Suite], experiments: &[Experiment]) -> Result<Self, String> {
        self.resolved(suites, experiments).map_err(|what| format!("figure '{}': {what}", self.id))
    }

    fn resolved(&self, suites: &[&Suite], experiments: &[Experiment]) -> Result<Self, String> {
        let subject_of = |experiment: Option<&String>| {
            Subject::find(suites, experiments, experiment.unwrap_or(&self.experiment))
        };
        let mut resolved = self.clone();
        resolved.resolve_panel(&subject_of(None)?)?;
        for line in &mut resolved.lines {
            let checked = subject_of(line.experiment.as_ref()).and_then(|subject| {
                subject.metric(line.metric.as_deref())?;
                subject.filter("where", &line.filter)
            });
            line.filter = checked.map_err(|why| format!("line '{}': {why}", line.label))?;
        }
        for panel in &mut resolved.side_panels {
            let checked = subject_of(panel.experiment.as_ref()).and_then(|subject| {
                let mut side = self.side_panel(panel);
                side.resolve_panel(&subject)?;
                Ok((subject.filter("where", &panel.filter)?, side.labels))
            });
            let (filter, labels) = checked.map_err(|why| format!("side_panels: {why}"))?;
            panel.filter = filter;
            resolved.labels.extend(labels);
        }
        Ok(resolved)
    }

    /// Checks the names of one panel and spells its levels canonically.
    fn resolve_panel(&mut self, subject: &Subject) -> Result<(), String> {
        let metric = subject.metric(self.metric.as_deref())?;
        if let Some(unit) = &self.unit {
            converted(unit, metric).map_err(|why| format!("unit: {why}"))?;
        }
        let experiment = self.experiment.clone();
        let key = |metric: &Metric| (experiment.clone(), metric.name.to_owned());
        self.labels.insert(key(metric), metric.label());
        for more in &self.more_metrics {
            let other = subject.metric(Some(more))?;
            self.labels.insert(key(other), other.label());
            if other.unit != metric.unit {
                let (name, unit) = (metric.name, metric.unit);
                return Err(format!(
                    "more_metrics: '{more}' is in {}, '{name}' in {unit}",
                    other.unit
                ));
            }
        }
        self.filter = subject.filter("where", &self.filter)?;
        if !self.x.is_empty() {
            self.x_unit = subject.factor("x", &self.x)?.unit;
        }
        let Some(rows) = &self.series else { return Ok(()) };
        subject.factor("series", rows)?;
        for group in &mut self.groups {
            *group = subject.levels("groups", rows, group)?;
        }
        Ok(())
    }

    /// Adds the values that claims state of its points, lines and side panels. It must be resolved, as the claims.
    ///
    /// # Errors
    /// Returns one line for an unknown experiment or metric.
    pub fn add_published(
        &mut self,
        claims: &[Claim],
        suites: &[&Suite],
        experiments: &[Experiment],
    ) -> Result<(), String> {
        let subject_of = |id: &str| Subject::find(suites, experiments, id);
        self.published = published::of_figure(self, claims, &subject_of(&self.experiment)?)?;
        for at in 0..self.side_panels.len() {
            let side = self.side_panel(&self.side_panels[at]);
            let subject = subject_of(&side.experiment)?;
            self.side_panels[at].published = published::of_figure(&side, claims, &subject)?;
        }
        for at in 0..self.lines.len() {
            let line = &self.lines[at];
            let experiment = line.experiment.as_ref().unwrap_or(&self.experiment);
            let of = published::of_line(line, claims, &subject_of(experiment)?)?;
            self.lines[at].published = of;
        }
        Ok(())
    }

    /// Checks what can be checked without the experiment.
    ///
    /// # Errors
    /// Returns the fault in one line.
    pub fn check(&self) -> Result<(), String> {
        self.checked().map_err(|what| format!("figure '{}': {what}", self.id))
    }

    fn checked(&self) -> Result<(), &'static str> {
        if !is_plain_name(&self.id) {
            return Err("the ID is a file name; use letters, digits and '-'");
        }
        if self.kind == FigureKind::Grid {
            return self.check_grid();
        }
        if !self.groups.is_empty() || !self.side_panels.is_empty() {
            return Err("'groups' and 'side_panels' require kind = \"grid\"");
        }
        if self.y == Y::Ccdf && !self.more_metrics.is_empty() {
            return Err("a ccdf takes no 'more_metrics'");
        }
        match (self.y, self.x.as_str()) {
            (Y::Median, "") => Err("'x' is missing; name a factor"),
            (Y::Ccdf, x) if !x.is_empty() => Err("a ccdf takes no 'x': its x axis is the metric"),
            _ if self.y_scale == Some(Axis::Category) => Err(CATEGORY),
            _ if self.series.as_ref() == Some(&self.x) => Err(SAME_FACTOR),
            _ => Ok(()),
        }
    }

    fn check_grid(&self) -> Result<(), &'static str> {
        let Some(rows) = &self.series else {
            return Err("a grid requires 'series', the factor of its rows");
        };
        let mut columns = std::iter::once(&self.x).chain(self.side_panels.iter().map(|it| &it.x));
        let mut scales =
            std::iter::once(self.y_scale).chain(self.side_panels.iter().map(|it| it.y_scale));
        if self.y == Y::Ccdf || self.x_scale.is_some() || !self.lines.is_empty() {
            return Err("a grid takes no 'y', 'x_scale' or 'lines'");
        }
        if !self.more_metrics.is_empty() {
            return Err("a grid takes no 'more_metrics'; use 'side_panels'");
        }
        if columns.any(|factor| factor == rows) {
            return Err(SAME_FACTOR);
        }
        if scales.any(|scale| scale == Some(Axis::Category)) {
            return Err(CATEGORY);
        }
        match self.groups.iter().any(Vec::is_empty) {
            true => Err("a group has no rows"),
            false => Ok(()),
        }
    }
}

/// Returns the unit of a metric's values as `unit`.
///
/// # Errors
/// Returns one line unless it is the metric's, or ticks or cycles of a time.
fn converted(unit: &str, metric: &Metric) -> Result<(), String> {
    let record = MetricRecord::from(metric);
    let applied = Unit::of(unit, &record.unit).applied(metric.name, &record);
    match applied {
        Ok(applied) if applied.unit == unit => Ok(()),
        _ => Err(format!(
            "'{}' is in {}; expected that, or ticks or cycles of a time, not '{unit}'",
            metric.name, record.unit
        )),
    }
}

const SAME_FACTOR: &str = "'x' and 'series' are the same factor";
const CATEGORY: &str = "y_scale cannot be \"category\": values are numbers";
