//! The table of mechanisms: the overhead of each kernel and the caught bugs.

use std::fmt::Write as _;

use lab::journal::Run;
use lab::statistics::{IntervalKind, Ratio};
use lab::table::{Emphasis, Footnotes, Page};

use super::manifest::{Mechanism, manifest};
use super::outcomes::Outcomes;
use super::programs::{Bug, Kernel};
use crate::cli::Error;

const NAME: usize = 25;
/// Minimum width of a cell: `10.0–12.0` and a space.
const CELL: usize = 10;

/// Returns the width of the cells of a kernel.
fn width(kernel: Kernel) -> usize {
    CELL.max(kernel.name().len() + 1)
}

/// Letters of the bugs in the last column, in the order of [`Bug::ALL`].
const LETTERS: [char; Bug::ALL.len()] = ['H', 'S', 'M', 'F', 'U', 'C'];
const LEGEND: &str = "caught: H past a heap block, S past a stack array, M past a member of a struct, \
    F far past a block,\n        U use after free, C past a block through memcpy; · not caught, ? not tried";

/// Returns the table of a run of both experiments.
pub(super) fn write(run: &Run) -> Result<String, Error> {
    let outcomes = Outcomes::from_run(run);
    Table { kernels: outcomes.kernels(), outcomes: &outcomes }.write()
}

struct Table<'a> {
    outcomes: &'a Outcomes,
    kernels: Vec<Kernel>,
}

impl Table<'_> {
    fn write(&self) -> Result<String, Error> {
        let mut text = String::new();
        let head = "overhead as a ratio to the same compiler alone; ns per operation";
        writeln!(text, "{head}{}", self.outcomes.conditions())?;
        let cells = self.kernels.iter().map(|kernel| kernel.name().to_owned());
        self.line(&mut text, "", cells, "caught")?;
        let cells: usize = self.kernels.iter().map(|kernel| width(*kernel)).sum();
        let width = NAME + cells + 2 * LETTERS.len() - 1;
        writeln!(text, "{}", "─".repeat(width))?;
        let (mut notes, mut unexpected) = (Footnotes::default(), Vec::new());
        for mechanism in &manifest()?.mechanisms {
            self.rows(&mut text, mechanism, &mut notes, &mut unexpected)?;
        }
        write!(text, "\n{LEGEND}\n{}", notes.text(Page::default()))?;
        for line in unexpected {
            text += &Page::default().paragraph(&line, 4, Emphasis::Plain);
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
        let widths = self.kernels.iter().map(|kernel| width(*kernel));
        let cells: String =
            cells.zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        writeln!(text, "{}", format!("{name:<NAME$}{cells}{last}").trim_end())
    }

    /// Writes the ratios and times of a mechanism, and the published ratios. A requested mechanism without results
    /// gets a note.
    fn rows(
        &self,
        text: &mut String,
        mechanism: &Mechanism,
        notes: &mut Footnotes,
        unexpected: &mut Vec<String>,
    ) -> Result<(), Error> {
        let failure = self.outcomes.failures.get(&mechanism.name);
        let has_results = self.outcomes.has(mechanism);
        if !has_results && failure.is_none() {
            return Ok(());
        }
        let note = failure.map(|failure| format!(" {}", notes.mark(&failure.to_string())));
        let name = format!("{}{}", mechanism.name, note.unwrap_or_default());
        if has_results {
            self.values(text, mechanism, &name)?;
            unexpected.extend(self.outcomes.unexpected(mechanism));
        } else {
            self.line(
                text,
                &name,
                self.kernels.iter().map(|_| "—".to_owned()),
                &"? ".repeat(Bug::ALL.len()),
            )?;
        }
        if !mechanism.published.is_empty() {
            let cell = |kernel| {
                mechanism.published.get(kernel).map_or("".into(), |ratio| format!("{ratio:.2}"))
            };
            self.line(text, "  published", self.kernels.iter().map(cell), "")?;
        }
        Ok(())
    }

    /// Writes the overheads, their intervals and ns per operation.
    fn values(&self, text: &mut String, mechanism: &Mechanism, name: &str) -> std::fmt::Result {
        let ratio = |kernel: &Kernel| self.outcomes.overhead(mechanism, *kernel);
        let ratios: Vec<Option<Ratio>> = self.kernels.iter().map(ratio).collect();
        let is_baseline = mechanism.baseline.is_none();
        let cell = |ratio| if is_baseline { String::new() } else { ratio_text(ratio) };
        self.line(text, name, ratios.iter().map(cell), &self.caught(mechanism))?;
        if let Some(name) = ratios.iter().flatten().find_map(interval_name) {
            self.line(text, name, ratios.iter().map(interval_text), "")?;
        }
        let time = |kernel: &Kernel| self.outcomes.time(mechanism, *kernel);
        let time = |kernel| time(kernel).map_or_else(|| "—".into(), three_digits);
        self.line(text, "  ns", self.kernels.iter().map(time), "")
    }

    fn caught(&self, mechanism: &Mechanism) -> String {
        let mark = |(bug, letter): (Bug, char)| match self.outcomes.catches(mechanism, bug) {
            Some(true) => letter,
            Some(false) => '·',
            None => '?',
        };
        let marks = Bug::ALL.into_iter().zip(LETTERS).map(|it| mark(it).to_string());
        marks.collect::<Vec<_>>().join(" ")
    }
}

fn ratio_text(ratio: &Option<Ratio>) -> String {
    ratio.as_ref().map_or_else(|| "—".into(), |ratio| number(ratio.ratio))
}

/// Returns the interval of a ratio; empty for one round.
fn interval_text(ratio: &Option<Ratio>) -> String {
    let ratio = ratio.as_ref().filter(|ratio| interval_name(ratio).is_some());
    ratio.map_or_else(String::new, |Ratio { interval, .. }| {
        format!("{}–{}", number(interval.low), number(interval.high))
    })
}

/// Returns the name of the interval: the range if there are few rounds; `None` for one round.
fn interval_name(ratio: &Ratio) -> Option<&'static str> {
    match ratio.interval.kind {
        IntervalKind::Single => None,
        IntervalKind::Range => Some("  range"),
        IntervalKind::Confidence => Some("  interval"),
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
    let integer_digits = value.abs().log10().floor() as i32 + 1;
    format!("{value:.*}", (3 - integer_digits).clamp(0, 3) as usize)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use lab::point::Point;
    use lab::sample::Failure;
    use lab::statistics::Censored;
    use lab::summary::{Observation, Observed};

    use super::*;

    fn observed(values: &[(&str, &str, [f64; 2])], factor: &str) -> Observed {
        let mut observed = Observed::default();
        for (level, mechanism, values) in values {
            let point = Point::from([(factor, *level), ("mechanism", *mechanism)]);
            let rounds = (0..)
                .zip(values.map(|value| Observation {
                    value,
                    resolution: 0.0,
                    class: None,
                    sharing: None,
                    session: 1,
                    censored: Censored::default(),
                }))
                .collect();
            observed.points.insert(point, rounds);
        }
        observed
    }

    #[test]
    fn rows_contain_ratio_time_and_bugs() {
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
        let table =
            |outcomes: &Outcomes| Table { outcomes, kernels: outcomes.kernels() }.write().unwrap();
        let text = table(&outcomes);
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
        // The manifest expects ASan to catch `heap` and to miss `far`.
        assert!(!text.contains("otherwise"), "{text}");
        let missed = observed(&[("heap", "gcc-asan", [1.0, 0.0])], "bug");
        let text = table(&Outcomes { caught: missed, ..outcomes });
        assert!(text.contains("gcc-asan: mechanisms.toml expects otherwise: heap"), "{text}");
        let note = "[1] unavailable: the compiler gcc-mpx is not installed (buy one)";
        assert_eq!(lines.last(), Some(&note));
    }

    #[test]
    fn values_have_three_significant_digits() {
        assert_eq!(
            ["0.123", "1.23", "12.3", "123", "1235"].map(String::from),
            [0.1234, 1.234, 12.34, 123.4, 1234.6].map(three_digits)
        );
    }
}
