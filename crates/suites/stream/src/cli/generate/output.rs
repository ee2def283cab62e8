//! The output of a run: progress lines, CSV, and the result.

use std::io::{self, Write};
use std::path::Path;

use hdrhistogram::Histogram;
use machine::file::Output;

use crate::cli::Error;
use crate::cli::json::{CoreOutput, GeneratorOutput};
use crate::cli::link::LinkSummary;
use crate::generator::{CounterSnapshot, Expectation, Report};
use crate::losses::{Losses, NOT_ECHOED};
use crate::nic::pcie::PcieModel;
use crate::nic::{Counters, InterfaceConfig};
use crate::workload::application_traffic::ApplicationTraffic;
use crate::workload::log_lines::MatchingLines;

/// Progress since the last line.
pub(super) struct Interval {
    /// Time since the start of the run, in seconds.
    pub(super) at: f64,
    /// Time since `before`, in seconds.
    pub(super) since: f64,
    pub(super) before: (CounterSnapshot, Counters),
    pub(super) now: (CounterSnapshot, Counters),
    /// Ticks per second.
    pub(super) hertz: f64,
    /// Whether the program returns packets.
    pub(super) returns: bool,
}

/// Values of one direction in an interval.
struct Direction {
    packets: u64,
    mpps: f64,
    gbps: f64,
}

impl Interval {
    /// Returns what was sent and what was received.
    fn directions(&self) -> [Direction; 2] {
        let (before, now) = (self.before.0, self.now.0);
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / self.since;
        let direction = |packets: [u64; 2], bytes: [u64; 2]| Direction {
            packets: packets[0],
            mpps: rate(packets[0], packets[1]) / 1e6,
            gbps: rate(bytes[0], bytes[1]) * 8e-9,
        };
        [
            direction([now.sent, before.sent], [now.sent_bytes, before.sent_bytes]),
            direction([now.received, before.received], [now.received_bytes, before.received_bytes]),
        ]
    }

    /// Returns the packets that have not returned; `None` if none should.
    fn outstanding(&self) -> Option<u64> {
        self.returns.then(|| self.now.0.sent.saturating_sub(self.now.0.received))
    }

    /// Returns the mean of the round-trip times in the interval, in ns; `None` if none was measured.
    fn round_trip(&self) -> Option<f64> {
        let (before, now) = (self.before.0, self.now.0);
        let timed = now.timed.saturating_sub(before.timed);
        let ticks = now.ticks.saturating_sub(before.ticks) as f64;
        (timed > 0).then(|| ticks / timed as f64 / self.hertz * 1e9)
    }

    /// Returns the line of progress, and with `counters` one line for each counter that is not 0.
    pub(super) fn text(&self, counters: bool) -> String {
        let [sent, received] =
            self.directions().map(|one| format!("{:8.3} Mpps {:7.3} Gbps", one.mpps, one.gbps));
        let now = self.now.1;
        let (at, dropped) = (self.at, now.dropped());
        let mut text = match self.outstanding() {
            Some(outstanding) => format!(
                "{at:6.1} s  sent {sent}  received {received}  lost or in flight {outstanding}  \
                 dropped by the NIC {dropped}  corrupted {}",
                self.now.0.corrupted
            ),
            None => format!(
                "{at:6.1} s  sent {sent}  dropped by the NIC {dropped}  returned {}",
                self.now.0.received
            ),
        };
        if let Some(ns) = self.round_trip() {
            text += &format!("  round trip {ns:.0} ns");
        }
        if self.now.0.late > 0 {
            text += &format!("  late or duplicated {}", self.now.0.late);
        }
        if now.rules_refused > 0 {
            text += &format!("  refused rules {}", now.rules_refused);
        }
        if counters {
            let rates = now.since(&self.before.1).named();
            let each = now.named().into_iter().zip(rates).filter(|((_, count), _)| *count > 0);
            for ((name, count), (_, since)) in each {
                let unit = if name.ends_with("BYTES") { "B/s" } else { "1/s" };
                let rate = lab::format::value(since as f64 / self.since, None, unit);
                text += &format!("\n{name:>24}: {count}  {rate}");
            }
        }
        text
    }
}

/// A CSV file with one line per interval, which is moved into place at the end.
pub(super) struct Save {
    file: Output,
    has_counters: bool,
}

impl Save {
    /// Creates the file; with `has_counters` it has a column for each counter of the NIC.
    pub(super) fn create(path: &Path, has_counters: bool) -> Result<Self, Error> {
        let start = Output::create(path).and_then(|mut file| {
            write!(
                file,
                "seconds,sent,received,lost_or_in_flight,dropped,corrupted,late,sent_mpps,received_mpps,\
                 sent_gbps,received_gbps,rtt_mean_ns"
            )?;
            if has_counters {
                Counters::default().named().iter().try_for_each(|(name, _)| write!(file, ",{name}"))?;
            }
            writeln!(file)?;
            file.flush()?;
            Ok(Self { file, has_counters })
        });
        start.map_err(|why| {
            format!(
                "{}: cannot be written ({why}); choose another file with --save",
                path.display()
            )
            .into()
        })
    }

    pub(super) fn line(&mut self, interval: &Interval) -> io::Result<()> {
        let (now, counters) = interval.now;
        let [sent, received] = interval.directions();
        // Empty if no time was measured.
        let round_trip = interval.round_trip().map(|ns| format!("{ns:.1}")).unwrap_or_default();
        write!(
            self.file,
            "{:.3},{},{},{},{},{},{},{:.6},{:.6},{:.6},{:.6},{round_trip}",
            interval.at,
            sent.packets,
            received.packets,
            interval.outstanding().map(|packets| packets.to_string()).unwrap_or_default(),
            counters.dropped(),
            now.corrupted,
            now.late,
            sent.mpps,
            received.mpps,
            sent.gbps,
            received.gbps,
        )?;
        if self.has_counters {
            counters.named().iter().try_for_each(|(_, count)| write!(self.file, ",{count}"))?;
        }
        writeln!(self.file)?;
        // The reader of a FIFO gets each line immediately.
        self.file.flush()
    }

    pub(super) fn finish(self) -> io::Result<()> {
        self.file.finish()
    }
}

/// Result of a run.
#[derive(Default)]
pub(super) struct RunResult {
    pub(super) report: Report,
    pub(super) counters: Counters,
    /// Ticks per second.
    pub(super) hertz: f64,
    /// Configuration of the NIC; `None` if no program connected.
    pub(super) config: Option<InterfaceConfig>,
    /// Modelled properties of PCIe.
    pub(super) modelled: PcieModel,
    /// The application of which the traffic was; `None` if it came from a file.
    pub(super) application: Option<ApplicationTraffic>,
    /// The lines that a log monitor finds.
    pub(super) matching: Option<MatchingLines>,
    /// The link, if packets passed one in place of the NIC's interface.
    pub(super) link: Option<LinkSummary>,
}

/// Describes traffic, e.g. `of maglev, workload cached, 16 flows to 2 pipes by rules`.
fn describe(of: &ApplicationTraffic) -> String {
    let s = |count: u32| if count == 1 { "" } else { "s" };
    let (flows, pipes) = (of.flow_count(), of.pipes);
    format!(
        "of {}, workload {}, {flows} flow{} to {pipes} pipe{} by {}",
        of.application,
        of.workload.workload,
        s(flows),
        s(pipes),
        of.steering
    )
}

/// Quantiles of the round-trip times that are printed.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

impl RunResult {
    /// Returns the packets and the bits on the wire that were sent and received, in millions and in billions per second.
    fn rates(&self) -> [(f64, f64); 2] {
        let Report { start, ended_sending, ended, sent, received, .. } = self.report;
        let rate = |(packets, bytes): (u64, u64), end: u64| {
            let seconds = end.saturating_sub(start).max(1) as f64 / self.hertz;
            (packets as f64 / seconds * 1e-6, bytes as f64 / seconds * 8e-9)
        };
        [
            rate((sent, self.report.sent_bytes), ended_sending),
            rate((received, self.report.received_bytes), ended),
        ]
    }

    fn ns(&self, ticks: u64) -> f64 {
        ticks as f64 / self.hertz * 1e9
    }

    /// Returns round-trip times by name, in ns.
    fn times(&self, times: &Histogram<u64>) -> Vec<(&'static str, f64)> {
        let quantile = |(name, share)| (name, self.ns(times.value_at_quantile(share)));
        let mut named: Vec<_> =
            vec![("mean", times.mean() / self.hertz * 1e9), ("min", self.ns(times.min()))];
        named.extend(QUANTILES.map(quantile));
        named.push(("max", self.ns(times.max())));
        named
    }

    /// Returns whether the program returns packets.
    fn returns(&self) -> bool {
        self.report.expectation != Expectation::Nothing
    }

    /// Returns the matching lines that end in the packets that were sent; `None` if these are no log lines.
    fn matching_lines(&self) -> Option<u64> {
        self.matching.as_ref().map(|matching| matching.ended_in(self.report.sent))
    }

    /// Returns the number of lost packets that is known: of a program that returns none, those that the NIC dropped.
    fn known_losses(&self) -> u64 {
        if self.returns() { self.report.lost() } else { self.report.dropped }
    }

    pub(super) fn text(&self) -> String {
        let Report { sent, received, .. } = &self.report;
        let config = self.config.map_or("no program connected".into(), |config| config.to_string());
        let mut text = match &self.link {
            Some(link) => link.title(),
            None => format!("NIC: {config}; modelled: {}\n", self.modelled),
        };
        if let Some(of) = &self.application {
            text += &format!("{:>10} {}\n", "traffic", describe(of));
        }
        let lines = ["sent", "received"].into_iter().zip([sent, received]).zip(self.rates());
        let shown = if self.returns() { 2 } else { 1 };
        for ((what, packets), (mpps, gbps)) in lines.take(shown) {
            text += &format!("{what:>10} {packets} packets, {mpps:.3} Mpps, {gbps:.3} Gbps\n");
        }
        text += &self.losses_text();
        let core = if self.link.is_some() { "core" } else { "NIC core" };
        text += &format!("{core:>10} {}\n", self.nic_text());
        text += &format!("{:>10} {}\n", "bottleneck", self.bottleneck());
        text += &self.checks_text();
        if let Some(times) = self.report.times.as_ref().filter(|times| !times.is_empty()) {
            let named = self.times(times).into_iter().map(|(name, ns)| format!("{name} {ns:.0}"));
            let named = named.collect::<Vec<_>>().join(", ");
            let of = match self.report.timed_every {
                0 | 1 => String::new(),
                every => format!(", of one packet in {every}"),
            };
            text += &format!("{:>10} {named} ns{of}\n", "round trip");
        }
        if let Some(link) = &self.link {
            return text + &link.text();
        }
        for (name, count) in self.counters.named() {
            text += &format!("{name:>24}: {count}\n");
        }
        text
    }

    /// Returns the line about lost packets, as far as they are known.
    fn losses_text(&self) -> String {
        let (dropped, causes) = (self.report.dropped, self.causes());
        match self.returns() {
            true => format!(
                "{:>10} {} packets, of them {dropped} dropped by the NIC{causes}\n",
                "lost",
                self.report.lost()
            ),
            false => format!(
                "{:>10} {dropped} packets by the NIC{causes}; the program states what it processed\n",
                "dropped"
            ),
        }
    }

    /// Returns the lines about what was verified.
    fn checks_text(&self) -> String {
        let Report { received, corrupted, late, missing, .. } = &self.report;
        if !self.returns() {
            let lines = self.matching_lines().map_or(String::new(), |lines| {
                format!("{:>10} {lines} matching lines end in the sent packets\n", "expected")
            });
            return format!("{lines}{:>10} {received} packets; none should\n", "returned");
        }
        let missing = match (self.report.expectation, missing) {
            (Expectation::Answers, Some(missing)) => format!("; {missing} values are missing"),
            (
                Expectation::Answers
                | Expectation::Same
                | Expectation::Byte
                | Expectation::Images
                | Expectation::Nothing,
                _,
            ) => String::new(),
        };
        format!("{:>10} {corrupted} packets, and {late} late or duplicated{missing}\n", "corrupted")
    }

    pub(super) fn json(&self) -> GeneratorOutput<'_> {
        let Report { sent, dropped, received, corrupted, late, missing, ref times, .. } =
            self.report;
        let [(sent_mpps, sent_gbps), (received_mpps, received_gbps)] = self.rates();
        let times = times.as_ref().filter(|times| !times.is_empty());
        // Counters and model are those of the software NIC.
        let has_nic = self.link.is_none();
        let cycles = self.report.cycles_per_packet(self.hertz);
        GeneratorOutput {
            nic: self.config.map(|config| config.to_string()),
            modelled: has_nic.then(|| self.modelled.to_string()),
            sent,
            received,
            lost: self.returns().then(|| self.report.lost()),
            dropped,
            lost_by_cause: self.losses_by_cause().into_iter().collect(),
            nic_core: CoreOutput::new(&self.report.core_use(), cycles),
            corrupted,
            late,
            missing,
            matching_lines: self.matching_lines(),
            application: self.application.as_ref().map(|of| of.application.name()),
            traffic: self.application.as_ref().map(describe),
            sent_mpps,
            received_mpps,
            sent_gbps,
            received_gbps,
            rtt_ns: times.map(|times| self.times(times).into_iter().collect()),
            rtt_of_one_in: self.report.timed_every,
            counters: has_nic.then(|| self.counters.named().into_iter().collect()),
            interface: self.link.as_ref().map(LinkSummary::name),
            link: self.link.as_ref().map(LinkSummary::json).unwrap_or_default(),
        }
    }

    /// Returns the lost packets by cause, as far as it is known. The generator sends all packets, however late.
    fn losses_by_cause(&self) -> Vec<(&'static str, u64)> {
        let losses = Losses::of(self.report.sent, &self.report, &self.counters);
        let is_known = |name: &str| self.returns() || name != NOT_ECHOED;
        let known = losses.named().into_iter().filter(|(name, ..)| is_known(name));
        known.map(|(_, cause, packets)| (cause, packets)).collect()
    }

    /// Lists the causes of lost packets, e.g. ` (ring full 12, not echoed 3)`; empty if none was lost.
    fn causes(&self) -> String {
        let named = self.losses_by_cause().into_iter().filter(|(_, packets)| *packets > 0);
        let causes: Vec<_> = named.map(|(cause, packets)| format!("{cause} {packets}")).collect();
        if causes.is_empty() { String::new() } else { format!(" ({})", causes.join(", ")) }
    }

    /// Names the side that limited the run, as far as this side knows it.
    fn bottleneck(&self) -> &'static str {
        let used = self.report.core_use();
        let is_saturated = used.packets_per_iteration.is_some() && used.is_saturated();
        if self.link.is_some() {
            return match (is_saturated, self.known_losses() > 0) {
                (true, _) => "sender-bound: the core that sends and receives had no time left",
                (false, true) => "not sender-bound: its core had time left",
                (false, false) => "none: the load was carried",
            };
        }
        if is_saturated {
            "NIC-bound: the core of NIC and generator had no time left"
        } else if self.known_losses() > 0 {
            "not NIC-bound: its core had time left; the application's command states whether it had"
        } else if !self.returns() {
            "none on this side: the NIC dropped nothing"
        } else {
            "none: the load was carried"
        }
    }

    fn nic_text(&self) -> String {
        let used = self.report.core_use();
        let Some(packets) = used.packets_per_iteration else { return "no packets".into() };
        let cycles = self.report.cycles_per_packet(self.hertz);
        let cycles = cycles.map(|cycles| format!(", {cycles:.1} cycles per packet"));
        let cycles = cycles.unwrap_or_default();
        format!("{}; {packets:.1} packets per iteration{cycles}", used.describe())
    }

    /// Writes the round-trip-time histogram as CSV.
    pub(super) fn histogram(&self, times: &Histogram<u64>, mut to: impl Write) -> io::Result<()> {
        writeln!(to, "ns,packets")?;
        for value in times.iter_recorded() {
            let ns = self.ns(value.value_iterated_to());
            writeln!(to, "{ns:.1},{}", value.count_since_last_iteration())?;
        }
        to.flush()
    }
}
