//! The seed's table beside this machine's figures, and what a round trip consists of.

use std::fmt::Write as _;

use lab::claim::{self, Claim};
use lab::journal::Run;
use lab::point::Point;
use lab::statistics::Estimate;
use lab::summary::{Row, Unit, summarise};

use crate::SUITE;
use crate::hand::Error;
use lab::suite::Suite as _;

const ONE_WAY: &str = "crossing/one-way";
const TRACEPOINT: &str = "crossing/tracepoint";
const ROUND_TRIPS: &str = "crossing/round-trips";
/// The source of the published rows.
const SOURCE: &str = "xperf";

/// The routes in the order of the table, with their names for people.
const ROUTES: &[(&str, &str)] = &[
    ("guest", "guest of our own under KVM"),
    ("patched", "this Linux, patched"),
    ("patched-vm", "patched Linux under KVM"),
    ("bare-metal", "guest on bare metal"),
];

/// Writes the table. `imported` is the run that holds what a guest printed on bare metal.
pub(super) fn write(run: &Run, imported: Option<&Run>) -> Result<String, Error> {
    let mut table = Table { text: String::new(), notes: Vec::new() };
    table.published()?;
    table.ours(run, imported)?;
    table.round_trip(run)?;
    for line in crate::consistency::breaks(run) {
        writeln!(table.text, "\ninconsistent: {line}")?;
    }
    if !table.notes.is_empty() {
        writeln!(table.text)?;
    }
    for (at, note) in table.notes.iter().enumerate() {
        writeln!(table.text, "[{}] {note}", at + 1)?;
    }
    Ok(table.text)
}

struct Table {
    text: String,
    notes: Vec<String>,
}

impl Table {
    fn line(&mut self, name: &str, cells: [&str; 2]) -> std::fmt::Result {
        writeln!(self.text, "{name:<46}{:>18}{:>18}", cells[0], cells[1])
    }

    fn rule(&mut self) -> std::fmt::Result {
        writeln!(self.text, "{}", "─".repeat(82))
    }

    /// The rows that the seed published, from the suite's claims.
    fn published(&mut self) -> Result<(), Error> {
        writeln!(self.text, "A page fault, one way each, in ticks of the time-stamp counter")?;
        self.line("", ["user to kernel", "kernel to user"])?;
        self.rule()?;
        let claims = claim::read("crossing/claims.toml", SUITE.data().claims)?;
        let figure = |row: &str, metric: &str| {
            let is = |claim: &&Claim| {
                claim.source.contains(SOURCE)
                    && claim.metric.as_deref() == Some(metric)
                    && claim.id.contains(row)
            };
            let published = claims.iter().find(is).and_then(|claim| claim.published.clone());
            published.map_or_else(String::new, |published| format!("~{}", published.value))
        };
        for (row, name) in [("-vm-", "published: VM"), ("-metal-", "published: bare metal")] {
            let cells = [figure(row, "u2k"), figure(row, "k2u")];
            self.line(name, [&cells[0], &cells[1]])?;
        }
        Ok(())
    }

    fn ours(&mut self, run: &Run, imported: Option<&Run>) -> Result<(), Error> {
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
                self.line(&format!("{name}, isolation {isolation}"), [&u2k, &k2u])?;
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
        if let Some(step) = step(run) {
            writeln!(self.text, "one step of the counter here is {step} ticks")?;
        }
        Ok(())
    }

    /// Hardware, entry glue and work of a page fault and of a system call, as far as it is known.
    fn round_trip(&mut self, run: &Run) -> Result<(), Error> {
        writeln!(self.text, "\nWhat a round trip consists of")?;
        writeln!(self.text, "{:<46}{:>10}{:>13}{:>13}", "", "ns", "ticks", "cycles")?;
        self.rule()?;
        let fault =
            |point: &Point| point.text("route") == "patched" && point.text("kind") == "page-fault";
        let trip = |name: &'static str| {
            move |point: &Point| point.text("trip") == name && point.text("by") == "tollgate"
        };
        let to_tracepoint = |point: &Point| point.text("event") == "page-fault";
        self.part(run, "page fault: hardware, in", ONE_WAY, "u2k", fault)?;
        self.part(run, "page fault: hardware, out", ONE_WAY, "k2u", fault)?;
        let name = "page fault: hardware and entry glue, in";
        self.part(run, name, TRACEPOINT, "u2t", to_tracepoint)?;
        let name = "page fault: all, with the work (anonymous write)";
        self.part(run, name, ROUND_TRIPS, "time", trip("fault-anonymous"))?;
        let name = "system call: hardware and glue (no such call)";
        self.part(run, name, ROUND_TRIPS, "time", trip("unknown-syscall"))?;
        self.part(
            run,
            "system call: all, with work (getppid)",
            ROUND_TRIPS,
            "time",
            trip("getppid"),
        )
    }

    /// One line in all three units; the least of several points, for each is an upper bound.
    fn part(
        &mut self,
        run: &Run,
        name: &str,
        experiment: &str,
        metric: &str,
        is: impl Fn(&Point) -> bool + Copy,
    ) -> Result<(), Error> {
        let units = [Unit::Own, Unit::Ticks, Unit::Cycles];
        let [ns, ticks, cycles] = units.map(|unit| self.cell(run, experiment, metric, unit, is));
        if ns.starts_with(char::is_numeric) {
            writeln!(self.text, "{name:<46}{ns:>10}{ticks:>13}{cycles:>13}")?;
        } else {
            writeln!(self.text, "{name:<46}{ns:>10}")?;
        }
        Ok(())
    }

    /// A value, or what stands in its place.
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
        let least =
            rows.iter().filter_map(|row| row.estimate).min_by(|a, b| a.median.total_cmp(&b.median));
        if let Some(estimate) = least {
            return figure(&estimate);
        }
        let Some(fault) = rows.iter().find_map(|row| row.errors.values().next()) else {
            return "not measured".into();
        };
        if fault.why.starts_with("not ring 0") {
            return format!("not ring 0 {}", self.note(&fault.why, fault.remedy.as_deref()));
        }
        format!("— {}", self.note(&fault.why, fault.remedy.as_deref()))
    }

    /// The mark of a footnote; equal ones share it.
    fn note(&mut self, why: &str, remedy: Option<&str>) -> String {
        let remedy = remedy.map(|remedy| format!("; {remedy}")).unwrap_or_default();
        let note = format!("{why}{remedy}");
        let at = self.notes.iter().position(|other| *other == note).unwrap_or_else(|| {
            self.notes.push(note);
            self.notes.len() - 1
        });
        format!("[{}]", at + 1)
    }
}

fn figure(estimate: &Estimate) -> String {
    if estimate.median < 100.0 {
        format!("{:.1}", estimate.median)
    } else {
        format!("{:.0}", estimate.median)
    }
}

/// The step of the counter under the run's samples, ticks.
fn step(run: &Run) -> Option<u64> {
    run.samples.iter().rev().find_map(|sample| Some(sample.clock?.tsc_step))
}
