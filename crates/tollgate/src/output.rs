//! Output to standard output, and messages and progress on standard error.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::Path;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lab::quantity::format_duration;
use lab::run::{Event, RunObserver};
use lab::terminal::{self, one_line};
use report::format::count;

use crate::error::CliError;

/// Prints tables or help, in which control characters are already replaced, with a final line feed.
/// It is not an error if the reader closed the pipe (`tollgate show | head`).
pub(crate) fn print(text: &str) -> Result<(), CliError> {
    let mut out = anstream::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    let written = write!(out, "{text}{end}").and_then(|()| out.flush());
    match written {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(e) => Err(output_error(&e)),
        Ok(()) => Ok(()),
    }
}

/// Returns the error of standard output.
pub(crate) fn output_error(why: &io::Error) -> CliError {
    CliError::failed(format!("standard output: {why}; free space or redirect it elsewhere"))
}

/// Prints lines without style, with control characters replaced.
pub(crate) fn print_plain(text: &str) -> Result<(), CliError> {
    print(&terminal::lines(text))
}

/// Prints JSON.
pub(crate) fn print_json(value: &serde_json::Value) -> Result<(), CliError> {
    print(&terminal::json(value))
}

/// Prints a line on standard error; errors are ignored.
pub(crate) fn report(line: &str) {
    let _ = writeln!(anstream::stderr(), "{}", one_line(line));
}

/// Returns the message about a system setting that was restored.
pub(crate) fn restored(setting: &Path) -> String {
    format!("{}: restored; a killed run had changed it", setting.display())
}

/// Prints an error on standard error.
pub(crate) fn print_error(error: &CliError) {
    let red = anstyle::AnsiColor::Red.on_default().bold();
    let line = error.to_string();
    let _ = writeln!(anstream::stderr(), "{red}error{red:#}: {}", one_line(&line));
}

/// Number of failed samples that are reported at once; all are counted at the end.
const MAX_REPORTED: u64 = 5;

/// Progress of a run: a bar on a terminal, else one line per experiment.
pub(crate) struct Progress {
    bar: ProgressBar,
    failures: u64,
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
        Self { bar, failures: 0, shows_projections }
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn report(&self, line: &str) {
        self.bar.suspend(|| report(line));
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
            Event::Experiment { experiment } => {
                self.bar.set_prefix(one_line(&experiment.id()).into_owned());
                if self.bar.is_hidden() {
                    let points = count(experiment.points.len(), "point");
                    let rounds = count(experiment.effort.rounds as usize, "round");
                    self.report(&format!("{}: {points}, at most {rounds}", experiment.id()));
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
