//! A run as a person sees it: what is measured, how far it is, what went wrong.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lab::quantity::format_duration;
use lab::run::{Event, RunObserver};
use lab::terminal::one_line;

use crate::output::{count_of, restored, tell};

/// Shows progress on the error stream: a bar at a terminal, a line an experiment elsewhere.
pub(crate) struct Progress {
    bar: ProgressBar,
    faults: u64,
    projected: bool,
}

impl Progress {
    /// `projected`: whether to say how long a wished interval takes.
    pub(crate) fn new(projected: bool) -> Self {
        let bar = if std::io::stderr().is_terminal() {
            ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(5))
        } else {
            ProgressBar::hidden()
        };
        let form = "{prefix:.bold} {wide_bar:.cyan/dim} {pos}/{len} {msg}";
        if let Ok(style) = ProgressStyle::with_template(form) {
            bar.set_style(style.progress_chars("━━─"));
        }
        Self { bar, faults: 0, projected }
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn say(&self, line: &str) {
        self.bar.suspend(|| tell(line));
    }
}

impl RunObserver for Progress {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Opened { folder, samples: 0 } => self.say(&format!("run {}", folder.display())),
            Event::Opened { folder, samples } => {
                let samples = count_of(samples, "sample");
                self.say(&format!("run {}, with {samples} so far", folder.display()));
            }
            Event::Experiment { experiment } => {
                self.bar.set_prefix(one_line(&experiment.id()).into_owned());
                if self.bar.is_hidden() {
                    let points = count_of(experiment.points.len() as u64, "point");
                    let rounds = count_of(experiment.effort.rounds.into(), "round");
                    self.say(&format!("{}: {points}, {rounds} at most", experiment.id()));
                }
            }
            Event::Preparing(artefact) => {
                self.bar.set_message(format!("preparing {}", one_line(artefact)));
            }
            Event::Sample(sample) => {
                self.bar.inc(1);
                if let Some(error) = sample.error.as_ref().filter(|error| error.kind.is_fault()) {
                    self.faults += 1;
                    // The first faults are shown as they come; all are counted at the end.
                    if self.faults <= 5 {
                        self.say(&format!("{} {}: {error}", sample.experiment, sample.point));
                    }
                }
            }
            Event::Left { done, all, time } => {
                self.bar.set_length(all);
                self.bar.set_position(done);
                self.bar.set_message(left(time));
            }
            Event::Projected { experiment, rounds, time, limited } if self.projected => {
                let limit = if limited { ", the limit," } else { "" };
                let time = format_duration(time);
                let (id, rounds) = (experiment.id(), count_of(rounds as u64, "round"));
                self.say(&format!("{id}: as narrow as asked in {rounds}{limit} and {time} more"));
            }
            Event::Projected { .. } => {}
            Event::Restored(setting) => self.say(&restored(setting)),
            Event::WorkerLost(why) => self.say(&format!("{why}; another worker takes its place")),
        }
    }
}

fn left(time: Duration) -> String {
    format!("{} left", format_duration(time))
}
