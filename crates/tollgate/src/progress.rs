//! Progress of a run on standard error.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lab::experiment::Experiment;
use lab::format::count;
use lab::headline::{self, Headline};
use lab::journal::{self, Run};
use lab::quantity::format_duration;
use lab::run::{Event, RunObserver};
use lab::sample::Sample;
use lab::statistics::INTERVAL_ROUNDS;
use lab::terminal::one_line;

use crate::output::{print_message, restored};

/// Maximum number of failed samples that are reported one by one; all are counted at the end.
pub(crate) const MAX_REPORTED: usize = 10;
/// Minimum time between two lines about the state, without a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);
/// Bar, state and newest headline. The terminal wraps lines that are too long.
const TEMPLATE: &str = "{wide_bar:.cyan/dim} {percent:>3}%\n{prefix}\n{msg:.dim}";

/// Progress of a run: three lines on a terminal; else a line every 10 s and for each headline.
pub(crate) struct Progress {
    bar: ProgressBar,
    /// Failed samples that were reported.
    reported: Vec<Sample>,
    shows_projections: bool,
    headlines: LiveHeadlines,
    /// Experiment that is measured, once a round has started.
    experiment: Option<Experiment>,
    /// Round of it, from 0.
    round: u32,
    /// The pass through all experiments, e.g. `round 3 of 10`.
    pass: String,
    time_left: Option<Duration>,
    last_line: Option<Instant>,
}

impl Progress {
    /// Creates a progress display. `shows_projections` states whether to report how long a target
    /// interval takes. Of `headlines` those are shown whose values become known.
    pub(crate) fn new(shows_projections: bool, headlines: Vec<Headline>) -> Self {
        let bar = if io::stderr().is_terminal() {
            // A bar of length 0 is full.
            ProgressBar::with_draw_target(Some(1), ProgressDrawTarget::stderr_with_hz(5))
        } else {
            ProgressBar::hidden()
        };
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style.progress_chars("━━─"));
        }
        Self {
            bar,
            reported: Vec::new(),
            shows_projections,
            headlines: LiveHeadlines::new(headlines),
            experiment: None,
            round: 0,
            pass: String::new(),
            time_left: None,
            last_line: None,
        }
    }

    /// Shows the headlines of the last experiment and removes the display. Returns the failed samples that it reported.
    pub(crate) fn finish(mut self) -> Vec<Sample> {
        self.show_headlines();
        self.bar.finish_and_clear();
        self.reported
    }

    fn report(&self, line: &str) {
        self.bar.suspend(|| print_message(line));
    }

    /// Returns time left, round and experiment, the most important first.
    fn status_line(&self, experiment: &Experiment) -> String {
        let left = self.time_left.map(|time| match time.as_secs_f64().ceil() {
            0.0 => "finishing: ".to_owned(),
            seconds => format!("{} left: ", format_duration(Duration::from_secs(seconds as u64))),
        });
        format!("{}{}, {}", left.unwrap_or_default(), self.pass, experiment.id())
    }

    /// Shows the state, once a round has started.
    fn show_state(&mut self) {
        let Some(experiment) = &self.experiment else { return };
        let state = self.status_line(experiment);
        if !self.bar.is_hidden() {
            self.bar.set_prefix(one_line(&state).into_owned());
        } else if self.last_line.is_none_or(|last| last.elapsed() >= LINE_INTERVAL) {
            self.last_line = Some(Instant::now());
            print_message(&state);
        }
    }

    /// Shows the headlines that the last round made known. It is called between samples.
    fn show_headlines(&mut self) {
        let Some(experiment) = self.experiment.take() else { return };
        if self.round as usize + 1 < INTERVAL_ROUNDS {
            return;
        }
        for sentence in self.headlines.made_known_by(&experiment.id()) {
            if self.bar.is_hidden() {
                print_message(&sentence);
            } else {
                self.bar.set_message(one_line(&sentence).into_owned());
            }
        }
    }
}

impl RunObserver for Progress {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Waiting(holder) => {
                self.report(&format!("waiting for another run on this machine: {holder}"));
            }
            Event::Opened { folder, samples } => {
                let folder_name = folder.display();
                self.report(&match samples {
                    0 => format!("new run {folder_name}"),
                    samples => {
                        let samples = count(samples as usize, "sample");
                        format!("resuming run {folder_name} with {samples}")
                    }
                });
                self.headlines.open(folder);
            }
            Event::Round { experiment, round, pass, passes } => {
                self.show_headlines();
                (self.experiment, self.round) = (Some(experiment.clone()), round);
                let of = passes.map(|passes| format!(" of {passes}")).unwrap_or_default();
                self.pass = format!("round {}{of}", pass + 1);
                self.show_state();
            }
            Event::Preparing(artefact) => {
                self.bar.set_prefix(format!("preparing {}", one_line(artefact)));
            }
            Event::Sample(sample) => {
                self.headlines.add(sample.clone());
                let is_fault = sample.error.as_ref().is_some_and(|error| error.kind.is_fault());
                if is_fault && self.reported.len() < MAX_REPORTED {
                    self.report(&failure_line(sample, self.experiment.as_ref()));
                    self.reported.push(sample.clone());
                }
            }
            Event::Left { done, all, time } => {
                self.bar.set_length(all);
                self.bar.set_position(done);
                self.time_left = Some(time);
                self.show_state();
            }
            Event::Projected { experiment, rounds, time, limited } if self.shows_projections => {
                let limit = if limited { " (the limit)" } else { "" };
                let time = format_duration(time);
                let (id, rounds) = (experiment.id(), count(rounds, "round"));
                let line = format!("{id}: target interval after {rounds}{limit}, {time} left");
                self.report(&line);
            }
            Event::Projected { .. } => {}
            Event::Restored(setting) => self.report(&restored(setting)),
            Event::BootRepeated(why) => self.report(&format!("{why}; starting it again")),
            Event::WorkerLost(why) => self.report(&format!("{why}; starting another worker")),
        }
    }
}

/// Describes a failed sample of an experiment in one line.
pub(crate) fn failure_line(sample: &Sample, experiment: Option<&Experiment>) -> String {
    let point = experiment.map_or_else(|| sample.point.clone(), |one| one.brief(&sample.point));
    let (id, round) = (&sample.experiment, sample.round + 1);
    let error = sample.error.as_ref().map(ToString::to_string).unwrap_or_default();
    format!("{id} {point}, round {round}: {error}")
}

/// Headlines of a run in progress.
struct LiveHeadlines {
    /// Those that are not known yet.
    pending: Vec<Headline>,
    /// The run so far: samples of the experiments that the headlines use, without histograms.
    run: Option<Run>,
}

impl LiveHeadlines {
    /// Creates a list of headlines of which none is known.
    fn new(headlines: Vec<Headline>) -> Self {
        Self { pending: headlines, run: None }
    }

    /// Reads the samples of earlier sessions. An error is reported when the run ends.
    fn open(&mut self, folder: &Path) {
        self.run = journal::open(folder).ok();
        if let Some(run) = &mut self.run {
            let samples = std::mem::take(&mut run.samples);
            samples.into_iter().for_each(|sample| self.add(sample));
        }
    }

    /// Adds a sample if a headline may use it.
    fn add(&mut self, mut sample: Sample) {
        let is_used =
            self.pending.iter().any(|one| one.experiments().contains(&*sample.experiment));
        if let (true, Some(run)) = (is_used, &mut self.run) {
            sample.histograms.clear();
            run.samples.push(sample);
        }
    }

    /// Returns the sentences that an experiment makes known, each once.
    fn made_known_by(&mut self, experiment: &str) -> Vec<String> {
        let Some(run) = &self.run else { return Vec::new() };
        let mut sentences = Vec::new();
        self.pending.retain(|one| {
            let is_of = one.experiments().contains(experiment);
            let filled = is_of.then(|| headline::fill(one, run)).flatten();
            sentences.extend(filled.iter().map(|it| format!("{}: {}", it.suite, it.sentence)));
            filled.is_none()
        });
        sentences
    }
}
