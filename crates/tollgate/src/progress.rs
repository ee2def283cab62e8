//! Progress of a run on standard error.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lab::format::count;
use lab::headline::{self, Headline};
use lab::journal::{self, Run};
use lab::quantity::format_duration;
use lab::run::{Event, RunObserver};
use lab::sample::Sample;
use lab::statistics::INTERVAL_ROUNDS;
use lab::terminal::one_line;

use crate::output::{print_message, restored};

/// Number of failed samples that are reported at once; all are counted at the end.
const MAX_REPORTED: u64 = 5;
/// Minimum time between two lines about the state, without a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);
/// Bar, state and newest headline. The terminal wraps lines that are too long.
const TEMPLATE: &str = "{wide_bar:.cyan/dim} {percent:>3}%\n{prefix}\n{msg:.dim}";

/// Progress of a run: three lines on a terminal; else a line every 10 s and for each headline.
pub(crate) struct Progress {
    bar: ProgressBar,
    failures: u64,
    shows_projections: bool,
    headlines: LiveHeadlines,
    /// ID of the experiment that is measured.
    experiment: String,
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
            failures: 0,
            shows_projections,
            headlines: LiveHeadlines::new(headlines),
            experiment: String::new(),
            round: 0,
            pass: String::new(),
            time_left: None,
            last_line: None,
        }
    }

    /// Shows the headlines of the last experiment and removes the display.
    pub(crate) fn finish(&mut self) {
        self.show_headlines();
        self.bar.finish_and_clear();
    }

    fn report(&self, line: &str) {
        self.bar.suspend(|| print_message(line));
    }

    /// Returns time left, round and experiment, the most important first.
    fn state(&self) -> String {
        let left = self.time_left.map(|time| format!("{} left: ", format_duration(time)));
        format!("{}{}, {}", left.unwrap_or_default(), self.pass, self.experiment)
    }

    /// Shows the state, once a round has started.
    fn show_state(&mut self) {
        if self.experiment.is_empty() {
            return;
        }
        let state = self.state();
        if !self.bar.is_hidden() {
            self.bar.set_prefix(one_line(&state).into_owned());
        } else if self.last_line.is_none_or(|last| last.elapsed() >= LINE_INTERVAL) {
            self.last_line = Some(Instant::now());
            print_message(&state);
        }
    }

    /// Shows the headlines that the last round made known. No sample is measured meanwhile.
    fn show_headlines(&mut self) {
        let experiment = std::mem::take(&mut self.experiment);
        if self.round as usize + 1 < INTERVAL_ROUNDS {
            return;
        }
        for sentence in self.headlines.stated_by(&experiment) {
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
                (self.experiment, self.round) = (experiment.id(), round);
                let of = passes.map(|passes| format!(" of {passes}")).unwrap_or_default();
                self.pass = format!("round {}{of}", pass + 1);
                self.show_state();
            }
            Event::Preparing(artefact) => {
                self.bar.set_prefix(format!("preparing {}", one_line(artefact)));
            }
            Event::Sample(sample) => {
                self.headlines.add(sample.clone());
                if let Some(error) = sample.error.as_ref().filter(|error| error.kind.is_fault()) {
                    self.failures += 1;
                    if self.failures <= MAX_REPORTED {
                        self.report(&format!("{} {}: {error}", sample.experiment, sample.point));
                    }
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
            Event::WorkerLost(why) => self.report(&format!("{why}; starting another worker")),
        }
    }
}

/// Headlines of a run in progress.
struct LiveHeadlines {
    /// Those that are not stated yet.
    pending: Vec<Headline>,
    /// The run so far: samples of the experiments that the headlines use, without histograms.
    run: Option<Run>,
}

impl LiveHeadlines {
    /// Creates a list of headlines of which none is stated.
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
    fn stated_by(&mut self, experiment: &str) -> Vec<String> {
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
