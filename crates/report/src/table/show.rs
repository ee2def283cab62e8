//! Results of experiments as tables.

use std::rc::Rc;

use lab::experiment::{Experiment, Profile, suite_name};
use lab::guest::GuestsRecord;
use lab::journal::Run;
use lab::metric::{Better, MetricRecord};
use lab::point::{Filter, Point};
use lab::proximity::Classes;
use lab::schema::JsonOutput;
use lab::sharing::SharingCounts;
use lab::statistics::{NoiseFloor, Ratio};
use lab::summary::{
    Floors, OtherEnvironment, Row, Summary, SummaryError, TwinAlarm, Unit, VoidDifference,
    summarise,
};
use machine::cpu::CpuClock;
use schemars::JsonSchema;
use serde::Serialize;

use super::cell::{BestSelector, Rows, ValueFormat};
use super::groups::Groups;
use super::notes::{Notes, others_left_out, remarks};
use super::order::{Order, RowOrder};
use super::pivot::{Pivot, pivot};
use super::point_list::{PointList, point_list};
use super::section::{Section, points, sections};
use lab::format;
use lab::table::{Emphasis, Page};

/// Maximum number of remarks under a table; JSON has all.
const MAX_REMARKS: usize = 12;
/// Warning above values of a guest whose clock is planted.
const PLANTED_CLOCK: &str = "planted clock: its times are not real; they test the instrument";

/// Options for showing a run.
#[derive(Debug, Clone, Default)]
pub struct ShowOptions {
    /// The metric; by default that of each experiment.
    pub metric: Option<String>,
    /// Unit of times.
    pub unit: Unit,
    /// Points to show.
    pub filter: Filter,
    /// Order of the rows: one list per experiment. `None` for a table per sweep, in the order of the declaration.
    pub order: Option<Order>,
    /// Groups by which long tables are divided.
    pub groups: Groups,
}

/// Returns the experiments of a run that have samples, in the order of their first samples.
pub fn measured(run: &Run) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for sample in &run.samples {
        if !found.contains(&sample.experiment) {
            found.push(sample.experiment.clone());
        }
    }
    found
}

/// Renders experiments as tables: each has a heading, one table per sweep, and notes.
///
/// # Errors
/// Returns an error if the run has no samples of an experiment or no such metric.
pub fn show(
    run: &Run,
    experiments: &[String],
    options: &ShowOptions,
    page: Page,
) -> Result<String, SummaryError> {
    let shown = experiments.iter().map(|id| Ok(ShownExperiment::new(run, id, options)?.text(page)));
    Ok(shown.collect::<Result<Vec<_>, _>>()?.join("\n"))
}

/// JSON output of `tollgate show`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ShowOutput {
    /// Name of the run.
    run: String,
    /// Name of the host.
    host: String,
    /// Guests in which it was measured; `null` for the host.
    guests: Option<GuestsRecord>,
    profile: Profile,
    experiments: Vec<ExperimentOutput>,
}

impl JsonOutput for ShowOutput {
    const NAME: &'static str = "show";
    const WRITTEN_BY: &'static str = "tollgate show --json";
    const VERSION: u64 = 1;
}

/// Values of every point of a run, in a bundle.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct BundleValues {
    experiments: Vec<ExperimentOutput>,
}

impl JsonOutput for BundleValues {
    const NAME: &'static str = "bundle-values";
    const WRITTEN_BY: &'static str = "values.json of a bundle";
    const VERSION: u64 = 1;
}

impl BundleValues {
    /// Adds the values of an experiment.
    ///
    /// # Errors
    /// Returns an error in the same cases as [`show`].
    pub fn add(&mut self, run: &Run, experiment: &str) -> Result<(), SummaryError> {
        let options = ShowOptions::default();
        let shown = ShownExperiment::new(run, experiment, &options)?;
        self.experiments.push(shown.output());
        Ok(())
    }
}

/// One metric of an experiment.
#[derive(Debug, Serialize, JsonSchema)]
struct ExperimentOutput {
    /// ID, e.g. `copy/throughput`.
    experiment: String,
    /// Description in one line; `null` if the run does not record the experiment.
    about: Option<String>,
    /// Sets of factors that are varied together; `null` if the run does not record the experiment.
    sweeps: Option<Vec<Vec<String>>>,
    /// Name of the metric.
    metric: String,
    /// Unit of the rows, and direction of the metric.
    record: MetricRecord,
    /// ID of the summarised environment.
    environment: String,
    /// Other environments with samples of the experiment.
    other_environments: Vec<OtherEnvironment>,
    /// Number of samples by whether a busy SMT sibling shared their core.
    sharing: SharingCounts,
    /// Classes of the samples by the proximity of their cores.
    classes: Classes,
    /// A row per point.
    rows: Vec<Row>,
    /// Each point with a twin, and the ratio of the two.
    twins: Vec<(Point, Ratio)>,
    /// Noise floor of each pair of twins.
    floors: Floors,
    /// Twins that differ.
    alarms: Vec<TwinAlarm>,
    /// Level whose samples are void more or less often than those of other levels.
    void_difference: Option<VoidDifference>,
}

/// Returns the summaries of experiments, with every point, for JSON.
///
/// # Errors
/// Returns an error in the same cases as [`show`].
pub fn show_output(
    run: &Run,
    experiments: &[String],
    options: &ShowOptions,
) -> Result<ShowOutput, SummaryError> {
    let shown = experiments.iter().map(|id| Ok(ShownExperiment::new(run, id, options)?.output()));
    Ok(ShowOutput {
        run: run.record.name.clone(),
        host: run.record.host.clone(),
        guests: run.record.guests.clone(),
        profile: run.record.profile,
        experiments: shown.collect::<Result<_, _>>()?,
    })
}

/// One experiment to be shown.
pub(crate) struct ShownExperiment<'a> {
    pub(super) run: &'a Run,
    pub(super) experiment: Option<&'a Experiment>,
    pub(super) options: &'a ShowOptions,
    order: Option<RowOrder<'a>>,
    pub(crate) summary: Rc<Summary>,
}

impl<'a> ShownExperiment<'a> {
    /// Summarises an experiment.
    ///
    /// # Errors
    /// Returns an error if the run has no samples of the experiment or no such metric, or nothing to sort by.
    pub(crate) fn new(
        run: &'a Run,
        id: &str,
        options: &'a ShowOptions,
    ) -> Result<Self, SummaryError> {
        let experiment = run.record.experiments.get(id);
        let first = || run.record.metrics.get(suite_name(id))?.keys().next().cloned();
        let metric = options.metric.clone().or_else(|| Some(experiment?.metric.clone()));
        let metric = metric.or_else(first).unwrap_or_default();
        let summary = summarise(run, id, &metric, options.unit)?;
        let order = options.order.as_ref();
        let order =
            order.map(|order| RowOrder::new(run, &summary, order, options.unit)).transpose()?;
        Ok(Self { order, ..Self::with_summary(run, id, options, Rc::new(summary)) })
    }

    /// Returns an experiment that is summarised already, in the order of the declaration.
    pub(crate) fn with_summary(
        run: &'a Run,
        id: &str,
        options: &'a ShowOptions,
        summary: Rc<Summary>,
    ) -> Self {
        let experiment = run.record.experiments.get(id);
        Self { run, experiment, options, order: None, summary }
    }

    /// Returns the rows that the options select, in their order.
    pub(crate) fn rows(&self) -> Vec<&Row> {
        let rows = self.summary.rows.iter();
        let rows: Vec<&Row> = rows.filter(|row| self.options.filter.matches(&row.point)).collect();
        let Some(order) = &self.order else { return rows };
        let mut points: Vec<&Point> = rows.iter().map(|row| &row.point).collect();
        order.apply(&mut points, &rows);
        let by_point: Rows<'_> = rows.iter().map(|row| (&row.point, *row)).collect();
        points.iter().filter_map(|point| by_point.get(point).copied()).collect()
    }

    fn output(&self) -> ExperimentOutput {
        let summary = &self.summary;
        ExperimentOutput {
            experiment: summary.experiment.clone(),
            about: self.experiment.map(|one| one.about.clone()),
            sweeps: self.experiment.map(|one| one.sweeps.clone()),
            metric: summary.metric.clone(),
            record: summary.record.clone(),
            environment: summary.environment.clone(),
            other_environments: summary.other_environments.clone(),
            sharing: summary.sharing,
            classes: summary.classes,
            rows: self.rows().into_iter().cloned().collect(),
            twins: summary.twins.clone(),
            floors: summary.floors.clone(),
            alarms: summary.alarms.clone(),
            void_difference: summary.void_difference.clone(),
        }
    }

    /// Renders the heading, a table per sweep, and the notes.
    fn text(&self, page: Page) -> String {
        let rows = self.rows();
        let mut text = self.heading(&rows, page);
        let mut notes = Notes::default();
        for table in self.tables(&rows, &mut notes) {
            text += &table.text(page);
        }
        let mut below = notes.text(page);
        let mut lines = self.remarks(&rows);
        let more = lines.len().saturating_sub(MAX_REMARKS);
        if more > 0 {
            lines.truncate(MAX_REMARKS);
            lines.push(format!("{more} more remarks: --json"));
        }
        below.extend(lines.iter().map(|line| page.paragraph(line, 2, Emphasis::Faint)));
        if !below.is_empty() {
            text.push('\n');
        }
        text + &below
    }

    fn heading(&self, rows: &[&Row], page: Page) -> String {
        let about = self.experiment.map_or("", |experiment| experiment.about.as_str());
        let mut text = page.paragraph(&self.summary.experiment, 0, Emphasis::Strong);
        text += &page.paragraph(about, 0, Emphasis::Plain);
        text += &page.paragraph(&self.facts(rows).join("; "), 0, Emphasis::Plain);
        let shared = shared_core(&self.summary.sharing);
        if !shared.is_empty() {
            text += &page.paragraph(&shared, 0, Emphasis::Plain);
        }
        text.extend(self.warnings().iter().map(|it| page.paragraph(it, 0, Emphasis::Doubtful)));
        text
    }

    /// Returns the metric, the number of rounds, the place, the noise floors and the limits of near and far cores.
    pub(crate) fn facts(&self, rows: &[&Row]) -> Vec<String> {
        let summary = &self.summary;
        let environment = self.run.record.environments.get(&summary.environment);
        let cpu = environment.map(|e| match e.emulated && self.run.record.guests.is_none() {
            true => format!(" ({}, emulated)", e.cpu.brand),
            false => format!(" ({})", e.cpu.brand),
        });
        let facts = [
            metric(summary),
            rounds_of(rows.iter().copied()) + &time_covered(rows),
            self.run.record.place() + &cpu.unwrap_or_default(),
            noise_floor(&summary.floors),
            near_limit(summary),
        ];
        facts.into_iter().filter(|fact| !fact.is_empty()).collect()
    }

    /// Returns what makes the values doubtful: a planted clock, twins that differ, uneven void samples, and other
    /// environments.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let summary = &self.summary;
        let guests = self.run.record.guests.as_ref();
        let is_planted = guests.is_some_and(|it| it.clock == CpuClock::Planted);
        let mut lines: Vec<String> = is_planted.then(|| PLANTED_CLOCK.into()).into_iter().collect();
        lines.extend(summary.alarms.iter().map(ToString::to_string));
        lines.extend(summary.void_difference.as_ref().map(ToString::to_string));
        let others = others_left_out(&summary.other_environments);
        lines.extend(others.map(|it| format!("{it} not shown; use 'tollgate export'")));
        lines
    }

    /// Returns remarks on all rows: void samples, resolution, correlation, covariates and outliers.
    pub(crate) fn remarks(&self, rows: &[&Row]) -> Vec<String> {
        let baseline = self.experiment.map(|e| e.baseline.clone()).unwrap_or_default();
        remarks(rows, &baseline, &self.summary.record.unit)
    }

    /// Returns the tables of all sweeps, and adds the meaning of their marks to `notes`.
    pub(crate) fn tables(&self, rows: &[&Row], notes: &mut Notes) -> Vec<ShownTable> {
        let selector = BestSelector {
            alternatives: self.experiment.and_then(|it| it.alternatives.as_deref()),
            observed: &self.summary.observed,
            better: self.summary.record.better,
            floors: &self.summary.floors,
        };
        let measured = self.summary.rows.iter().map(|row| &row.point);
        let points = points(self.experiment, measured, &self.options.filter);
        let by_point: Rows<'_> = rows.iter().map(|row| (&row.point, *row)).collect();
        if let Some(order) = &self.order {
            return vec![self.ordered_table(points, order, &by_point, &selector, notes)];
        }
        let mut tables = Vec::new();
        for section in sections(points, self.experiment) {
            tables.extend(self.section_tables(&section, &by_point, &selector, notes));
        }
        tables
    }

    /// Returns the tables of one sweep: a list, a table of two factors, or one such table per level.
    fn section_tables(
        &self,
        section: &Section,
        rows: &Rows<'_>,
        selector: &BestSelector<'_>,
        notes: &mut Notes,
    ) -> Vec<ShownTable> {
        let unit = self.summary.record.unit.as_str();
        let rows_of_section = section.points.iter().filter_map(|point| rows.get(point).copied());
        let format = ValueFormat::of_rows(rows_of_section, unit);
        let parts = section.split().unwrap_or_else(|| vec![section.clone()]);
        let is_split = parts.len() > 1;
        let table = |(index, part): (usize, &Section)| ShownTable {
            caption: (index == 0).then(|| caption(section, &format)),
            part: if is_split { part.caption(&section.fixed) } else { String::new() },
            content: match part.axes.as_slice() {
                [first, second] => {
                    let axes = (first, second);
                    let pivot = pivot(part, axes, rows, &format, selector, notes);
                    TableContent::Pivot(pivot.divided(|point| self.group(point), &part.fixed))
                }
                _ => {
                    let points = part.in_order();
                    let list = point_list(part, &points, rows, &format, selector, notes);
                    let groups = points.iter().map(|point| self.group(point));
                    TableContent::List(list.divided(groups))
                }
            },
        };
        parts.iter().enumerate().map(table).collect()
    }

    /// Returns the group of a point in long tables.
    fn group(&self, point: &Point) -> Option<&str> {
        let groups = self.options.groups.get(&self.summary.experiment)?;
        groups.get(point).map(String::as_str)
    }
}

/// One table of an experiment.
pub(crate) struct ShownTable {
    /// Caption of the sweep; `None` for all tables of a sweep but the first.
    pub(crate) caption: Option<String>,
    /// Levels of this table of a sweep with several; else empty.
    pub(crate) part: String,
    pub(crate) content: TableContent,
}

/// Cells of a table.
pub(crate) enum TableContent {
    /// Of two factors.
    Pivot(Pivot),
    /// A row per point.
    List(PointList),
}

impl ShownTable {
    fn text(&self, page: Page) -> String {
        let mut text = String::new();
        if let Some(caption) = &self.caption {
            text = format!("\n{}", page.paragraph(caption, 2, Emphasis::Faint));
        }
        if !self.part.is_empty() {
            text += &page.paragraph(&self.part, 2, Emphasis::Strong);
        }
        text + &match &self.content {
            TableContent::Pivot(pivot) => pivot.text(page),
            TableContent::List(list) => list.text(page),
        }
    }
}

/// Returns the caption of a section, e.g. `length × function; write, heap, 0 threads; in GB/s`.
pub(crate) fn caption(section: &Section, format: &ValueFormat<'_>) -> String {
    let factors: Vec<_> = section.axes.iter().map(|axis| axis.factor.as_str()).collect();
    let unit = match format.caption() {
        "" => String::new(),
        unit => format!("in {unit}"),
    };
    let mut parts = vec![factors.join(" × "), section.caption(&Point::default()), unit];
    parts.retain(|part| !part.is_empty());
    parts.join("; ")
}

/// States for what share of the samples a busy SMT sibling shared the core; empty if for none.
pub(crate) fn shared_core(counts: &SharingCounts) -> String {
    match counts.share() {
        Some(share) if share > 0.0 => {
            format!("core shared by a busy SMT sibling in {:.1}% of the samples", share * 100.0)
        }
        _ => String::new(),
    }
}

/// States the limits of near and far cores if rounds of both were measured; empty otherwise.
fn near_limit(summary: &Summary) -> String {
    let is_mixed = summary.rows.iter().any(|row| !row.by_class.is_empty());
    match summary.classes {
        Classes::Several { near_below, far_from } if is_mixed => {
            let near = format!(
                "cores are near if a round trip between them takes less than {near_below:.0} ns"
            );
            match near_below < far_from {
                true => format!("{near}, and far from {far_from:.0} ns"),
                false => near,
            }
        }
        Classes::Several { .. } | Classes::One(_) => String::new(),
    }
}

/// Describes the metric, e.g. `throughput in B/s, higher is better`.
fn metric(summary: &Summary) -> String {
    let unit = match summary.record.unit.as_str() {
        "1" | "" => String::new(),
        unit => format!(" in {unit}"),
    };
    let better = match summary.record.better {
        Better::Higher => ", higher is better",
        Better::Lower => ", lower is better",
        Better::Neither => "",
    };
    format!("{}{unit}{better}", summary.metric)
}

/// Returns the number of rounds, e.g. `30 rounds`, or `10 to 30 rounds` if points differ.
pub(crate) fn rounds_of<'a>(rows: impl Iterator<Item = &'a Row> + Clone) -> String {
    let counts = || rows.clone().filter(|row| row.estimate.is_some()).map(|row| row.rounds);
    match (counts().min(), counts().max()) {
        (Some(min), Some(max)) if min < max => format!("{min} to {max} rounds"),
        (Some(min), _) => format::count(min, "round"),
        _ => "no values".into(),
    }
}

/// Returns the time from the first to the last valid sample, e.g. ` in 14 s`; empty without any.
fn time_covered(rows: &[&Row]) -> String {
    let spans = rows.iter().filter_map(|row| row.span);
    let span = spans.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
    span.map_or_else(String::new, |(start, end)| {
        format!(" in {}", format::value((end - start) * 1e9, None, "ns"))
    })
}

/// Describes the noise floors, which twins measure.
pub(crate) fn noise_floor(floors: &Floors) -> String {
    let share = |noise: &NoiseFloor| format::half_width(noise.floor.exp_m1());
    match floors.span().map(|(low, high)| (share(low), share(high))) {
        None => "no noise floor".into(),
        Some((low, high)) if low == high => format!("noise floor {high} (twins)"),
        Some((low, high)) => format!("noise floors {low} to {high} (twins)"),
    }
}
