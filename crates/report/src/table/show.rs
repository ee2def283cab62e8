//! The results of experiments as tables.

use lab::experiment::{Experiment, suite_name};
use lab::journal::Run;
use lab::metric::Better;
use lab::point::{Filter, Point};
use lab::statistics::NoiseFloor;
use lab::summary::{Floors, Row, Summary, SummaryError, Unit, rounds, summarise};
use serde_json::{Value, json};

use super::best::Judge;
use super::cell::{Rows, Writing};
use super::flat::flat;
use super::notes::{Notes, remarks};
use super::page::{Page, Tone};
use super::pivot::pivot;
use super::section::{Section, points, sections};
use crate::format;

/// Lines on single points under a table; JSON has all.
const MOST_REMARKS: usize = 12;

/// What is asked of a run.
#[derive(Debug, Clone, Default)]
pub struct Question {
    /// The metric; each experiment's own where there is none.
    pub metric: Option<String>,
    /// The unit of times.
    pub unit: Unit,
    /// Which points are shown.
    pub filter: Filter,
}

/// The experiments of a run that have samples, in the order in which they were first measured.
pub fn measured(run: &Run) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for sample in &run.samples {
        if !found.contains(&sample.experiment) {
            found.push(sample.experiment.clone());
        }
    }
    found
}

/// Experiments as tables: a heading each, a table for each sweep, notes.
///
/// # Errors
/// When the run has no samples of an experiment, or not the metric.
pub fn show(
    run: &Run,
    experiments: &[String],
    question: &Question,
    page: Page,
) -> Result<String, SummaryError> {
    let shown = experiments.iter().map(|id| Ok(Shown::new(run, id, question)?.text(page)));
    Ok(shown.collect::<Result<Vec<_>, _>>()?.join("\n"))
}

/// The same as data: the summaries, with every point.
///
/// # Errors
/// As [`show`].
pub fn show_json(
    run: &Run,
    experiments: &[String],
    question: &Question,
) -> Result<Value, SummaryError> {
    let shown = experiments.iter().map(|id| Ok(Shown::new(run, id, question)?.json()));
    let experiments = shown.collect::<Result<Vec<_>, _>>()?;
    Ok(json!({
        "run": run.record.name,
        "host": run.record.host,
        "profile": run.record.profile,
        "experiments": experiments,
    }))
}

/// One experiment as it is shown.
struct Shown<'a> {
    run: &'a Run,
    experiment: Option<&'a Experiment>,
    question: &'a Question,
    summary: Summary,
}

impl<'a> Shown<'a> {
    fn new(run: &'a Run, id: &str, question: &'a Question) -> Result<Self, SummaryError> {
        let experiment = run.record.experiments.get(id);
        let first = || run.record.metrics.get(suite_name(id))?.keys().next().cloned();
        let metric = question.metric.clone().or_else(|| Some(experiment?.metric.clone()));
        let metric = metric.or_else(first).unwrap_or_default();
        let summary = summarise(run, id, &metric, question.unit)?;
        Ok(Self { run, experiment, question, summary })
    }

    fn rows(&self) -> Vec<&Row> {
        let rows = self.summary.rows.iter();
        rows.filter(|row| self.question.filter.matches(&row.point)).collect()
    }

    fn json(&self) -> Value {
        let summary = json!(self.summary);
        let rows = self.rows();
        let mut value = json!({
            "about": self.experiment.map(|e| &e.about),
            "sweeps": self.experiment.map(|e| &e.sweeps),
        });
        if let (Value::Object(all), Value::Object(own)) = (&mut value, summary) {
            all.extend(own);
            all.insert("rows".into(), json!(rows));
        }
        value
    }

    fn text(&self, page: Page) -> String {
        let rows = self.rows();
        let mut text = self.heading(&rows, page);
        let Summary { experiment, metric, environment, .. } = &self.summary;
        let observed = rounds(self.run, experiment, metric, environment, self.question.unit);
        let judge = Judge {
            observed: &observed,
            better: self.summary.record.better,
            floors: &self.summary.floors,
            seed: self.run.record.seed,
        };
        let mut notes = Notes::default();
        let measured = self.summary.rows.iter().map(|row| &row.point);
        let points = points(self.experiment, measured, &self.question.filter);
        let by_point: Rows<'_> = rows.iter().map(|row| (&row.point, *row)).collect();
        for section in sections(points, self.experiment) {
            text.push('\n');
            text += &self.section(&section, &by_point, &judge, &mut notes, page);
        }
        let below = notes.text(page) + &self.remarks(&rows, page);
        if !below.is_empty() {
            text.push('\n');
        }
        text + &below
    }

    fn remarks(&self, rows: &[&Row], page: Page) -> String {
        let baseline = self.experiment.map(|e| e.baseline.clone()).unwrap_or_default();
        let mut lines = remarks(rows, &baseline, &self.summary.record.unit);
        let more = lines.len().saturating_sub(MOST_REMARKS);
        if more > 0 {
            lines.truncate(MOST_REMARKS);
            lines.push(format!("and {more} more; --json has all"));
        }
        lines.iter().map(|line| page.paragraph(line, 2, Tone::Faint)).collect()
    }

    fn heading(&self, rows: &[&Row], page: Page) -> String {
        let summary = &self.summary;
        let about = self.experiment.map_or("", |experiment| experiment.about.as_str());
        let mut text = page.paragraph(&summary.experiment, 0, Tone::Strong);
        text += &page.paragraph(about, 0, Tone::Plain);
        let environment = self.run.record.environments.get(&summary.environment);
        let cpu = environment.map(|e| format!(" ({})", e.cpu.brand)).unwrap_or_default();
        let facts = [
            metric(summary),
            rounds_of(rows.iter().copied()),
            format!("host {}{cpu}", self.run.record.host),
            floor(&summary.floors),
        ];
        let facts: Vec<_> = facts.into_iter().filter(|fact| !fact.is_empty()).collect();
        text += &page.paragraph(&facts.join("; "), 0, Tone::Plain);
        if summary.other_environments > 0 {
            let others = format::count(summary.other_environments, "other environment");
            let line = format!(
                "{others} of this run (another boot or program) not shown; 'tollgate export' has all"
            );
            text += &page.paragraph(&line, 0, Tone::Doubtful);
        }
        text
    }

    /// One sweep: its caption once, then a list, a pivot, or a pivot for each level.
    fn section(
        &self,
        section: &Section,
        rows: &Rows<'_>,
        judge: &Judge<'_>,
        notes: &mut Notes,
        page: Page,
    ) -> String {
        let unit = self.summary.record.unit.as_str();
        let own = section.points.iter().filter_map(|point| rows.get(point).copied());
        let writing = Writing::of(own, unit);
        let parts = section.split().unwrap_or_else(|| vec![section.clone()]);
        let mut text = page.paragraph(&caption(section, &writing), 2, Tone::Faint);
        for part in &parts {
            let apart = part.caption(&section.fixed);
            if parts.len() > 1 && !apart.is_empty() {
                text += &page.paragraph(&apart, 2, Tone::Strong);
            }
            text += &match part.axes.as_slice() {
                [first, second] => pivot(part, (first, second), rows, &writing, judge, notes, page),
                _ => flat(part, rows, &writing, judge, notes, page),
            };
        }
        text
    }
}

/// `length × function; write, heap, 0 threads; in GB/s`
pub(crate) fn caption(section: &Section, writing: &Writing<'_>) -> String {
    let factors: Vec<_> = section.axes.iter().map(|axis| axis.factor.as_str()).collect();
    let unit = match writing.caption() {
        "" => String::new(),
        unit => format!("in {unit}"),
    };
    let mut parts = vec![factors.join(" × "), section.caption(&Point::default()), unit];
    parts.retain(|part| !part.is_empty());
    parts.join("; ")
}

/// `throughput in B/s, higher is better`
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

/// `30 rounds`, or `10 to 30 rounds` where points stopped at different ones.
pub(crate) fn rounds_of<'a>(rows: impl Iterator<Item = &'a Row> + Clone) -> String {
    let counts = || rows.clone().filter(|row| row.estimate.is_some()).map(|row| row.rounds);
    match (counts().min(), counts().max()) {
        (Some(least), Some(most)) if least < most => format!("{least} to {most} rounds"),
        (Some(least), _) => format::count(least, "round"),
        _ => "no values".into(),
    }
}

/// What twins make of no difference.
pub(crate) fn floor(floors: &Floors) -> String {
    let share = |noise: &NoiseFloor| format::half_width(noise.floor.exp_m1());
    match floors.span() {
        None => "no noise floor".into(),
        Some((low, high)) if low == high => format!("noise floor {} (twins)", share(high)),
        Some((low, high)) => format!("noise floors {} to {} (twins)", share(low), share(high)),
    }
}
