//! The page of a comparison: differences between the first side and each other one, resolved ones first, and the claims
//! and figures of all sides next to each other.
//!
//! A side is one run or several. Differences are those of `tollgate compare`: the unit is the run, so single runs are
//! not judged. Verdicts, figures and samples are those of the newest run of each side.

use std::collections::BTreeSet;

use lab::claim::{Claim, Verdict};
use lab::compare::{Comparison, Difference, MIN_RUNS};
use lab::format::count;
use lab::suite::{self, Suite};
use maud::{Markup, html};

use super::claims::{self, JudgedClaim};
use super::compressed::CompressedData;
use super::document::{Document, Entry};
use super::experiment::{self, ExperimentData};
use super::figure::{FigureData, FigureMaker, PageFigure};
use super::frames::{curves, grids, named_notes};
use super::merged::merged;
use super::samples::EmbeddedSamples;
use super::tables::TableData;
use super::terms::{self, Term, meaning};
use super::{MAX_BYTES, PageData, PageError, RunPage, machine, overview, slug};
use crate::table::{VERDICT_KINDS, compared_cells, compared_tables, comparison_counts};

/// Maximum number of resolved differences in the list at the top; the tables have all.
const MAX_RESOLVED: usize = 200;

/// Everything that the page of a comparison shows.
pub struct ComparisonPage<'a> {
    /// The sides; the first is the one with which the others are compared.
    pub sides: &'a [ComparedSide<'a>],
}

/// A side of a comparison.
pub struct ComparedSide<'a> {
    /// Letter in tables and figures: `A` for the first side.
    pub name: String,
    /// Folder of its run or runs, as the user named it.
    pub folder: String,
    /// Number of its runs.
    pub runs: usize,
    /// The page of its newest run.
    pub newest: RunPage<'a>,
    /// Comparison of each common experiment with the first side; empty for the first side.
    pub comparisons: Vec<Comparison>,
}

impl ComparedSide<'_> {
    /// Returns the part of IDs of elements for this side.
    fn prefix(&self) -> String {
        format!("{}-", slug(&self.name.to_lowercase()))
    }

    fn verdict(&self, id: &str) -> Option<&Verdict> {
        let judged = self.newest.judged.iter();
        judged.map(|(claim, verdict)| (&claim.id, verdict)).find(|it| it.0 == id).map(|it| it.1)
    }
}

impl ComparisonPage<'_> {
    /// Renders the page.
    ///
    /// # Errors
    /// Returns an error if data cannot be encoded.
    pub fn html(&self) -> Result<String, PageError> {
        let ids = self.experiments();
        let (experiments, figures, sections) = self.parts(&ids);
        let samples = self.sides.iter().flat_map(|side| side.newest.samples_names(&side.prefix()));
        let data = PageData { experiments, figures, samples: samples.collect() };
        let data = CompressedData::new("data", &data)?;
        let document = |samples: &[EmbeddedSamples]| Document {
            title: format!("tollgate: {}", self.title()),
            header: self.header(),
            contents: self.contents(&ids),
            body: html! {
                (self.differences())
                (self.headlines())
                (terms::section(self.terms()))
                (self.verdicts())
                (claims::section(self.claims(), &ids))
                @for section in &sections { (section) }
                (self.machines())
                (self.repetitions(samples))
            },
            data: html! { (data.html()) @for one in samples { (one.html()) } },
        };
        let left = MAX_BYTES.saturating_sub(document(&[]).html().len()) / self.sides.len().max(1);
        let samples = self.sides.iter().map(|side| side.newest.samples(&side.prefix(), left));
        Ok(document(&samples.collect::<Result<Vec<_>, _>>()?).html())
    }

    /// Returns the experiments of all sides, in the order of the first side that has them.
    fn experiments(&self) -> Vec<String> {
        let mut ids: Vec<String> = Vec::new();
        for id in self.sides.iter().flat_map(|side| side.newest.experiments) {
            if !ids.contains(id) {
                ids.push(id.clone());
            }
        }
        ids
    }

    /// Returns the terms that the page explains.
    fn terms(&self) -> &[Term] {
        self.sides.first().map_or(&[], |side| side.newest.terms)
    }

    fn title(&self) -> String {
        let sides: Vec<_> = self.sides.iter().map(|side| side.folder.as_str()).collect();
        sides.join(" and ")
    }

    fn header(&self) -> Markup {
        html! {
            header {
                p.brand { "tollgate: what does it cost to cross a boundary?" }
                h1 { "Comparison of " (count(self.sides.len(), "side")) }
                ul.sides {
                    @for side in self.sides {
                        @let record = &side.newest.run.record;
                        li {
                            strong { (side.name) } ": " (side.folder) ", " (count(side.runs, "run")) "; newest: "
                            (record.name) ", " (cpu(&side.newest)) ", " (record.place()) ", profile "
                            (record.profile.name()) ", from " (record.start) ", tollgate " (record.program)
                        }
                    }
                }
            }
        }
    }

    fn contents(&self, ids: &[String]) -> Vec<Entry> {
        let mut entries = vec![
            Entry::new("Differences", "differences"),
            Entry::new("Results in short", "headlines"),
        ];
        if !self.terms().is_empty() {
            entries.push(Entry::new("How to read this page", "reading"));
        }
        entries.push(Entry::new("Verdicts", "verdicts"));
        entries.push(Entry::new("Claims", "claims"));
        entries.extend(experiment::contents(ids));
        entries.push(Entry::new("The machines", "machine"));
        entries.push(Entry::new("Repeat it", "repeat"));
        entries
    }

    /// Renders the resolved differences of each side from the first, the largest first, and how many points there are of
    /// each result.
    fn differences(&self) -> Markup {
        html! {
            section aria-labelledby="differences" {
                h2 #differences { "Differences" }
                p {
                    "Each other side is compared with A: the ratio of the geometric means of the runs' medians, with its 95% "
                    "interval between runs. Whether a point differs is corrected for the number of points of a comparison."
                }
                @for side in self.sides.iter().skip(1) {
                    h3 { (side.name) " against A" }
                    (resolved(side))
                }
                @let fewest = self.sides.iter().map(|side| side.runs).min().unwrap_or_default();
                @if fewest < MIN_RUNS {
                    p {
                        "To judge differences, repeat each side at least " (MIN_RUNS) " times: "
                        code { "tollgate run --fresh --results FOLDER" }
                    }
                }
            }
        }
    }

    fn headlines(&self) -> Markup {
        html! {
            section aria-labelledby="headlines" {
                h2 #headlines { "Results in short" }
                @for side in self.sides {
                    h3 { (side.name) ": " (side.newest.run.record.name) }
                    (overview::headlines(side.newest.headlines))
                    (overview::lacking(side.newest.judged, "machine"))
                    @for line in side.newest.inconsistencies { p.warnings { (line) } }
                }
            }
        }
    }

    fn verdicts(&self) -> Markup {
        let names = || VERDICT_KINDS.into_iter().map(|kind| kind.name());
        let number = |side: &ComparedSide, name: &str| {
            side.newest.judged.iter().filter(|(_, verdict)| verdict.kind.name() == name).count()
        };
        html! {
            section aria-labelledby="verdicts" {
                h2 #verdicts { "Verdicts" }
                div.scroll tabindex="0" role="region" aria-label="Number of verdicts" {
                    table.counts {
                        thead { tr {
                            th scope="col" { "verdict" }
                            @for side in self.sides { th.number scope="col" { (side.name) } }
                            th scope="col" { "meaning" }
                        } }
                        tbody { @for name in names() { tr {
                            th scope="row" { (name) }
                            @for side in self.sides { td.number { (number(side, name)) } }
                            td.meaning { (meaning(self.terms(), name)) }
                        } } }
                    }
                }
            }
        }
    }

    /// Returns the claims that any side judges, with the verdict of each side.
    fn claims(&self) -> Vec<JudgedClaim<'_>> {
        let mut claims: Vec<&Claim> = Vec::new();
        for (claim, _) in self.sides.iter().flat_map(|side| side.newest.judged) {
            if !claims.iter().any(|known| known.id == claim.id) {
                claims.push(claim);
            }
        }
        let judged = |claim| JudgedClaim {
            claim,
            verdicts: self
                .sides
                .iter()
                .filter_map(|side| Some((side.name.as_str(), side.verdict(&claim.id)?)))
                .collect(),
        };
        claims.into_iter().map(judged).collect()
    }

    /// Returns the data of experiments and figures, and the sections of suites.
    fn parts(&self, ids: &[String]) -> (Vec<ExperimentData>, Vec<FigureData>, Vec<Markup>) {
        let mut first_samples = 0;
        let mut makers = Vec::new();
        for side in self.sides {
            let experiments = side.newest.experiments;
            makers.push(FigureMaker::new(side.newest.run, experiments, first_samples));
            first_samples += experiments.len();
        }
        let (mut experiments, mut figures, mut sections) = (Vec::new(), Vec::new(), Vec::new());
        for name in experiment::suites(ids) {
            let mut of_suite = Vec::new();
            for id in ids.iter().filter(|id| experiment::is_of(id, name)) {
                let drawn = self.figures(id, &mut makers, &mut figures);
                experiments.push(self.experiment(id));
                of_suite.push(self.section(id, &drawn));
            }
            let suites: &[&Suite] = self.sides.first().map_or(&[], |side| side.newest.suites);
            let about = suite::find(suites, name).map_or("", Suite::about);
            sections.push(html! {
                section.suite aria-labelledby={ "suite-" (slug(name)) } {
                    h2 id={ "suite-" (slug(name)) } { (name) }
                    p.about { (about) }
                    @for experiment in &of_suite { (experiment) }
                }
            });
        }
        (experiments, figures, sections)
    }

    /// Renders the figures of an experiment with the curves of all sides.
    fn figures(
        &self,
        id: &str,
        makers: &mut [FigureMaker],
        figures: &mut Vec<FigureData>,
    ) -> Markup {
        let declared = self.sides.iter().flat_map(|side| side.newest.figures);
        let mut seen = BTreeSet::new();
        let mut drawn = Vec::new();
        for figure in declared.filter(|it| it.experiment == id && seen.insert(&it.id)) {
            let (mut plots, mut tables, mut notes) = (Vec::new(), Vec::new(), Vec::new());
            for (index, (side, maker)) in self.sides.iter().zip(makers.iter_mut()).enumerate() {
                match maker.figure(figure) {
                    PageFigure::Curves { data, notes: of_side } => {
                        plots.push((index, side.name.clone(), *data));
                        notes.push((side.name.as_str(), of_side));
                    }
                    PageFigure::Grid(grid) => tables.push((side.name.clone(), grid)),
                    PageFigure::Missing(_) => {}
                }
            }
            let notes: Vec<(&str, &[String])> =
                notes.iter().map(|(name, notes)| (*name, notes.as_slice())).collect();
            if let Some(data) = merged(plots) {
                drawn.push(curves(&data, &named_notes(&notes), figures.len()));
                figures.push(data);
            }
            drawn.push(grids(&tables));
        }
        html! { @for figure in &drawn { (figure) } }
    }

    /// Returns the tables of an experiment's comparisons, and its factors.
    fn experiment(&self, id: &str) -> ExperimentData {
        let with_it = self
            .sides
            .iter()
            .find_map(|side| Some((side, side.newest.run.record.experiments.get(id)?)));
        let declared = with_it.map(|(_, experiment)| experiment);
        let tables = self
            .compared(id)
            .flat_map(|(side, comparison)| compared_tables(comparison, declared, &side.name));
        ExperimentData {
            id: id.into(),
            slug: slug(id),
            tables: tables.map(|table| TableData::compared(&table)).collect(),
            list: None,
            marks: Vec::new(),
            factors: with_it
                .map(|(side, one)| experiment::factors(side.newest.suites, one))
                .unwrap_or_default(),
        }
    }

    /// Returns the comparisons of an experiment with their sides.
    fn compared(&self, id: &str) -> impl Iterator<Item = (&ComparedSide<'_>, &Comparison)> {
        let of_side = move |side| -> Option<(&ComparedSide, &Comparison)> {
            let side: &ComparedSide = side;
            Some((side, side.comparisons.iter().find(|one| one.experiment == id)?))
        };
        self.sides.iter().filter_map(of_side)
    }

    fn section(&self, id: &str, drawn: &Markup) -> Markup {
        let declared = self
            .sides
            .iter()
            .find_map(|side| Some((&side.newest, side.newest.run.record.experiments.get(id)?)));
        let points: usize = self.compared(id).map(|(_, comparison)| comparison.rows.len()).sum();
        let missing =
            self.sides.iter().filter(|side| !side.newest.experiments.iter().any(|it| it == id));
        let missing: Vec<&str> = missing.map(|side| side.name.as_str()).collect();
        html! {
            section.experiment aria-labelledby={ "experiment-" (slug(id)) } {
                h3 id={ "experiment-" (slug(id)) } { (id) }
                p.about { (declared.map_or("", |(_, one)| one.about.as_str())) }
                ul.facts {
                    @for (side, comparison) in self.compared(id) {
                        li { (side.name) " against A: " (comparison_counts(comparison)) }
                    }
                    @if !missing.is_empty() { li { "no samples in " (missing.join(", ")) } }
                }
                (drawn)
                details data-tables=(slug(id)) {
                    summary { "Ratios of " (count(points, "point")) }
                    noscript { p { "Tables need JavaScript; " code { "tollgate compare" } " prints them." } }
                    ul.notes { @for (_, comparison) in self.compared(id) {
                        @for note in &comparison.notes { li { (note) } }
                    } }
                }
                @if let Some((page, declared)) = declared { (experiment::method(page, declared, false)) }
            }
        }
    }

    fn machines(&self) -> Markup {
        html! {
            section aria-labelledby="machine" {
                h2 #machine { "The machines" }
                @for side in self.sides {
                    h3 { (side.name) ": " (side.newest.run.record.name) }
                    (machine::environments(side.newest.run))
                    p { "What it lacks:" }
                    (machine::lacks(side.newest.run, side.newest.judged, &side.name))
                }
            }
        }
    }

    fn repetitions(&self, samples: &[EmbeddedSamples]) -> Markup {
        html! {
            section aria-labelledby="repeat" {
                h2 #repeat { "Repeat it" }
                @for side in self.sides {
                    h3 { (side.name) ": " (side.newest.run.record.name) }
                    (overview::repetition(&side.newest, &format!("{}command", side.prefix())))
                }
                @if let Some(samples) = samples.first() { (overview::samples(samples)) }
            }
        }
    }
}

/// Returns the CPU that measured the last sample of a run.
fn cpu(page: &RunPage) -> String {
    let environments = &page.run.record.environments;
    let last = page.run.samples.last().and_then(|one| environments.get(&one.environment));
    last.map_or_else(|| "unknown CPU".into(), machine::cpu)
}

/// Renders the resolved differences of a side from the first.
fn resolved(side: &ComparedSide) -> Markup {
    let rows = side.comparisons.iter().flat_map(|one| one.rows.iter().map(move |row| (one, row)));
    let is_resolved = |difference| matches!(difference, Difference::Higher | Difference::Lower);
    let mut rows: Vec<_> = rows.filter(|(_, row)| is_resolved(row.difference)).collect();
    let size = |ratio: Option<f64>| ratio.map_or(0.0, |ratio| ratio.ln().abs());
    rows.sort_by(|(_, a), (_, b)| size(b.ratio).total_cmp(&size(a.ratio)));
    let more = rows.len().saturating_sub(MAX_RESOLVED);
    let declared = &side.newest.run.record.experiments;
    if rows.is_empty() {
        let mut all = side.comparisons.iter().flat_map(|one| &one.rows);
        let result = match all.any(|row| row.difference.is_judged()) {
            true => "No difference is resolved.",
            false => "Nothing was judged; each experiment states why.",
        };
        return html! { p { (result) " The tables of the experiments have all ratios." } };
    }
    html! {
        div.scroll tabindex="0" role="region" aria-label={ "Resolved differences of " (side.name) } {
            table.values.differences {
                thead { tr {
                    th scope="col" { "experiment" } th scope="col" { "point" }
                    th.number scope="col" { "A" } th.number scope="col" { (side.name) }
                    th.number scope="col" { (side.name) " / A" } th.number scope="col" { "95% interval" }
                    th scope="col" { (side.name) " is" }
                } }
                tbody { @for (comparison, row) in rows.iter().take(MAX_RESOLVED) {
                    @let experiment = declared.get(&comparison.experiment);
                    @let [a, b, ratio, interval, word] = compared_cells(row, comparison);
                    tr {
                        th scope="row" {
                            a href={ "#experiment-" (slug(&comparison.experiment)) } { (comparison.experiment) }
                            ", " (comparison.metric)
                        }
                        td.point {
                            (experiment.map_or_else(|| row.point.clone(), |one| one.brief(&row.point)))
                            @if let Some(class) = row.class { ", " (class.name()) " cores" }
                        }
                        @for cell in [a, b, ratio, interval] { td.number { (cell.text) } }
                        td class={ "difference " (word.text) } { (word.text) }
                    }
                } }
            }
        }
        @if more > 0 { p { (count(more, "more resolved difference")) " in the tables of the experiments." } }
    }
}
