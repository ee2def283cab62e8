//! Progress of a run on standard error.

use std::path::Path;
use std::time::{Duration, Instant};

use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lab::experiment::Experiment;
use lab::format::count;
use lab::headline::{self, Headline};
use lab::journal::{self, Run};
use lab::quantity::format_duration;
use lab::run::{Delay, Event, RunObserver};
use lab::sample::Sample;
use lab::statistics::INTERVAL_ROUNDS;
use lab::table::{Emphasis, Page};

use crate::output::{print_message, restored};

/// Maximum number of failed samples that are reported one by one; all are counted at the end.
pub(crate) const MAX_REPORTED: usize = 10;
/// Minimum time between two lines about the state, without a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);
/// Bar, state and newest headline.
const TEMPLATE: &str = "{wide_bar:.cyan/dim} {percent:>3}%\n{prefix}\n{msg:.dim}";
/// Maximum number of lines of the state, and of the headline, which is cut first in a narrow terminal.
const STATE_LINES: usize = 3;
const HEADLINE_LINES: usize = 3;

/// Progress of a run: a bar, the state and the newest headline on a terminal; else a line about the state every 10 s,
/// and one for each headline and for what is prepared.
pub(crate) struct Progress {
    bar: ProgressBar,
    /// Whether the display is on the terminal.
    is_drawn: bool,
    /// Failed samples that were reported.
    reported: Vec<Sample>,
    shows_projections: bool,
    headlines: LiveHeadlines,
    /// Experiment that is measured, once a round has started.
    experiment: Option<Experiment>,
    /// Round of it, from 0.
    round: u32,
    /// The pass through all experiments, e.g. `round 3 of 10`, or `further rounds for 5 claims`.
    pass: String,
    /// Samples so far, and in total.
    samples: (u64, u64),
    /// The remaining time as estimated at a moment.
    left: Option<(Duration, Instant)>,
    /// The newest headline.
    headline: String,
    last_line: Option<Instant>,
}

impl Progress {
    /// Creates a progress display. `shows_projections` states whether to report how long a target
    /// interval takes. Of `headlines` those are shown whose values become known.
    pub(crate) fn new(shows_projections: bool, headlines: Vec<Headline>) -> Self {
        // It is hidden without a terminal, or if the terminal cannot move its cursor. A bar of length 0 is full.
        let target = ProgressDrawTarget::stderr_with_hz(5);
        let bar = ProgressBar::with_draw_target(Some(1), target);
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style.progress_chars("━━─"));
        }
        Self {
            bar,
            is_drawn: false,
            reported: Vec::new(),
            shows_projections,
            headlines: LiveHeadlines::new(headlines),
            experiment: None,
            round: 0,
            pass: String::new(),
            samples: (0, 1),
            left: None,
            headline: String::new(),
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
        // A bar that was suspended is drawn, also for the first time.
        if self.is_drawn { self.bar.suspend(|| print_message(line)) } else { print_message(line) }
    }

    /// Returns time left, round and experiment, the most important first.
    fn state(&self, experiment: &Experiment) -> String {
        let left = self.left.map(|(time, at)| match remaining_seconds(time, at.elapsed()) {
            0 => "finishing: ".to_owned(),
            seconds @ ..60 => format!("{seconds} s left: "),
            seconds => format!("{} left: ", format_duration(Duration::from_secs(seconds))),
        });
        format!("{}{}, {}", left.unwrap_or_default(), self.pass, experiment.id())
    }

    /// Draws the display with this state.
    fn draw(&mut self, state: &str) {
        self.is_drawn = true;
        let width = usize::from(Term::stderr().size().1);
        self.bar.set_prefix(wrapped(state, width, STATE_LINES));
        self.bar.set_message(wrapped(&self.headline, width, HEADLINE_LINES));
        self.bar.set_length(self.samples.1);
        self.bar.set_position(self.samples.0);
    }

    /// Shows the state, once a round has started.
    fn show_state(&mut self) {
        let Some(experiment) = &self.experiment else { return };
        let state = self.state(experiment);
        if !self.bar.is_hidden() {
            self.draw(&state);
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
            }
            self.headline = sentence;
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
            Event::FurtherRound { experiment, round, claims } => {
                self.show_headlines();
                (self.experiment, self.round) = (Some(experiment.clone()), round);
                let pass = format!("further rounds for {}", count(claims, "claim"));
                if std::mem::replace(&mut self.pass, pass) != self.pass {
                    self.last_line = None;
                }
                self.show_state();
            }
            Event::Preparing(artefact) => {
                let state = format!("preparing {artefact}");
                if self.bar.is_hidden() { print_message(&state) } else { self.draw(&state) }
            }
            Event::Sample(sample) => {
                self.headlines.add(sample.clone());
                let is_fault = sample.error.as_ref().is_some_and(|error| error.kind.is_fault());
                if is_fault && self.reported.len() < MAX_REPORTED {
                    self.report(&failure_line(sample, self.experiment.as_ref()));
                    self.reported.push(sample.clone());
                }
                self.samples.0 += 1;
                self.show_state();
            }
            Event::Left { done, all, time } => {
                self.samples = (done, all);
                self.left = Some((time, Instant::now()));
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
            Event::Delayed(Delay::BootRepeated(why)) => {
                self.report(&format!("{why}; starting it again"));
            }
            Event::Delayed(Delay::Reconnecting(why)) => {
                self.report(&format!("{why}; connecting again"));
            }
            Event::Delayed(Delay::Waiting(why)) => self.report(why),
            Event::WorkerLost(why) => self.report(&format!("{why}; starting another worker")),
        }
    }
}

/// Returns the remaining time in whole seconds, given an estimate and the time since it was made; 0 only if the estimate
/// was 0.
fn remaining_seconds(estimate: Duration, since: Duration) -> u64 {
    match estimate {
        Duration::ZERO => 0,
        _ => (estimate.saturating_sub(since).as_secs_f64().ceil() as u64).max(1),
    }
}

/// Wraps a text between words. If it needs more lines than `max_lines`, an ellipsis replaces the last words.
fn wrapped(text: &str, width: usize, max_lines: usize) -> String {
    let page = Page { width, colour: false };
    let wrap = |text: &str| page.paragraph(text, 2, Emphasis::Plain).trim_end().to_owned();
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let cut = (0..words.len()).rev().map(|count| words[..count].join(" ") + " …");
    let mut wrapped = std::iter::once(words.join(" ")).chain(cut).map(|text| wrap(&text));
    wrapped.find(|text| text.lines().count() <= max_lines).unwrap_or_default()
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
    /// Headlines that are not known yet.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remaining_time_is_zero_only_if_nothing_remains() {
        let seconds = |estimate, since| {
            remaining_seconds(Duration::from_millis(estimate), Duration::from_millis(since))
        };
        assert_eq!([seconds(0, 0), seconds(0, 5000)], [0, 0]);
        assert_eq!([seconds(9500, 0), seconds(9500, 3000), seconds(9500, 60_000)], [10, 7, 1]);
    }

    #[test]
    fn text_is_wrapped_between_words_and_cut_at_the_last_line() {
        let text = "one ".repeat(60);
        for (width, max_lines) in [(100, 3), (80, 3), (40, 3), (41, 2), (42, 1), (43, 1)] {
            let wrapped = wrapped(&text, width, max_lines);
            let lines: Vec<&str> = wrapped.lines().collect();
            let is_whole = lines.concat().matches("one").count() == 60;
            assert_eq!(is_whole, !wrapped.contains('…'), "{wrapped}");
            assert!(lines.len() <= max_lines, "{wrapped}");
            for line in &lines {
                assert!(line.chars().count() <= width, "{width}: {line}");
                let is_word = |word| word == "one" || word == "…";
                assert!(line.split_whitespace().all(is_word), "{line}");
            }
            assert!(lines[0].chars().count() > width - 6, "{width}: {wrapped}");
        }
        assert_eq!(wrapped("3 s left: round 1 of 2, a/b", 40, 3), "3 s left: round 1 of 2, a/b");
        assert_eq!([wrapped("", 40, 3), wrapped("a\u{1b}[2Jb", 40, 3)], ["", "a\u{fffd}[2Jb"]);
    }
}
