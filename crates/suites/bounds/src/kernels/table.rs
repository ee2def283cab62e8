//! Mechanisms as rows: what each costs each kernel, and which bugs it catches.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use lab::journal::Run;
use lab::point::Point;
use lab::sample::Failure;
use lab::statistics::{IntervalKind, Ratio, median};
use lab::summary::{Observed, Rounds, Unit, newest_environment, paired, rounds, samples};

use super::detection::BUGS;
use super::kernel::NAMES;
use super::manifest::{Mechanism, manifest};
use crate::hand::Error;
use crate::hand::text::wrapped;

const KERNELS: &str = "bounds/kernels";
const DETECTION: &str = "bounds/detection";
const NAME: usize = 25;
/// The narrowest cell: `10.0–12.0`, and a space.
const CELL: usize = 10;

/// How wide the cells of a kernel are.
fn width(kernel: &str) -> usize {
    CELL.max(kernel.len() + 1)
}

/// The bugs as the table's last column has them, in the order of [`BUGS`].
const LETTERS: [char; 6] = ['H', 'S', 'M', 'F', 'U', 'C'];
const LEGEND: &str = "caught: H past a heap block, S past a stack array, M past a member of a struct, \
    F far past a block,\n        U use after free, C past a block through memcpy; · not caught, ? not tried";

/// Writes the table of a run that holds both experiments.
pub(super) fn write(run: &Run) -> Result<String, Error> {
    let times = observed(run, KERNELS, "per_operation");
    let caught = observed(run, DETECTION, "caught");
    let kernels = NAMES.iter().filter(|name| has_level(&times, "kernel", name));
    Table {
        kernels: kernels.copied().collect(),
        times: &times,
        caught: &caught,
        failures: failures(run),
    }
    .write()
}

/// The first thing that went wrong with each mechanism.
fn failures(run: &Run) -> BTreeMap<String, Failure> {
    let mut failures = BTreeMap::new();
    for experiment in [KERNELS, DETECTION] {
        let environment = newest_environment(run, experiment).unwrap_or_default();
        for sample in samples(run, experiment, environment) {
            if let Some(failure) = &sample.error {
                let mechanism = sample.point.text("mechanism").to_owned();
                failures.entry(mechanism).or_insert_with(|| failure.clone());
            }
        }
    }
    failures
}

/// What a run has of a metric: nothing where the experiment was not measured.
fn observed(run: &Run, experiment: &str, metric: &str) -> Observed {
    let environment = newest_environment(run, experiment);
    environment.map_or_else(Observed::default, |environment| {
        rounds(run, experiment, metric, environment, Unit::Own)
    })
}

fn has_level(observed: &Observed, factor: &str, level: &str) -> bool {
    observed.points.keys().any(|point| point.text(factor) == level)
}

struct Table<'a> {
    times: &'a Observed,
    caught: &'a Observed,
    kernels: Vec<&'static str>,
    /// By mechanism.
    failures: BTreeMap<String, Failure>,
}

impl Table<'_> {
    fn write(&self) -> Result<String, Error> {
        let mut text = String::new();
        let head = "overhead: ratio to the same compiler without it; ns an operation";
        writeln!(text, "{head}{}", self.setting())?;
        let cells = self.kernels.iter().map(|name| (*name).to_owned());
        self.line(&mut text, "", cells, "caught")?;
        let cells: usize = self.kernels.iter().map(|kernel| width(kernel)).sum();
        let width = NAME + cells + 2 * LETTERS.len() - 1;
        writeln!(text, "{}", "─".repeat(width))?;
        let (mut notes, mut surprises) = (Vec::new(), Vec::new());
        for mechanism in &manifest()?.mechanisms {
            self.rows(&mut text, mechanism, &mut notes, &mut surprises)?;
        }
        writeln!(text, "\n{LEGEND}")?;
        for note in notes.into_iter().chain(surprises) {
            writeln!(text, "{}", wrapped(&note))?;
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

    /// Size and pages, which all rows share.
    fn setting(&self) -> String {
        let first = self.times.points.keys().next();
        first.map_or_else(String::new, |point| {
            format!("; {} of {} pages", point.text("size"), point.text("pages"))
        })
    }

    /// The ratio and the time of a mechanism, and what the source published of it. A mechanism that was
    /// asked for and has neither figures nor bugs becomes a note, with its published figures above.
    fn rows(
        &self,
        text: &mut String,
        mechanism: &Mechanism,
        notes: &mut Vec<String>,
        surprises: &mut Vec<String>,
    ) -> Result<(), Error> {
        let failure = self.failures.get(&mechanism.name);
        let is_there = has_level(self.times, "mechanism", &mechanism.name)
            || has_level(self.caught, "mechanism", &mechanism.name);
        if !is_there && failure.is_none() {
            return Ok(());
        }
        let marked = match failure {
            Some(failure) => {
                format!("{} [{}]", mechanism.name, numbered(notes, failure))
            }
            None => mechanism.name.clone(),
        };
        if is_there {
            let times = self.kernels.iter().map(|kernel| self.time(mechanism, kernel));
            let caught = self.caught(mechanism);
            surprises.extend(self.surprise(mechanism));
            if mechanism.baseline.is_some() {
                let ratios: Vec<Option<Ratio>> =
                    self.kernels.iter().map(|kernel| self.overhead(mechanism, kernel)).collect();
                self.line(text, &marked, ratios.iter().map(told), &caught)?;
                if let Some(name) = ratios.iter().flatten().find_map(spread) {
                    self.line(text, name, ratios.iter().map(between), "")?;
                }
                self.line(text, "  ns", times, "")?;
            } else {
                self.line(text, &marked, self.kernels.iter().map(|_| String::new()), &caught)?;
                self.line(text, "  ns", times, "")?;
            }
        } else {
            self.line(text, &marked, self.kernels.iter().map(|_| "—".to_owned()), &"? ".repeat(6))?;
        }
        if !mechanism.published.is_empty() {
            let published = |kernel: &&str| mechanism.published.get(*kernel);
            let cell = |kernel| published(kernel).map_or("".into(), |ratio| format!("{ratio:.2}"));
            self.line(text, "  published", self.kernels.iter().map(cell), "")?;
        }
        Ok(())
    }

    /// The rounds of a kernel under a mechanism.
    fn of(&self, mechanism: &str, kernel: &str) -> Option<&Rounds> {
        let is =
            |point: &Point| point.text("mechanism") == mechanism && point.text("kernel") == kernel;
        self.times.points.iter().find(|(point, _)| is(point)).map(|(_, rounds)| rounds)
    }

    fn overhead(&self, mechanism: &Mechanism, kernel: &str) -> Option<Ratio> {
        let own = self.of(&mechanism.name, kernel)?;
        paired(own, self.of(mechanism.baseline.as_deref()?, kernel)?).ok()
    }

    fn time(&self, mechanism: &Mechanism, kernel: &str) -> String {
        let rounds = self.of(&mechanism.name, kernel);
        let values = rounds.map(|rounds| rounds.values().map(|it| it.value).collect::<Vec<_>>());
        let time = values.and_then(|values| median(&values));
        time.map_or_else(|| "—".into(), three_digits)
    }

    /// Whether a mechanism caught a bug in every round; nothing where it was not tried.
    fn catches(&self, mechanism: &Mechanism, bug: &str) -> Option<bool> {
        let point = Point::from([("bug", bug), ("mechanism", mechanism.name.as_str())]);
        let rounds = self.caught.points.get(&point)?;
        Some(rounds.values().all(|it| it.value == 1.0))
    }

    fn caught(&self, mechanism: &Mechanism) -> String {
        let mark = |(bug, letter): (&&str, char)| match self.catches(mechanism, bug) {
            Some(true) => letter,
            Some(false) => '·',
            None => '?',
        };
        let marks = BUGS.iter().zip(LETTERS).map(|it| mark(it).to_string());
        marks.collect::<Vec<_>>().join(" ")
    }

    /// Where a mechanism catches more or less than the manifest expects: another version of it may.
    fn surprise(&self, mechanism: &Mechanism) -> Option<String> {
        let expected = |bug: &str| mechanism.catches.iter().any(|one| one == bug);
        let differs = |bug: &&&str| {
            self.catches(mechanism, bug).is_some_and(|caught| caught != expected(bug))
        };
        let bugs: Vec<_> = BUGS.iter().filter(differs).copied().collect();
        let name = &mechanism.name;
        let told = || format!("{name}: unlike what mechanisms.toml expects: {}", bugs.join(", "));
        (!bugs.is_empty()).then(told)
    }
}

/// The number of a failure among the notes, which have each once.
fn numbered(notes: &mut Vec<String>, failure: &Failure) -> usize {
    let note = |number: usize| format!("[{number}] {failure}");
    let known = notes.iter().enumerate().find(|(at, told)| **told == note(at + 1));
    known.map(|(at, _)| at + 1).unwrap_or_else(|| {
        notes.push(note(notes.len() + 1));
        notes.len()
    })
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
    use super::*;
    use lab::summary::Observation;

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
        let table = Table {
            times: &times,
            caught: &caught,
            kernels: vec!["struct", "ptrcreation"],
            failures: BTreeMap::from([("gcc-mpx".into(), absent)]),
        };
        let text = table.write().unwrap();
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
        let told = Table { caught: &missed, ..table }.write().unwrap();
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
