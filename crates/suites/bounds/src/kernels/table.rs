//! Mechanisms as rows: what each costs each kernel, and which bugs it catches.

use std::fmt::Write as _;

use lab::journal::Run;
use lab::statistics::{IntervalKind, Ratio};

use super::detection::BUGS;
use super::manifest::{Mechanism, manifest};
use super::outcomes::Outcomes;
use crate::hand::Error;
use crate::hand::text::{Notes, wrapped};

const NAME: usize = 25;
/// The narrowest cell: `10.0–12.0`, and a space.
const CELL: usize = 10;

/// How wide the cells of a kernel are.
fn width(kernel: &str) -> usize {
    CELL.max(kernel.len() + 1)
}

/// The bugs as the table's last column has them, in the order of [`BUGS`].
const LETTERS: [char; BUGS.len()] = ['H', 'S', 'M', 'F', 'U', 'C'];
const LEGEND: &str = "caught: H past a heap block, S past a stack array, M past a member of a struct, \
    F far past a block,\n        U use after free, C past a block through memcpy; · not caught, ? not tried";

/// Writes the table of a run that holds both experiments.
pub(super) fn write(run: &Run) -> Result<String, Error> {
    let outcomes = Outcomes::of(run);
    Table { kernels: outcomes.kernels(), outcomes: &outcomes }.write()
}

struct Table<'a> {
    outcomes: &'a Outcomes,
    kernels: Vec<&'static str>,
}

impl Table<'_> {
    fn write(&self) -> Result<String, Error> {
        let mut text = String::new();
        let head = "overhead: ratio to the same compiler without it; ns an operation";
        writeln!(text, "{head}{}", self.outcomes.setting())?;
        let cells = self.kernels.iter().map(|name| (*name).to_owned());
        self.line(&mut text, "", cells, "caught")?;
        let cells: usize = self.kernels.iter().map(|kernel| width(kernel)).sum();
        let width = NAME + cells + 2 * LETTERS.len() - 1;
        writeln!(text, "{}", "─".repeat(width))?;
        let (mut notes, mut surprises) = (Notes::default(), Vec::new());
        for mechanism in &manifest()?.mechanisms {
            self.rows(&mut text, mechanism, &mut notes, &mut surprises)?;
        }
        write!(text, "\n{LEGEND}\n{}", notes.text())?;
        for surprise in surprises {
            writeln!(text, "{}", wrapped(&surprise))?;
        }
        Ok(text)
    }

    fn line(
        &self,
        text: &mut String,
        name: &str,
        cells: impl Iterator<Item = String>,
        last: &str,
    ) -> std::fmt::Result {
        let widths = self.kernels.iter().map(|kernel| width(kernel));
        let cells: String =
            cells.zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        writeln!(text, "{}", format!("{name:<NAME$}{cells}{last}").trim_end())
    }

    /// The ratio and the time of a mechanism, and what the source published of it. A mechanism that was
    /// asked for and has neither figures nor bugs becomes a note, with its published figures above.
    fn rows(
        &self,
        text: &mut String,
        mechanism: &Mechanism,
        notes: &mut Notes,
        surprises: &mut Vec<String>,
    ) -> Result<(), Error> {
        let failure = self.outcomes.failures.get(&mechanism.name);
        let is_there = self.outcomes.has(mechanism);
        if !is_there && failure.is_none() {
            return Ok(());
        }
        let note = failure.map(|failure| format!(" [{}]", notes.number(&failure.to_string())));
        let name = format!("{}{}", mechanism.name, note.unwrap_or_default());
        if is_there {
            self.figures(text, mechanism, &name)?;
            surprises.extend(self.outcomes.surprise(mechanism));
        } else {
            self.line(
                text,
                &name,
                self.kernels.iter().map(|_| "—".to_owned()),
                &"? ".repeat(BUGS.len()),
            )?;
        }
        if !mechanism.published.is_empty() {
            let published = |kernel: &&str| mechanism.published.get(*kernel);
            let cell = |kernel| published(kernel).map_or("".into(), |ratio| format!("{ratio:.2}"));
            self.line(text, "  published", self.kernels.iter().map(cell), "")?;
        }
        Ok(())
    }

    /// Overhead, what it is between, ns an operation.
    fn figures(&self, text: &mut String, mechanism: &Mechanism, name: &str) -> std::fmt::Result {
        let ratio = |kernel: &&str| self.outcomes.overhead(mechanism, kernel);
        let ratios: Vec<Option<Ratio>> = self.kernels.iter().map(ratio).collect();
        let is_baseline = mechanism.baseline.is_none();
        let cell = |ratio| if is_baseline { String::new() } else { told(ratio) };
        self.line(text, name, ratios.iter().map(cell), &self.caught(mechanism))?;
        if let Some(name) = ratios.iter().flatten().find_map(spread) {
            self.line(text, name, ratios.iter().map(between), "")?;
        }
        let time = |kernel: &&str| self.outcomes.time(mechanism, kernel);
        let time = |kernel| time(kernel).map_or_else(|| "—".into(), three_digits);
        self.line(text, "  ns", self.kernels.iter().map(time), "")
    }

    fn caught(&self, mechanism: &Mechanism) -> String {
        let mark = |(bug, letter): (&&str, char)| match self.outcomes.catches(mechanism, bug) {
            Some(true) => letter,
            Some(false) => '·',
            None => '?',
        };
        let marks = BUGS.iter().zip(LETTERS).map(|it| mark(it).to_string());
        marks.collect::<Vec<_>>().join(" ")
    }
}

/// The ratio itself.
fn told(ratio: &Option<Ratio>) -> String {
    ratio.as_ref().map_or_else(|| "—".into(), |ratio| number(ratio.ratio))
}

/// Between what it lies; nothing for one round.
fn between(ratio: &Option<Ratio>) -> String {
    let ratio = ratio.as_ref().filter(|ratio| spread(ratio).is_some());
    ratio.map_or_else(String::new, |Ratio { interval, .. }| {
        format!("{}–{}", number(interval.low), number(interval.high))
    })
}

/// What that is called: of few rounds it is their range.
fn spread(ratio: &Ratio) -> Option<&'static str> {
    match ratio.interval.kind {
        IntervalKind::Single => None,
        IntervalKind::Range => Some("  range"),
        _ => Some("  interval"),
    }
}

fn number(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

fn three_digits(value: f64) -> String {
    let before = value.abs().log10().floor() as i32 + 1;
    format!("{value:.*}", (3 - before).clamp(0, 3) as usize)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use lab::point::Point;
    use lab::sample::Failure;
    use lab::summary::{Observation, Observed};

    use super::*;

    fn observed(values: &[(&str, &str, [f64; 2])], factor: &str) -> Observed {
        let mut observed = Observed::default();
        for (level, mechanism, values) in values {
            let point = Point::from([(factor, *level), ("mechanism", *mechanism)]);
            let rounds =
                (0..).zip(values.map(|value| Observation { value, class: None })).collect();
            observed.points.insert(point, rounds);
        }
        observed
    }

    #[test]
    fn rows_have_ratio_time_and_bugs() {
        let times = observed(
            &[
                ("struct", "gcc", [0.5, 0.5]),
                ("struct", "gcc-asan", [1.0, 1.5]),
                ("ptrcreation", "gcc", [2.0, 2.0]),
            ],
            "kernel",
        );
        let caught =
            observed(&[("heap", "gcc-asan", [1.0, 1.0]), ("far", "gcc-asan", [0.0, 0.0])], "bug");
        let absent = Failure::unavailable("the compiler gcc-mpx is not installed", "buy one");
        let failures = BTreeMap::from([("gcc-mpx".into(), absent)]);
        let outcomes = Outcomes { times, caught, failures };
        let written =
            |outcomes: &Outcomes| Table { outcomes, kernels: outcomes.kernels() }.write().unwrap();
        let text = written(&outcomes);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "                         struct    ptrcreation caught");
        assert_eq!(lines[3], "gcc                                            ? ? ? ? ? ?");
        assert_eq!(lines[4], "  ns                     0.500     2.00");
        assert_eq!(lines[5], "gcc-asan                 2.45      —           H ? ? · ? ?");
        assert_eq!(lines[6], "  range                  2.00–3.00");
        assert_eq!(lines[7], "  ns                     1.25      —");
        assert_eq!(lines[8], "gcc-mpx [1]              —         —           ? ? ? ? ? ?");
        assert_eq!(lines[9], "  published              2.80      5.31");
        assert_eq!(lines[10], "");
        // ASan is known to catch what is past a heap block and to miss what is far.
        assert!(!text.contains("unlike"), "{text}");
        let missed = observed(&[("heap", "gcc-asan", [1.0, 0.0])], "bug");
        let told = written(&Outcomes { caught: missed, ..outcomes });
        assert!(told.contains("gcc-asan: unlike what mechanisms.toml expects: heap"), "{told}");
        let note = "[1] unavailable: the compiler gcc-mpx is not installed (buy one)";
        assert_eq!(lines.last(), Some(&note));
    }

    #[test]
    fn three_digits_count() {
        assert_eq!(
            ["0.123", "1.23", "12.3", "123", "1235"].map(String::from),
            [0.1234, 1.234, 12.34, 123.4, 1234.6].map(three_digits)
        );
    }
}
