//! xperf's table with this machine's rows, and the parts of a round trip.

use lab::catalogue::Catalogue;
use lab::claim::Claim;
use lab::journal::Run;
use lab::method::Params;
use lab::point::{Level, Point};
use lab::summary::{Row, Unit, summarise};
use lab::table::{ColumnHeader, Document};

use crate::SUITE;
use crate::cli::Error;
use crate::guest::{CrossingKind, Stamp};
use crate::one_way::{Isolation, OneWayParams, Route};
use crate::trace::{Event, TraceBackend, TraceParams};
use crate::trips::{By, Trip, TripParams};

const ONE_WAY: &str = "crossing/one-way";
const TRACEPOINT: &str = "crossing/tracepoint";
const ROUND_TRIPS: &str = "crossing/round-trips";
/// The source of the published rows.
const SOURCE: &str = "xperf";

/// Explanation of the labels of rows with isolation on.
const CR3: &str = "with CR3: isolation's writes of CR3 are between the stamps; without CR3: Linux writes CR3 \
                   between its two stamps, which is included in the kernel's part";

/// Explanation of the rows with xperf's stamps.
const STAMPS: &str = "with xperf's stamps: the stamps and the instructions that xperf has next to them are included, as \
                      in the published values; the other rows are less the stamps";

/// Returns the name of a route and the label of its rows with isolation on; `None` if the route measures no times.
fn route_name(route: Route) -> Option<(&'static str, &'static str)> {
    match route {
        Route::Guest => Some(("micro-guest under KVM", " (with CR3)")),
        Route::BareMetal => Some(("micro-guest on bare metal", " (with CR3)")),
        Route::Patched => Some(("this Linux, patched", " (without CR3)")),
        Route::PatchedVm => Some(("patched Linux under KVM", " (without CR3)")),
        Route::GuestEmulated | Route::PatchedEmulated => None,
    }
}

/// Formats the table. `imported` is a run with samples from bare metal.
pub(super) fn format(run: &Run, imported: Option<&Run>) -> Result<String, Error> {
    let mut table = Table { document: Document::new(), run, imported };
    table.one_way()?;
    table.spread();
    table.round_trip();
    for line in crate::consistency::contradictions(run) {
        table.document.line("");
        table.document.line(&format!("contradiction: {line}"));
    }
    Ok(table.document.finish())
}

struct Table<'a> {
    document: Document,
    run: &'a Run,
    imported: Option<&'a Run>,
}

impl Table<'_> {
    /// Starts a table with a title and a first column without a title.
    fn start(&mut self, title: &str, columns: &[&str]) {
        self.document.line(title);
        let columns = columns.iter().map(|title| ColumnHeader::right(*title));
        self.document.table(std::iter::once(ColumnHeader::left("")).chain(columns));
    }

    /// Writes the published times of both ways, from the suite's claims, and the measured ones.
    fn one_way(&mut self) -> Result<(), Error> {
        let title = "Page fault, each way, in ticks of the time-stamp counter";
        self.start(title, &["user to kernel", "kernel to user"]);
        let claims = Catalogue::of_suite(&SUITE)?.claims()?;
        for (route, name) in
            [(Route::Guest, "published: VM"), (Route::BareMetal, "published: bare metal")]
        {
            let [u2k, k2u] = ["u2k", "k2u"].map(|metric| published(&claims, route, metric));
            self.document.row([name.into(), u2k, k2u]);
        }
        for route in Route::ALL {
            let Some((name, cr3)) = route_name(route) else { continue };
            for isolation in Isolation::ALL {
                let label = match isolation {
                    Isolation::Off => "",
                    Isolation::On => cr3,
                };
                let is = |point: &Point| {
                    is_fault(point, route)
                        && has(point, |p: &OneWayParams| p.isolation == isolation)
                };
                self.measured(format!("{name}, isolation {isolation}{label}"), route, is);
            }
        }
        for route in [Route::Guest, Route::BareMetal] {
            let Some((name, _)) = route_name(route) else { continue };
            let is = |point: &Point| has(point, |p: &OneWayParams| p.route == route && is_xperf(p));
            self.measured(format!("{name}, with xperf's stamps"), route, is);
        }
        for through in TraceBackend::ALL {
            let cell = self.cell(self.run, TRACEPOINT, "u2t", |point| is_traced(point, through));
            let at_most = if cell.is_ok() { "at most " } else { "" };
            let u2t = format!("{at_most}{}", self.text(cell));
            self.document.row([traced_name(through), u2t, String::new()]);
        }
        self.document.line(CR3);
        self.document.line(STAMPS);
        if let Some(step) = step(self.run) {
            self.document.line(&format!("one step of this counter: {step} ticks"));
        }
        Ok(())
    }

    /// Writes a row with both ways of the selected points of a route.
    fn measured(&mut self, name: String, route: Route, is: impl Fn(&Point) -> bool) {
        let [u2k, k2u] =
            ["u2k", "k2u"].map(|metric| self.cell(self.run_of(route), ONE_WAY, metric, &is));
        let [u2k, k2u] = [self.text(u2k), self.text(k2u)];
        self.document.row([name, u2k, k2u]);
    }

    /// Writes minimum, median and tails of all rows with values, in ticks, if there are any.
    fn spread(&mut self) {
        let mut rows = Vec::new();
        for route in Route::ALL {
            let Some((name, _)) = route_name(route) else { continue };
            for (metric, way) in [("u2k", "in"), ("k2u", "out")] {
                let run = self.run_of(route);
                let values = spread(run, ONE_WAY, metric, |point| is_fault(point, route));
                rows.extend(values.map(|values| (format!("{name}, {way}"), values)));
            }
        }
        for through in TraceBackend::ALL {
            let values = spread(self.run, TRACEPOINT, "u2t", |point| is_traced(point, through));
            rows.extend(values.map(|values| (traced_name(through), values)));
        }
        if rows.is_empty() {
            return;
        }
        self.document.line("");
        let columns = ["minimum", "median", "99%", "99.9%"];
        self.start("Distribution of page faults, in ticks", &columns);
        for (name, values) in rows {
            let values = values.map(|ticks| format!("{ticks:.0}"));
            self.document.row(std::iter::once(name).chain(values));
        }
    }

    /// Writes hardware, entry code and work of a page fault and of a system call, as far as measured.
    fn round_trip(&mut self) {
        let trip = |trip| {
            let is = move |p: &TripParams| p.trip == trip && p.by == By::Tollgate;
            medians(self.run, ROUND_TRIPS, "time", |point| has(point, is))
        };
        let way =
            |metric| medians(self.run, ONE_WAY, metric, |point| is_fault(point, Route::Patched));
        let (way_in, way_out) = (way("u2k"), way("k2u"));
        let is_fault = |p: &TraceParams| p.event == Event::PageFault;
        let traced = medians(self.run, TRACEPOINT, "u2t", |point| has(point, is_fault));
        let (fault, call, none) =
            (trip(Trip::FaultAnonymous), trip(Trip::Getppid), trip(Trip::UnknownSyscall));
        let entry = match way_in {
            Some(_) => ("page fault: entry code, to the tracepoint", less(traced, &[way_in])),
            None => ("page fault: hardware and entry code, to the tracepoint", traced),
        };
        let work = match way_out {
            Some(_) => ("page fault: work and exit code", less(fault, &[traced, way_out])),
            None => ("page fault: work, exit code and exit", less(fault, &[traced])),
        };

        self.document.line("");
        let title = "Parts of a first write to anonymous memory and of getppid: medians and their differences";
        self.start(title, &["ns", "ticks", "cycles"]);
        for (name, medians) in [
            ("page fault: hardware, in", way_in),
            entry,
            work,
            ("page fault: hardware, out", way_out),
            ("page fault: total", fault),
            ("system call: hardware, entry and exit code (unknown call)", none),
            ("system call: work", less(call, &[none])),
            ("system call: total", call),
        ] {
            let cells = medians.map_or(["—".into(), String::new(), String::new()], |medians| {
                medians.map(digits)
            });
            self.document.row(std::iter::once(name.into()).chain(cells));
        }
    }

    /// Returns the run that contains the samples of a route.
    fn run_of(&self, route: Route) -> &Run {
        self.imported.filter(|_| route == Route::BareMetal).unwrap_or(self.run)
    }

    /// Returns the smallest median in ticks, or the cause of its absence.
    fn cell(
        &self,
        run: &Run,
        experiment: &str,
        metric: &str,
        is: impl Fn(&Point) -> bool,
    ) -> Result<f64, Option<String>> {
        let rows = rows(run, experiment, metric, Unit::Ticks, is);
        min_median(&rows).ok_or_else(|| {
            let failure = rows.iter().find_map(|row| row.errors.values().next())?;
            let remedy = failure.remedy.as_ref().map(|remedy| format!("; {remedy}"));
            Some(format!("{}{}", failure.why, remedy.unwrap_or_default()))
        })
    }

    /// Returns the text of a cell; the cause of a missing value becomes a footnote.
    fn text(&mut self, cell: Result<f64, Option<String>>) -> String {
        match cell {
            Ok(median) => digits(median),
            Err(Some(why)) => format!("— {}", self.document.footnote(&why)),
            Err(None) => "not measured".into(),
        }
    }
}

/// Returns whether a point has levels that `matches` accepts.
fn has<P: Params>(point: &Point, matches: impl Fn(&P) -> bool) -> bool {
    P::with_defaults(point).is_ok_and(|params| matches(&params))
}

/// Returns whether a point of `one-way` is a page fault on a route, less its stamps.
fn is_fault(point: &Point, route: Route) -> bool {
    has(point, |p: &OneWayParams| {
        p.route == route && p.kind == CrossingKind::PageFault && p.stamp == Stamp::Lfence
    })
}

/// Returns whether a crossing is a page fault that is stamped like xperf.
fn is_xperf(params: &OneWayParams) -> bool {
    params.kind == CrossingKind::PageFault && params.stamp == Stamp::Xperf
}

/// Returns whether a point of `tracepoint` is a page fault recorded by a tracer.
fn is_traced(point: &Point, through: TraceBackend) -> bool {
    has(point, |p: &TraceParams| p.event == Event::PageFault && p.through == through)
}

fn traced_name(through: TraceBackend) -> String {
    format!("this Linux, to its tracepoint ({through})")
}

/// Returns the published value of a metric on a route; empty if there is none.
fn published(claims: &[Claim], route: Route, metric: &str) -> String {
    let is = |claim: &&Claim| {
        let routes = claim.filter.0.get("route");
        claim.source.contains(SOURCE)
            && claim.metric.as_deref() == Some(metric)
            && routes.is_some_and(|it| it.levels().contains(&Level::from(route.name())))
    };
    let value = claims.iter().find(is).and_then(|claim| claim.published.as_ref());
    value.map_or_else(String::new, |published| format!("~{}", published.value))
}

/// Returns the rows of an experiment at the selected points.
fn rows(
    run: &Run,
    experiment: &str,
    metric: &str,
    unit: Unit,
    is: impl Fn(&Point) -> bool,
) -> Vec<Row> {
    let mut rows =
        summarise(run, experiment, metric, unit).map(|summary| summary.rows).unwrap_or_default();
    rows.retain(|row| is(&row.point));
    rows
}

/// Returns minimum, median, 99th and 99.9th percentile of the selected points in ticks, each the median over rounds.
fn spread(
    run: &Run,
    experiment: &str,
    metric: &str,
    is: impl Fn(&Point) -> bool,
) -> Option<[f64; 4]> {
    let of = |suffix: &str| {
        min_median(&rows(run, experiment, &format!("{metric}{suffix}"), Unit::Ticks, &is))
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
    let of = |unit| min_median(&rows(run, experiment, metric, unit, &is));
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
