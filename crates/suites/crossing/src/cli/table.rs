//! xperf's table with this machine's rows, and the parts of a round trip.

use std::fmt::Write as _;

use lab::catalogue::Catalogue;
use lab::claim::Claim;
use lab::journal::Run;
use lab::point::Point;
use lab::summary::{Row, Unit, summarise};
use lab::table::{Emphasis, Page};

use crate::SUITE;
use crate::cli::Error;

const ONE_WAY: &str = "crossing/one-way";
const TRACEPOINT: &str = "crossing/tracepoint";
const ROUND_TRIPS: &str = "crossing/round-trips";
/// Width of the table, columns.
const WIDTH: usize = 82;
const PAGE: Page = Page { width: WIDTH, colour: false };
/// The source of the published rows.
const SOURCE: &str = "xperf";

/// Routes and their names, in the order of the table.
const ROUTES: &[(&str, &str)] = &[
    ("guest", "micro-guest under KVM"),
    ("patched", "this Linux, patched"),
    ("patched-vm", "patched Linux under KVM"),
    ("bare-metal", "micro-guest on bare metal"),
];

/// Explanation of the labels of rows with isolation on.
const CR3: &str = "with CR3: isolation's writes of CR3 are between the stamps; without CR3: Linux writes CR3 \
                   between its two stamps, which is included in the kernel's part";

/// Returns the label of a route's row with isolation on.
fn cr3_label(route: &str) -> &'static str {
    match route {
        "guest" | "bare-metal" => " (with CR3)",
        _ => " (without CR3)",
    }
}

/// Formats the table. `imported` is a run with samples from bare metal.
pub(super) fn format(run: &Run, imported: Option<&Run>) -> Result<String, Error> {
    let mut table = Table { text: String::new(), notes: Vec::new() };
    table.published()?;
    table.measured(run, imported)?;
    table.spread(run, imported)?;
    table.round_trip(run)?;
    for line in crate::consistency::contradictions(run) {
        writeln!(table.text, "\ncontradiction: {line}")?;
    }
    if !table.notes.is_empty() {
        writeln!(table.text)?;
    }
    for (index, note) in table.notes.iter().enumerate() {
        let note = format!("[{}] {note}", index + 1);
        table.text += &PAGE.paragraph(&note, 4, Emphasis::Plain);
    }
    Ok(table.text)
}

struct Table {
    text: String,
    notes: Vec<String>,
}

impl Table {
    fn line(&mut self, name: &str, cells: [&str; 2]) -> std::fmt::Result {
        writeln!(self.text, "{name:<52}{:>15}{:>15}", cells[0], cells[1])
    }

    fn rule(&mut self) -> std::fmt::Result {
        writeln!(self.text, "{}", "─".repeat(WIDTH))
    }

    /// Writes the published rows, from the suite's claims.
    fn published(&mut self) -> Result<(), Error> {
        writeln!(self.text, "Page fault, each way, in ticks of the time-stamp counter")?;
        self.line("", ["user to kernel", "kernel to user"])?;
        self.rule()?;
        let claims = Catalogue::of_suite(&SUITE)?.claims()?;
        let published = |row: &str, metric: &str| {
            let is = |claim: &&Claim| {
                claim.source.contains(SOURCE)
                    && claim.metric.as_deref() == Some(metric)
                    && claim.id.contains(row)
            };
            let value = claims.iter().find(is).and_then(|claim| claim.published.clone());
            value.map_or_else(String::new, |published| format!("~{}", published.value))
        };
        for (row, name) in [("-vm-", "published: VM"), ("-metal-", "published: bare metal")] {
            let cells = [published(row, "u2k"), published(row, "k2u")];
            self.line(name, [&cells[0], &cells[1]])?;
        }
        Ok(())
    }

    fn measured(&mut self, run: &Run, imported: Option<&Run>) -> Result<(), Error> {
        self.rule()?;
        for (route, name) in ROUTES {
            let run = if *route == "bare-metal" { imported.unwrap_or(run) } else { run };
            for isolation in ["off", "on"] {
                let is = |point: &Point| {
                    point.text("route") == *route
                        && point.text("kind") == "page-fault"
                        && point.text("isolation") == isolation
                };
                let u2k = self.cell(run, ONE_WAY, "u2k", Unit::Ticks, is);
                let k2u = self.cell(run, ONE_WAY, "k2u", Unit::Ticks, is);
                let label = if isolation == "on" { cr3_label(route) } else { "" };
                self.line(&format!("{name}, isolation {isolation}{label}"), [&u2k, &k2u])?;
            }
        }
        for through in ["tracefs", "bpf"] {
            let is = |point: &Point| {
                point.text("event") == "page-fault" && point.text("through") == through
            };
            let u2t = self.cell(run, TRACEPOINT, "u2t", Unit::Ticks, is);
            let at_most = if u2t.starts_with(char::is_numeric) { "at most " } else { "" };
            self.line(
                &format!("this Linux, to its tracepoint ({through})"),
                [&format!("{at_most}{u2t}"), ""],
            )?;
        }
        self.text += &PAGE.paragraph(CR3, 4, Emphasis::Plain);
        if let Some(step) = step(run) {
            writeln!(self.text, "one step of this counter: {step} ticks")?;
        }
        Ok(())
    }

    /// Writes minimum, median and tails of all rows with values, in ticks, if there are any.
    fn spread(&mut self, run: &Run, imported: Option<&Run>) -> Result<(), Error> {
        let mut lines = Vec::new();
        for (route, name) in ROUTES {
            let run = if *route == "bare-metal" { imported.unwrap_or(run) } else { run };
            for (metric, way) in [("u2k", "in"), ("k2u", "out")] {
                let is = |point: &Point| {
                    point.text("route") == *route && point.text("kind") == "page-fault"
                };
                lines.extend(
                    spread(run, ONE_WAY, metric, is).map(|s| (format!("{name}, {way}"), s)),
                );
            }
        }
        for through in ["tracefs", "bpf"] {
            let is = |point: &Point| {
                point.text("event") == "page-fault" && point.text("through") == through
            };
            let name = format!("this Linux, to its tracepoint ({through})");
            lines.extend(spread(run, TRACEPOINT, "u2t", is).map(|spread| (name, spread)));
        }
        if lines.is_empty() {
            return Ok(());
        }
        writeln!(self.text, "\nDistribution of page faults, in ticks")?;
        let head = ["minimum", "median", "99%", "99.9%"];
        writeln!(self.text, "{:<46}{:>9}{:>9}{:>9}{:>9}", "", head[0], head[1], head[2], head[3])?;
        self.rule()?;
        for (name, [min, median, p99, p999]) in lines {
            writeln!(self.text, "{name:<46}{min:>9.0}{median:>9.0}{p99:>9.0}{p999:>9.0}")?;
        }
        Ok(())
    }

    /// Writes hardware, entry code and work of a page fault and of a system call, as far as measured.
    fn round_trip(&mut self, run: &Run) -> Result<(), Error> {
        let trip = |name: &'static str| {
            let is =
                move |point: &Point| point.text("trip") == name && point.text("by") == "tollgate";
            medians(run, ROUND_TRIPS, "time", is)
        };
        let is_fault =
            |point: &Point| point.text("route") == "patched" && point.text("kind") == "page-fault";
        let is_traced = |point: &Point| point.text("event") == "page-fault";
        let way_in = medians(run, ONE_WAY, "u2k", is_fault);
        let way_out = medians(run, ONE_WAY, "k2u", is_fault);
        let traced = medians(run, TRACEPOINT, "u2t", is_traced);
        let (fault, call, none) =
            (trip("fault-anonymous"), trip("getppid"), trip("unknown-syscall"));

        writeln!(self.text, "\nParts of a round trip: medians and their differences")?;
        writeln!(self.text, "{:<46}{:>10}{:>13}{:>13}", "", "ns", "ticks", "cycles")?;
        self.rule()?;
        writeln!(self.text, "page fault: first write to anonymous memory")?;
        self.part("  in: hardware", way_in)?;
        match way_in {
            Some(_) => self.part("  in: entry code, to the tracepoint", less(traced, &[way_in]))?,
            None => self.part("  in: hardware and entry code, to the tracepoint", traced)?,
        }
        match way_out {
            Some(_) => self.part("  work and exit code", less(fault, &[traced, way_out]))?,
            None => self.part("  work, exit code and exit", less(fault, &[traced]))?,
        }
        self.part("  out: hardware", way_out)?;
        self.part("  total", fault)?;
        writeln!(self.text, "system call: getppid")?;
        self.part("  hardware, entry and exit code (unknown call)", none)?;
        self.part("  work", less(call, &[none]))?;
        self.part("  total", call)
    }

    /// Writes one line in ns, ticks and cycles.
    fn part(&mut self, name: &str, medians: Option<[f64; 3]>) -> Result<(), Error> {
        match medians.map(|medians| medians.map(digits)) {
            Some([ns, ticks, cycles]) => {
                writeln!(self.text, "{name:<46}{ns:>10}{ticks:>13}{cycles:>13}")?;
            }
            None => writeln!(self.text, "{name:<46}{:>10}", "—")?,
        }
        Ok(())
    }

    /// Returns a value, or a reference to the cause of its absence.
    fn cell(
        &mut self,
        run: &Run,
        experiment: &str,
        metric: &str,
        unit: Unit,
        is: impl Fn(&Point) -> bool,
    ) -> String {
        let rows = summarise(run, experiment, metric, unit).map(|summary| summary.rows);
        let rows: Vec<Row> =
            rows.unwrap_or_default().into_iter().filter(|row| is(&row.point)).collect();
        if let Some(median) = min_median(&rows) {
            return digits(median);
        }
        let Some(failure) = rows.iter().find_map(|row| row.errors.values().next()) else {
            return "not measured".into();
        };
        if failure.why.starts_with("not ring 0") {
            return format!("not ring 0 {}", self.note(&failure.why, failure.remedy.as_deref()));
        }
        format!("— {}", self.note(&failure.why, failure.remedy.as_deref()))
    }

    /// Adds a footnote, unless it exists, and returns its mark.
    fn note(&mut self, why: &str, remedy: Option<&str>) -> String {
        let remedy = remedy.map(|remedy| format!("; {remedy}")).unwrap_or_default();
        let note = format!("{why}{remedy}");
        let index = self.notes.iter().position(|other| *other == note).unwrap_or_else(|| {
            self.notes.push(note);
            self.notes.len() - 1
        });
        format!("[{}]", index + 1)
    }
}

/// Returns minimum, median, 99th and 99.9th percentile of the selected points in ticks, each the median over rounds.
fn spread(
    run: &Run,
    experiment: &str,
    metric: &str,
    is: impl Fn(&Point) -> bool,
) -> Option<[f64; 4]> {
    let of = |suffix: &str| {
        let metric = format!("{metric}{suffix}");
        let mut rows = summarise(run, experiment, &metric, Unit::Ticks).ok()?.rows;
        rows.retain(|row| is(&row.point));
        min_median(&rows)
    };
    Some([of("_min")?, of("")?, of("_p99")?, of("_p999")?])
}

/// Returns the minimum median of the selected points in ns, ticks and core cycles. Each point is an upper bound.
fn medians(
    run: &Run,
    experiment: &str,
    metric: &str,
    is: impl Fn(&Point) -> bool,
) -> Option<[f64; 3]> {
    let of = |unit| {
        let mut rows = summarise(run, experiment, metric, unit).ok()?.rows;
        rows.retain(|row| is(&row.point));
        min_median(&rows)
    };
    Some([of(Unit::Own)?, of(Unit::Ticks)?, of(Unit::Cycles)?])
}

fn min_median(rows: &[Row]) -> Option<f64> {
    let medians = rows.iter().filter_map(|row| Some(row.estimate?.median));
    medians.min_by(f64::total_cmp)
}

/// Subtracts parts from a whole; `None` if one of them is unknown.
fn less(whole: Option<[f64; 3]>, parts: &[Option<[f64; 3]>]) -> Option<[f64; 3]> {
    let mut left = whole?;
    for part in parts {
        let part = (*part)?;
        left = std::array::from_fn(|unit| left[unit] - part[unit]);
    }
    Some(left)
}

fn digits(median: f64) -> String {
    if median.abs() < 100.0 { format!("{median:.1}") } else { format!("{median:.0}") }
}

/// Returns the step of the counter of the run's samples, in ticks.
fn step(run: &Run) -> Option<u64> {
    run.samples.iter().rev().find_map(|sample| Some(sample.clock?.tsc_step))
}
