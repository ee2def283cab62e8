//! Experiments of a page: figures, tables, method, remarks, samples.

use std::collections::BTreeSet;

use lab::experiment::{Experiment, suite_name};
use lab::factor::Factor;
use lab::format::count;
use lab::journal::Run;
use lab::metric::Better;
use lab::point::Level;
use lab::quantity::format_duration;
use lab::suite::{self, Suite};
use lab::summary::Row;
use maud::{Markup, html};
use serde::Serialize;

use super::document::Entry;
use super::figure::{FigureData, FigureMaker, PageFigure};
use super::frames::{curves, grid};
use super::list::{self, ListData};
use super::tables::TableData;
use super::{PageError, RunPage, slug};
use crate::table::{Notes, ShowOptions, ShownExperiment, shared_core};

/// All experiments of a page, and the data of their tables and figures.
pub(super) struct Experiments {
    pub(super) html: Markup,
    pub(super) experiments: Vec<ExperimentData>,
    pub(super) figures: Vec<FigureData>,
}

/// Content of an experiment that the scripts show when a reader opens it.
#[derive(Serialize)]
pub(super) struct ExperimentData {
    pub(super) id: String,
    /// Part of the IDs of its elements.
    pub(super) slug: String,
    pub(super) tables: Vec<TableData>,
    /// Points to search; `None` if they are few.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) list: Option<ListData>,
    /// Meaning of the marks in the tables.
    pub(super) marks: Vec<String>,
    /// Name, levels and description of each factor.
    pub(super) factors: Vec<(String, String, String)>,
}

/// Returns the suites of some experiments, in their order.
pub(super) fn suites(experiments: &[String]) -> impl Iterator<Item = &str> {
    let mut seen = BTreeSet::new();
    experiments.iter().map(|id| suite_name(id)).filter(move |suite| seen.insert(*suite))
}

/// Returns the entries of experiments in the contents, by suite.
pub(super) fn contents(experiments: &[String]) -> Vec<Entry> {
    let entry = |id: &String| {
        let name = id.split_once('/').map_or(id.as_str(), |(_, name)| name);
        Entry::new(name, &format!("experiment-{}", slug(id)))
    };
    let of_suite = |suite: &str| {
        let parts = experiments.iter().filter(|id| is_of(id, suite)).map(entry).collect();
        Entry::new(suite, &format!("suite-{}", slug(suite))).with(parts)
    };
    suites(experiments).map(of_suite).collect()
}

/// Returns whether an experiment is of a suite.
pub(super) fn is_of(id: &str, suite: &str) -> bool {
    suite_name(id) == suite
}

impl Experiments {
    /// Renders the experiments of a page by suite.
    ///
    /// # Errors
    /// Returns an error if the run has no samples of an experiment.
    pub(super) fn new(page: &RunPage) -> Result<Self, PageError> {
        let mut maker = FigureMaker::new(page.run, page.experiments, 0);
        let (mut experiments, mut figures) = (Vec::new(), Vec::new());
        let mut sections = Vec::new();
        for suite in suites(page.experiments) {
            let mut of_suite = Vec::new();
            for id in page.experiments.iter().filter(|id| is_of(id, suite)) {
                let (html, data) = experiment(page, id, &mut maker, &mut figures)?;
                of_suite.push(html);
                experiments.push(data);
            }
            let about = suite::find(page.suites, suite).map_or("", Suite::about);
            sections.push(html! {
                section.suite aria-labelledby={ "suite-" (slug(suite)) } {
                    h2 id={ "suite-" (slug(suite)) } { (suite) }
                    p.about { (about) }
                    @for experiment in &of_suite { (experiment) }
                }
            });
        }
        Ok(Self { html: html! { @for section in &sections { (section) } }, experiments, figures })
    }
}

fn experiment(
    page: &RunPage,
    id: &str,
    maker: &mut FigureMaker,
    figures: &mut Vec<FigureData>,
) -> Result<(Markup, ExperimentData), PageError> {
    let options = ShowOptions::default();
    let summary = maker.summaries.of(id, None)?;
    let shown = ShownExperiment::with_summary(page.run, id, &options, summary);
    let rows = shown.rows();
    let declared = page.run.record.experiments.get(id);
    let mut notes = Notes::default();
    let tables = shown.tables(&rows, &mut notes);
    let has_floor = shown.summary.floors.span().is_some();
    let shared = shared_core(&shown.summary.sharing);
    let mut facts = shown.facts(&rows);
    facts.extend((!shared.is_empty()).then_some(shared));
    let warnings = shown.warnings();
    let drawn = figures_of(page, id, maker, figures);
    let data = ExperimentData {
        id: id.into(),
        slug: slug(id),
        tables: tables.iter().map(TableData::new).collect(),
        list: ListData::new(page, id, &maker.summaries),
        marks: notes.lines(),
        factors: declared.map(|one| factors(page.suites, one)).unwrap_or_default(),
    };
    let html = html! {
        section.experiment aria-labelledby={ "experiment-" (slug(id)) } {
            h3 id={ "experiment-" (slug(id)) } { (id) }
            p.about { (declared.map_or("", |one| one.about.as_str())) }
            ul.facts { @for fact in &facts { li { (fact) } } }
            @if !warnings.is_empty() { ul.warnings { @for line in &warnings { li { (line) } } } }
            (quality(&rows, &shown.remarks(&rows)))
            (drawn)
            @if let Some(list) = &data.list { (list::frame(id, list)) }
            details data-tables=(slug(id)) {
                summary { "Values of " (count(rows.len(), "point")) }
                noscript { p { "Tables need JavaScript; " code { "tollgate show " (id) } " prints them." } }
            }
            @if let Some(declared) = declared { (method(page, declared, has_floor)) }
            (samples(page, id))
        }
    };
    Ok((html, data))
}

/// Renders the figures of an experiment, and the reasons why others are not drawn.
fn figures_of(
    page: &RunPage,
    id: &str,
    maker: &mut FigureMaker,
    figures: &mut Vec<FigureData>,
) -> Markup {
    let (mut drawn, mut missing) = (Vec::new(), Vec::new());
    for figure in page.figures.iter().filter(|figure| figure.experiment == id) {
        match maker.figure(figure) {
            PageFigure::Curves { data, notes } => {
                drawn.push(curves(&data, &notes, figures.len()));
                figures.push(*data);
            }
            PageFigure::Grid(it) => drawn.push(grid(&it)),
            PageFigure::Missing(why) => missing.push(why),
        }
    }
    html! {
        @for figure in &drawn { (figure) }
        @if !missing.is_empty() {
            details.missing {
                summary { "Not drawn: " (count(missing.len(), "figure")) }
                ul.notes { @for why in &missing { li { (why) } } }
            }
        }
    }
}

/// Renders how good the samples are: void and failed ones, correlation, and remarks.
fn quality(rows: &[&Row], remarks: &[String]) -> Markup {
    let voids: usize = rows.iter().map(|row| row.voids).sum();
    let failed: usize = rows.iter().map(|row| row.counts.failed).sum();
    let correlations = rows.iter().filter_map(|row| row.estimate?.lag_1);
    let highest = correlations.reduce(f64::max);
    html! {
        details.quality {
            summary {
                (count(voids, "void sample")) "; " (count(failed, "failed round"))
                @if let Some(highest) = highest { "; lag-1 correlation at most " (format!("{highest:.2}")) }
            }
            @if remarks.is_empty() { p { "No remarks." } }
            ul.notes { @for line in remarks { li { (line) } } }
        }
    }
}

/// Renders how an experiment is measured: its method in three sentences, its metrics, and its factors with their levels.
/// `has_floor` states whether its twins give a noise floor.
pub(super) fn method(page: &RunPage, experiment: &Experiment, has_floor: bool) -> Markup {
    let id = experiment.id();
    let effort = &experiment.effort;
    let method = suite::find_method(page.suites, &experiment.suite, &experiment.method).ok();
    let how = method.map(|method| method.how());
    html! {
        details data-factors=(slug(&id)) {
            summary { "How it is measured" }
            p {
                @if let Some(how) = how { (how) " " }
                (count(experiment.points.len(), "point")) " of method " code { (experiment.method) } ", "
                @if effort.min_rounds < effort.rounds { (effort.min_rounds) " to " }
                (count(effort.rounds as usize, "round")) " of " (format_duration(effort.budget))
                " per point, each in a fresh process"
                @if has_floor {
                    "; " (count(experiment.twins.len(), "point"))
                    " measured twice per round as twins give the noise floor"
                }
                "."
            }
            (metrics(page.run, &id, &experiment.metric))
        }
    }
}

/// Renders the metrics that the samples of an experiment have.
fn metrics(run: &Run, id: &str, main: &str) -> Markup {
    let samples = run.samples.iter().filter(|one| one.experiment == id);
    let names: BTreeSet<&str> =
        samples.flat_map(|one| one.values.keys()).map(String::as_str).collect();
    let (first, others): (Vec<&str>, Vec<&str>) = names.into_iter().partition(|name| *name == main);
    html! {
        dl.metrics {
            @for name in first.into_iter().chain(others) {
                @if let Some(metric) = run.record.metric(id, name) {
                    dt { (name) }
                    dd {
                        (metric.about)
                        @if metric.unit != "1" { "; " (metric.unit) }
                        @match metric.better {
                            Better::Higher => "; higher is better",
                            Better::Lower => "; lower is better",
                            Better::Neither => {},
                        }
                    }
                }
            }
        }
    }
}

/// Returns the name, the levels and the description of each factor.
pub(super) fn factors(suites: &[&Suite], experiment: &Experiment) -> Vec<(String, String, String)> {
    let method = suite::find_method(suites, &experiment.suite, &experiment.method).ok();
    let described = method.map_or(&[][..], |method| method.factors());
    let names: BTreeSet<&str> = experiment.points.iter().flat_map(|it| it.factors()).collect();
    let factor = |name: &str| {
        let mut seen = BTreeSet::new();
        let levels = experiment.points.iter().filter_map(|point| point.get(name));
        let levels: Vec<&str> =
            levels.map(Level::as_str).filter(|level| seen.insert(*level)).collect();
        let known = described.iter().find(|factor| factor.name == name);
        (name.to_owned(), levels.join(", "), known.map(Factor::described).unwrap_or_default())
    };
    names.into_iter().map(factor).collect()
}

/// Renders the command that repeats an experiment, and the download of its samples.
fn samples(page: &RunPage, id: &str) -> Markup {
    let samples = page.run.samples.iter().filter(|one| one.experiment == id).count();
    html! {
        p.actions {
            button type="button" data-download=(slug(id)) hidden { "Download " (count(samples, "sample")) " (CSV)" }
            " " code { "tollgate run " (id) (page.repetition.arguments) }
        }
    }
}
