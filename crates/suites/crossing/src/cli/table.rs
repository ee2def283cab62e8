//! The seed's table beside this machine's figures, and what a round trip consists of.

use std::fmt::Write as _;

use lab::catalogue::Catalogue;
use lab::claim::Claim;
use lab::journal::Run;
use lab::point::Point;
use lab::summary::{Row, Unit, summarise};

use crate::SUITE;
use crate::cli::Error;

const ONE_WAY: &str = "crossing/one-way";
const TRACEPOINT: &str = "crossing/tracepoint";
const ROUND_TRIPS: &str = "crossing/round-trips";
/// Columns of the table.
const WIDTH: usize = 82;
/// The source of the published rows.
const SOURCE: &str = "xperf";

/// The routes in the order of the table, with their names for people.
const ROUTES: &[(&str, &str)] = &[
    ("guest", "guest of our own under KVM"),
    ("patched", "this Linux, patched"),
    ("patched-vm", "patched Linux under KVM"),
    ("bare-metal", "guest on bare metal"),
];

/// Where isolation's writes of CR3 are, for they are not in all rows.
const CR3: &str = "with CR3: isolation's writes of CR3 lie between the stamps; without CR3: Linux makes them \
                   between its own stamps, and they are in its part";

/// What stands behind the name of a row with isolation on.
fn cr3(route: &str) -> &'static str {
    match route {
        "guest" | "bare-metal" => " (with CR3)",
        _ => " (without CR3)",
    }
}

/// Writes the table. `imported` is the run that holds what a guest printed on bare metal.
pub(super) fn write(run: &Run, imported: Option<&Run>) -> Result<String, Error> {
    let mut table = Table { text: String::new(), notes: Vec::new() };
    table.published()?;
    table.ours(run, imported)?;
    table.spread(run, imported)?;
    table.round_trip(run)?;
    for line in crate::consistency::contradictions(run) {
        writeln!(table.text, "\ninconsistent: {line}")?;
    }
    if !table.notes.is_empty() {
        writeln!(table.text)?;
    }
    for (at, note) in table.notes.iter().enumerate() {
        let note = format!("[{}] {note}", at + 1);
        writeln!(table.text, "{}", wrapped(&note))?;
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

    /// The rows that the seed published, from the suite's claims.
    fn published(&mut self) -> Result<(), Error> {
        writeln!(self.text, "A page fault, one way each, in ticks of the time-stamp counter")?;
        self.line("", ["user to kernel", "kernel to user"])?;
        self.rule()?;
        let claims = Catalogue::of_suite(&SUITE)?.claims()?;
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
                let cr3 = if isolation == "on" { cr3(route) } else { "" };
                self.line(&format!("{name}, isolation {isolation}{cr3}"), [&u2k, &k2u])?;
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
        writeln!(self.text, "{}", wrapped(CR3))?;
        if let Some(step) = step(run) {
            writeln!(self.text, "one step of the counter here is {step} ticks")?;
        }
        Ok(())
    }

    /// Least, median and tails of what has values, in ticks; nothing where nothing has.
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
        writeln!(self.text, "\nHow page faults spread, in ticks")?;
        let head = ["least", "median", "99%", "99.9%"];
        writeln!(self.text, "{:<46}{:>9}{:>9}{:>9}{:>9}", "", head[0], head[1], head[2], head[3])?;
        self.rule()?;
        for (name, [least, median, p99, p999]) in lines {
            writeln!(self.text, "{name:<46}{least:>9.0}{median:>9.0}{p99:>9.0}{p999:>9.0}")?;
        }
        Ok(())
    }

    /// Hardware, entry glue and work of a page fault and of a system call, as far as they are known.
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

        writeln!(self.text, "\nWhat a round trip consists of: medians, and what is left of them")?;
        writeln!(self.text, "{:<46}{:>10}{:>13}{:>13}", "", "ns", "ticks", "cycles")?;
        self.rule()?;
        writeln!(self.text, "page fault: the first write of anonymous memory")?;
        self.part("  in: hardware", way_in)?;
        match way_in {
            Some(_) => self.part("  in: entry glue, to the tracepoint", less(traced, &[way_in]))?,
            None => self.part("  in: hardware and entry glue, to the tracepoint", traced)?,
        }
        match way_out {
            Some(_) => self.part("  work and exit glue", less(fault, &[traced, way_out]))?,
            None => self.part("  work, exit glue and the way out", less(fault, &[traced]))?,
        }
        self.part("  out: hardware", way_out)?;
        self.part("  all", fault)?;
        writeln!(self.text, "system call: getppid")?;
        self.part("  hardware and glue, both ways (no such call)", none)?;
        self.part("  work", less(call, &[none]))?;
        self.part("  all", call)
    }

    /// One line in all three units.
    fn part(&mut self, name: &str, medians: Option<[f64; 3]>) -> Result<(), Error> {
        match medians.map(|medians| medians.map(figure)) {
            Some([ns, ticks, cycles]) => {
                writeln!(self.text, "{name:<46}{ns:>10}{ticks:>13}{cycles:>13}")?;
            }
            None => writeln!(self.text, "{name:<46}{:>10}", "—")?,
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
        if let Some(median) = least(&rows) {
            return figure(median);
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

/// Least, median, 99% and 99.9% of some points in ticks, each the median over rounds.
fn spread(
    run: &Run,
    experiment: &str,
    metric: &str,
    is: impl Fn(&Point) -> bool,
) -> Option<[f64; 4]> {
    let of = |end: &str| {
        let metric = format!("{metric}{end}");
        let mut rows = summarise(run, experiment, &metric, Unit::Ticks).ok()?.rows;
        rows.retain(|row| is(&row.point));
        least(&rows)
    };
    Some([of("_min")?, of("")?, of("_p99")?, of("_p999")?])
}

/// The least median of some points in ns, ticks and core cycles: each of them is an upper bound.
fn medians(
    run: &Run,
    experiment: &str,
    metric: &str,
    is: impl Fn(&Point) -> bool,
) -> Option<[f64; 3]> {
    let of = |unit| {
        let mut rows = summarise(run, experiment, metric, unit).ok()?.rows;
        rows.retain(|row| is(&row.point));
        least(&rows)
    };
    Some([of(Unit::Own)?, of(Unit::Ticks)?, of(Unit::Cycles)?])
}

fn least(rows: &[Row]) -> Option<f64> {
    let medians = rows.iter().filter_map(|row| Some(row.estimate?.median));
    medians.min_by(f64::total_cmp)
}

/// What is left of a whole without some parts; nothing where one of them is not known.
fn less(whole: Option<[f64; 3]>, parts: &[Option<[f64; 3]>]) -> Option<[f64; 3]> {
    let mut left = whole?;
    for part in parts {
        let part = (*part)?;
        left = std::array::from_fn(|at| left[at] - part[at]);
    }
    Some(left)
}

fn figure(median: f64) -> String {
    if median.abs() < 100.0 { format!("{median:.1}") } else { format!("{median:.0}") }
}

/// The step of the counter under the run's samples, ticks.
fn step(run: &Run) -> Option<u64> {
    run.samples.iter().rev().find_map(|sample| Some(sample.clock?.tsc_step))
}

/// A note in lines that are no wider than the table.
fn wrapped(note: &str) -> String {
    let mut text = String::new();
    let mut width = 0;
    for word in note.split_whitespace() {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > WIDTH {
            text.push_str("\n    ");
            width = 4;
        } else if width > 0 {
            text.push(' ');
            width += 1;
        }
        text.push_str(word);
        width += length;
    }
    text
}
