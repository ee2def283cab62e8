//! Headlines during a run: those whose numbers become known.

use std::path::Path;

use lab::headline::{self, Headline};
use lab::journal::{self, Run};
use lab::sample::Sample;

/// Headlines of a run in progress.
pub(crate) struct LiveHeadlines {
    /// Those that are not stated yet.
    pending: Vec<Headline>,
    /// The run so far: samples of the experiments that the headlines use, without histograms.
    run: Option<Run>,
}

impl LiveHeadlines {
    /// Creates a list of headlines of which none is stated.
    pub(crate) fn new(headlines: Vec<Headline>) -> Self {
        Self { pending: headlines, run: None }
    }

    /// Reads the samples of earlier sessions. An error is reported when the run ends.
    pub(crate) fn open(&mut self, folder: &Path) {
        self.run = journal::open(folder).ok();
        if let Some(run) = &mut self.run {
            let samples = std::mem::take(&mut run.samples);
            samples.into_iter().for_each(|sample| self.add(sample));
        }
    }

    /// Adds a sample if a headline may use it.
    pub(crate) fn add(&mut self, mut sample: Sample) {
        let is_used =
            self.pending.iter().any(|one| one.experiments().contains(&*sample.experiment));
        if let (true, Some(run)) = (is_used, &mut self.run) {
            sample.histograms.clear();
            run.samples.push(sample);
        }
    }

    /// Returns the sentences that an experiment makes known, each once.
    pub(crate) fn stated_by(&mut self, experiment: &str) -> Vec<String> {
        let Some(run) = &self.run else { return Vec::new() };
        let mut sentences = Vec::new();
        self.pending.retain(|one| {
            let is_of = one.experiments().contains(experiment);
            let stated = is_of.then(|| headline::state(one, run)).flatten();
            sentences.extend(stated.iter().map(|it| format!("{}: {}", it.suite, it.sentence)));
            stated.is_none()
        });
        sentences
    }
}
