//! The page of results: one HTML file that needs neither the network nor another file.
//!
//! [`RunPage`] shows one run: headlines, verdicts, claims, experiments with figures and tables, samples;
//! [`ComparisonPage`] shows several runs or machines, the resolved differences first. Headlines, claims and what describes
//! a run are HTML, so that they can be read and searched without scripts. The scripts in `scripts/` draw figures and make
//! tables from compressed data in the page.
//!
//! No text of a journal becomes markup or script: the templates escape it in HTML, data is in base64, and the scripts
//! create elements with texts only. In addition the page forbids the browser every script but its own, and every request.

mod claims;
mod comparison;
mod compressed;
mod document;
mod experiment;
mod figure;
mod frames;
mod list;
mod machine;
mod merged;
mod overview;
mod published;
mod samples;
mod tables;
mod terms;

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
use claims::JudgedClaim;
pub use comparison::{ComparedSide, ComparisonPage};
use compressed::CompressedData;
use document::{Document, Entry};
use experiment::{ExperimentData, Experiments};
use figure::FigureData;
use samples::EmbeddedSamples;
pub use terms::Term;

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
    /// Terms that the page explains, among them the verdicts.
    pub terms: &'a [Term],
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
    /// Parts of the run that the commands do not repeat, one line each.
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
    /// Experiments in the order of the page.
    experiments: Vec<ExperimentData>,
    /// Figures, to which elements refer by index.
    figures: Vec<FigureData>,
    /// Samples, to which curves refer by index.
    samples: Vec<SamplesName>,
}

/// Names of the samples of an experiment.
#[derive(Serialize)]
struct SamplesName {
    /// Part of the ID of their element.
    slug: String,
    /// Name of the file into which they are saved alone.
    file: String,
    /// Name of the run, for the file into which all samples are saved.
    run: String,
}

impl RunPage<'_> {
    /// Renders the page.
    ///
    /// # Errors
    /// Returns an error if the run lacks an experiment, or if data cannot be encoded.
    pub fn html(&self) -> Result<String, PageError> {
        let Experiments { html, experiments, figures } = Experiments::new(self)?;
        let data = PageData { experiments, figures, samples: self.samples_names("") };
        let data = CompressedData::new("data", &data)?;
        let document = |samples: &EmbeddedSamples| Document {
            title: format!("tollgate: {}", self.run.record.name),
            header: overview::header(self.run),
            contents: self.contents(),
            body: html! {
                section aria-labelledby="headlines" {
                    h2 #headlines { "Results in short" }
                    (overview::headlines(self.headlines))
                    (overview::lacking(self.judged, "lacks"))
                }
                (terms::section(self.terms))
                (overview::verdicts(self))
                (overview::warnings(self.inconsistencies))
                (claims::section(JudgedClaim::of_run(self.judged), self.experiments))
                (html)
                section aria-labelledby="machine" {
                    h2 #machine { "The machine" }
                    (machine::environments(self.run))
                    h3 #lacks { "What it lacks" }
                    (machine::lacks(self.run, self.judged, "the machine"))
                }
                section aria-labelledby="repeat" {
                    h2 #repeat { "Repeat it" }
                    (overview::repetition(self, "command"))
                    p { "This page: " code { "tollgate report --results " (overview::shell(&self.run.folder)) } }
                    (overview::samples(samples))
                }
            },
            data: html! { (data.html()) (samples.html()) },
        };
        let others = document(&EmbeddedSamples::none()).html().len();
        let left = MAX_BYTES.saturating_sub(others);
        Ok(document(&self.samples("", left)?).html())
    }

    /// Encodes the samples of the experiments; `prefix` distinguishes the sides of a comparison.
    fn samples(&self, prefix: &str, max_bytes: usize) -> Result<EmbeddedSamples, PageError> {
        let shown: Vec<_> =
            self.experiments.iter().map(|id| (id, self.shown_metrics(id))).collect();
        EmbeddedSamples::fitting(self.run, prefix, &shown, max_bytes)
    }

    /// Returns the names of the samples of each experiment.
    fn samples_names(&self, prefix: &str) -> Vec<SamplesName> {
        let run = &self.run.record.name;
        let name = |id: &String| SamplesName {
            slug: format!("{prefix}{}", slug(id)),
            file: format!("{}-{}", slug(run), slug(id)),
            run: slug(run),
        };
        self.experiments.iter().map(name).collect()
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
        if !self.terms.is_empty() {
            entries.push(Entry::new("How to read this page", "reading"));
        }
        if !self.judged.is_empty() {
            entries.push(Entry::new("Verdicts", "verdicts"));
            entries.push(Entry::new("Claims", "claims"));
        }
        entries.extend(experiment::contents(self.experiments));
        entries.push(Entry::new("The machine", "machine"));
        entries.push(Entry::new("Repeat it", "repeat"));
        entries
    }
}

/// Returns the part of an element's ID for a name: the `/` after a suite becomes `-`, and other characters than letters,
/// digits and `-` their codes, so that different names give different IDs.
fn slug(name: &str) -> String {
    let encoded = |text: &str, is_kept: fn(char) -> bool| -> String {
        let part = |c: char| if is_kept(c) { c.into() } else { format!("_{:x}_", u32::from(c)) };
        text.chars().map(part).collect()
    };
    let rest = |text: &str| encoded(text, |c| c.is_ascii_alphanumeric() || c == '-');
    match name.split_once('/') {
        Some((suite, name)) => {
            format!("{}-{}", encoded(suite, |c| c.is_ascii_alphanumeric()), rest(name))
        }
        None => rest(name),
    }
}

/// Rounds a number to six significant digits, so that its text is short.
fn short(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_names_have_different_ids() {
        let names =
            ["a/b-c", "a/b_c", "a/b.c", "a/b c", "a-b/c", "a/b/c", "a/b_5f_c", "a/ä", "claim-1"];
        let slugs: std::collections::BTreeSet<String> = names.map(slug).into_iter().collect();
        assert_eq!(slugs.len(), names.len(), "{slugs:?}");
        assert_eq!(slug("copy/throughput"), "copy-throughput");
    }
}
