//! Progress of a run on standard error.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lab::format::count;
use lab::quantity::format_duration;
use lab::run::{Event, RunObserver};
use lab::terminal::one_line;

use crate::output::{print_message, restored};

/// Number of failed samples that are reported at once; all are counted at the end.
const MAX_REPORTED: u64 = 5;
/// Time between two lines without a terminal.
const INTERVAL: Duration = Duration::from_secs(10);

/// Progress of a run: a bar on a terminal, else a line from time to time.
pub(crate) struct Progress {
    bar: ProgressBar,
    failures: u64,
    /// When the last line on the state was printed, and the time left then.
    reported: Option<Instant>,
    left: Option<Duration>,
    shows_projections: bool,
}

impl Progress {
    /// Creates a progress display; `shows_projections` states whether to report how long a target interval takes.
    pub(crate) fn new(shows_projections: bool) -> Self {
        let bar = if io::stderr().is_terminal() {
            ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(5))
        } else {
            ProgressBar::hidden()
        };
        let template = "{prefix:.bold} {wide_bar:.cyan/dim} {pos}/{len} {msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("━━─"));
        }
        Self { bar, failures: 0, reported: None, left: None, shows_projections }
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn report(&self, line: &str) {
        self.bar.suspend(|| print_message(line));
    }
}

impl RunObserver for Progress {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Opened { folder, samples: 0 } => {
                self.report(&format!("new run {}", folder.display()));
            }
            Event::Opened { folder, samples } => {
                let samples = count(samples as usize, "sample");
                self.report(&format!("resuming run {} with {samples}", folder.display()));
            }
            Event::Round { experiment, pass, passes, .. } => {
                self.bar.set_prefix(one_line(&experiment.id()).into_owned());
                if self.bar.is_hidden() && self.reported.is_none_or(|at| at.elapsed() > INTERVAL) {
                    self.reported = Some(Instant::now());
                    let of = passes.map(|passes| format!(" of {passes}")).unwrap_or_default();
                    let left = self.left.map(|time| format!(", {} left", format_duration(time)));
                    let left = left.unwrap_or_default();
                    self.report(&format!("round {}{of}: {}{left}", pass + 1, experiment.id()));
                }
            }
            Event::Preparing(artefact) => {
                self.bar.set_message(format!("preparing {}", one_line(artefact)));
            }
            Event::Sample(sample) => {
                self.bar.inc(1);
                if let Some(error) = sample.error.as_ref().filter(|error| error.kind.is_fault()) {
                    self.failures += 1;
                    if self.failures <= MAX_REPORTED {
                        self.report(&format!("{} {}: {error}", sample.experiment, sample.point));
                    }
                }
            }
            Event::Left { done, all, time } => {
                self.left = Some(time);
                self.bar.set_length(all);
                self.bar.set_position(done);
                self.bar.set_message(format!("{} left", format_duration(time)));
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
