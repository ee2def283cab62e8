//! The page of results: one HTML file that needs neither the network nor another file.
//!
//! [`RunPage`] shows one run: headlines, verdicts, claims, experiments with figures and tables, samples. Headlines, claims
//! and what describes the run are HTML, so that they can be read and searched without scripts. The scripts in `scripts/`
//! draw figures and make tables from compressed data in the page.
//!
//! No text of a journal becomes markup or script: the templates escape it in HTML, data is in base64, and the scripts
//! create elements with texts only. In addition the page forbids the browser every script but its own, and every request.

mod claims;
mod compressed;
mod document;
mod experiment;
mod figure;
mod machine;
mod overview;
mod samples;
mod tables;

use std::collections::BTreeSet;

use lab::claim::{Claim, Verdict};
use lab::figure::Figure;
use lab::headline::Filled;
use lab::journal::Run;
use lab::suite::Suite;
use lab::summary::SummaryError;
use maud::html;
use serde::Serialize;

use crate::table::NoHeadline;
use compressed::CompressedData;
use document::{Document, Entry};
use experiment::{ExperimentData, Experiments};
use figure::FigureData;
use samples::EmbeddedSamples;

/// Everything that the page of a run shows.
pub struct RunPage<'a> {
    /// The run.
    pub run: &'a Run,
    /// All suites, whose methods describe metrics and factors.
    pub suites: &'a [&'a Suite],
    /// IDs of the experiments to show.
    pub experiments: &'a [String],
    /// Figures of these experiments.
    pub figures: &'a [Figure],
    /// Headlines of each suite that was measured, in the order of lists.
    pub headlines: &'a [SuiteHeadlines],
    /// Claims on these experiments with their verdicts.
    pub judged: &'a [(Claim, Verdict)],
    /// Number of claims on other experiments.
    pub unlisted_claims: usize,
    /// Contradictions between values of the run, and signs that its journal was edited, one line each.
    pub inconsistencies: &'a [String],
    /// How to repeat the run.
    pub repetition: &'a Repetition,
}

/// The headlines of a suite.
#[derive(Debug, Clone)]
pub struct SuiteHeadlines {
    /// Name of the suite.
    pub suite: String,
    /// Headlines that have values.
    pub filled: Vec<Filled>,
    /// Why the suite has none.
    pub missing: Option<NoHeadline>,
}

/// Commands that repeat a run.
#[derive(Debug, Clone, Default)]
pub struct Repetition {
    /// The command that measures all of it again.
    pub command: String,
    /// Arguments that follow the ID in the command of one experiment, with a space before each.
    pub arguments: String,
    /// What the commands do not repeat, one line each.
    pub limits: Vec<String>,
}

/// Why a page cannot be made, in one line.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// An experiment cannot be summarised.
    #[error(transparent)]
    Summary(#[from] SummaryError),
    /// The data of the page cannot be encoded.
    #[error("cannot encode the data of the page: {0}")]
    Encode(String),
}

/// Maximum size of a page in bytes, if samples with the least detail fit.
const MAX_BYTES: usize = 3_000_000;

/// Data that the scripts of the page read.
#[derive(Serialize)]
struct PageData {
    /// Name of the run.
    run: String,
    /// Experiments in the order of the page.
    experiments: Vec<ExperimentData>,
    /// Figures, to which elements refer by index.
    figures: Vec<FigureData>,
}

impl RunPage<'_> {
    /// Renders the page.
    ///
    /// # Errors
    /// Returns an error if the run lacks an experiment, or if data cannot be encoded.
    pub fn html(&self) -> Result<String, PageError> {
        let Experiments { html, experiments, figures } = Experiments::new(self)?;
        let data = PageData { run: self.run.record.name.clone(), experiments, figures };
        let data = CompressedData::new("data", &data)?;
        let shown: Vec<_> =
            self.experiments.iter().map(|id| (id, self.shown_metrics(id))).collect();
        let document = |samples: &EmbeddedSamples| Document {
            title: format!("tollgate: {}", self.run.record.name),
            header: overview::header(self.run),
            contents: self.contents(),
            body: html! {
                (overview::headlines(self.headlines))
                (overview::verdicts(self.judged, self.unlisted_claims))
                (overview::warnings(self.inconsistencies))
                (claims::section(self.judged, self.experiments))
                (html)
                (machine::section(self.run, self.judged))
                (overview::repetition(self, samples))
            },
            data: html! { (data.html()) (samples.html()) },
        };
        let others = document(&EmbeddedSamples::none()).html().len();
        let left = MAX_BYTES.saturating_sub(others);
        Ok(document(&EmbeddedSamples::fitting(self.run, &shown, left)?).html())
    }

    /// Returns the metrics of an experiment that tables, figures and claims are about.
    fn shown_metrics(&self, id: &str) -> BTreeSet<String> {
        let declared = self.run.record.experiments.get(id).map(|one| one.metric.clone());
        let figures = self.figures.iter().filter(|figure| figure.experiment == id);
        let of_figures = figures.flat_map(|it| it.metric.iter().chain(&it.more_metrics)).cloned();
        let claims = self.judged.iter().filter(|(claim, _)| claim.experiment == id);
        let of_claims = claims.filter_map(|(claim, _)| claim.metric.clone());
        declared.into_iter().chain(of_figures).chain(of_claims).collect()
    }

    fn contents(&self) -> Vec<Entry> {
        let mut entries = vec![Entry::new("Results in short", "headlines")];
        if !self.judged.is_empty() {
            entries.push(Entry::new("Verdicts", "verdicts"));
            entries.push(Entry::new("Claims", "claims"));
        }
        for suite in experiment::suites(self.experiments) {
            let of_suite = self.experiments.iter().filter(|id| experiment::is_of(id, suite));
            let entry = |id: &String| {
                let name = id.split_once('/').map_or(id.as_str(), |(_, name)| name);
                Entry::new(name, &format!("experiment-{}", slug(id)))
            };
            let parts = of_suite.map(entry).collect();
            entries.push(Entry::new(suite, &format!("suite-{}", slug(suite))).with(parts));
        }
        entries.push(Entry::new("The machine", "machine"));
        entries.push(Entry::new("Repeat it", "repeat"));
        entries
    }
}

/// Returns the part of an element's ID for a name: other characters than letters, digits and `-` become `-`.
fn slug(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' }).collect()
}

/// Rounds a number to six significant digits, so that its text is short.
fn short(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}
