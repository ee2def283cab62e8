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

const KERNELS: &str = "bounds/kernels";
const DETECTION: &str = "bounds/detection";
const NAME: usize = 26;
const CELL: usize = 18;
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
        let head = "overhead (ratio to the same compiler without it, with its interval), and ns an operation";
        writeln!(text, "{head}{}", self.setting())?;
        let cells = self.kernels.iter().map(|name| (*name).to_owned());
        line(&mut text, "", cells, "caught")?;
        let width = NAME + self.kernels.len() * CELL + 2 * LETTERS.len();
        writeln!(text, "{}", "─".repeat(width))?;
        let (mut notes, mut surprises) = (Vec::new(), Vec::new());
        for mechanism in &manifest()?.mechanisms {
            self.rows(&mut text, mechanism, &mut notes, &mut surprises)?;
        }
        writeln!(text, "\n{LEGEND}")?;
        for note in notes.into_iter().chain(surprises) {
            writeln!(text, "{note}")?;
        }
        Ok(text)
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
                let ratios = self.kernels.iter().map(|kernel| self.overhead(mechanism, kernel));
                line(text, &marked, ratios, &caught)?;
                line(text, "", times, "")?;
            } else {
                line(text, &marked, times, &caught)?;
            }
        } else {
            line(text, &marked, self.kernels.iter().map(|_| "—".to_owned()), &"? ".repeat(6))?;
        }
        if !mechanism.published.is_empty() {
            let published = |kernel: &&str| mechanism.published.get(*kernel);
            let cell = |kernel| published(kernel).map_or("".into(), |ratio| format!("{ratio:.2}"));
            line(text, "  published", self.kernels.iter().map(cell), "")?;
        }
        Ok(())
    }

    /// The rounds of a kernel under a mechanism.
    fn of(&self, mechanism: &str, kernel: &str) -> Option<&Rounds> {
        let is =
            |point: &Point| point.text("mechanism") == mechanism && point.text("kernel") == kernel;
        self.times.points.iter().find(|(point, _)| is(point)).map(|(_, rounds)| rounds)
    }

    fn overhead(&self, mechanism: &Mechanism, kernel: &str) -> String {
        let ratio = || {
            let own = self.of(&mechanism.name, kernel)?;
            paired(own, self.of(mechanism.baseline.as_deref()?, kernel)?).ok()
        };
        ratio().map_or_else(|| "—".into(), |ratio| told(&ratio))
    }

    fn time(&self, mechanism: &Mechanism, kernel: &str) -> String {
        let rounds = self.of(&mechanism.name, kernel);
        let values = rounds.map(|rounds| rounds.values().map(|it| it.value).collect::<Vec<_>>());
        let time = values.and_then(|values| median(&values));
        time.map_or_else(|| "—".into(), |time| format!("{} ns", three_digits(time)))
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

fn line(
    text: &mut String,
    name: &str,
    cells: impl Iterator<Item = String>,
    last: &str,
) -> std::fmt::Result {
    let cells: String = cells.map(|cell| format!("{cell:<CELL$}")).collect();
    writeln!(text, "{}", format!("{name:<NAME$}{cells}{last}").trim_end())
}

/// `1.44 (1.41–1.48)`; a range of few rounds is in brackets of its own.
fn told(ratio: &Ratio) -> String {
    let number = |value: f64| match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    };
    let alone = number(ratio.ratio);
    let both = format!("{}–{}", number(ratio.interval.low), number(ratio.interval.high));
    match ratio.interval.kind {
        IntervalKind::Single => alone,
        IntervalKind::Range => format!("{alone} [{both}]"),
        _ => format!("{alone} ({both})"),
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
        assert_eq!(
            lines[1],
            "                          struct            ptrcreation       caught"
        );
        assert_eq!(
            lines[3],
            "gcc                       0.500 ns          2.00 ns           ? ? ? ? ? ?"
        );
        assert_eq!(
            lines[4],
            "gcc-asan                  2.45 [2.00–3.00]  —                 H ? ? · ? ?"
        );
        assert_eq!(lines[5], "                          1.25 ns           —");
        assert_eq!(
            lines[6],
            "gcc-mpx [1]               —                 —                 ? ? ? ? ? ?"
        );
        assert_eq!(lines[7], "  published               2.80              5.31");
        assert_eq!(lines[8], "");
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
