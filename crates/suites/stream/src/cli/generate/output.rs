//! What a person reads of a run.

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use hdrhistogram::Histogram;
use machine::file::Output;
use serde_json::{Map, Value, json};

use crate::cli::Error;
use crate::generator::{CounterSnapshot, Report};
use crate::nic::{Counters, InterfaceConfig};

/// What happened in a second.
pub(super) struct Second {
    /// Seconds since the first packet.
    pub(super) at: f64,
    /// Seconds since what was seen before.
    pub(super) since: f64,
    pub(super) before: CounterSnapshot,
    pub(super) now: CounterSnapshot,
    pub(super) counters: Counters,
    /// Bytes of a packet on the wire, in the mean.
    pub(super) wire_bytes: f64,
}

impl Second {
    /// Packets a second that were sent, and that came back.
    fn rates(&self) -> [f64; 2] {
        let Self { before, now, since, .. } = self;
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / since;
        [rate(now.sent, before.sent), rate(now.received, before.received)]
    }

    fn not_back(&self) -> u64 {
        self.now.sent.saturating_sub(self.now.received)
    }

    pub(super) fn text(&self) -> String {
        let rate = |rate: f64| {
            format!("{:8.3} Mpps {:7.3} Gbps", rate / 1e6, rate * self.wire_bytes * 8e-9)
        };
        let [sent, received] = self.rates().map(rate);
        let mut text = format!(
            "{:6.0} s  sent {sent}  received {received}  lost or under way {}  dropped by the NIC {}  \
             corrupted {}",
            self.at,
            self.not_back(),
            self.counters.dropped(),
            self.now.corrupted
        );
        if self.counters.rules_refused > 0 {
            text += &format!("  rules without place {}", self.counters.rules_refused);
        }
        text
    }
}

/// A file with a line for each second, which is in its place at the end.
pub(super) struct Save(Output);

impl Save {
    pub(super) fn create(path: &Path) -> Result<Self, Error> {
        let start = Output::create(path).and_then(|mut file| {
            writeln!(
                file,
                "seconds,sent,received,lost_or_under_way,dropped,corrupted,sent_mpps,received_mpps,\
                 sent_gbps,received_gbps"
            )?;
            file.flush()?;
            Ok(Self(file))
        });
        start.map_err(|why| {
            format!("{}: it cannot be written ({why}); name another with --save", path.display())
                .into()
        })
    }

    pub(super) fn line(&mut self, second: &Second) -> io::Result<()> {
        let Second { at, now, counters, wire_bytes, .. } = second;
        let [sent, received] = second.rates();
        let dropped = counters.dropped();
        writeln!(
            self.0,
            "{at:.3},{},{},{},{dropped},{},{:.6},{:.6},{:.6},{:.6}",
            now.sent,
            now.received,
            second.not_back(),
            now.corrupted,
            sent / 1e6,
            received / 1e6,
            sent * wire_bytes * 8e-9,
            received * wire_bytes * 8e-9
        )?;
        // Who reads a FIFO sees each second.
        self.0.flush()
    }

    pub(super) fn finish(self) -> io::Result<()> {
        self.0.finish()
    }
}

/// What came of it all.
#[derive(Default)]
pub(super) struct Ended {
    pub(super) report: Report,
    pub(super) counters: Counters,
    /// Ticks a second.
    pub(super) hertz: f64,
    pub(super) wire_bytes: f64,
    /// The NIC's form; none where no program came.
    pub(super) config: Option<InterfaceConfig>,
    /// How long doorbells and transfers were modelled to take.
    pub(super) modelled: (Duration, Duration),
}

/// The shares of round trips that are told.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

impl Ended {
    /// Packets a second that were sent, and that came back.
    fn rates(&self) -> [f64; 2] {
        let Report { start, ended_sending, ended, sent, received, .. } = self.report;
        let rate = |packets: u64, ticks: u64| packets as f64 * self.hertz / ticks.max(1) as f64;
        [
            rate(sent, ended_sending.saturating_sub(start)),
            rate(received, ended.saturating_sub(start)),
        ]
    }

    fn ns(&self, ticks: u64) -> f64 {
        ticks as f64 / self.hertz * 1e9
    }

    /// Round-trip times by name, ns.
    fn times(&self, times: &Histogram<u64>) -> Vec<(&'static str, f64)> {
        let quantile = |(name, share)| (name, self.ns(times.value_at_quantile(share)));
        let mut told: Vec<_> = vec![("min", self.ns(times.min()))];
        told.extend(QUANTILES.map(quantile));
        told.push(("max", self.ns(times.max())));
        told
    }

    fn modelled(&self) -> String {
        let part = |what: &str, time: Duration| {
            (!time.is_zero()).then(|| format!("{what} {} ns", time.as_nanos()))
        };
        let parts = [part("doorbells", self.modelled.0), part("transfers", self.modelled.1)];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() { "nothing".into() } else { parts.join(", ") }
    }

    pub(super) fn text(&self) -> String {
        let Report { sent, dropped, received, corrupted, late, .. } = &self.report;
        let config = self.config.map_or("no program came".into(), |config| config.to_string());
        let mut text = format!("NIC: {config}; modelled: {}\n", self.modelled());
        let told = ["sent", "received"].into_iter().zip([sent, received]).zip(self.rates());
        for ((what, packets), rate) in told {
            let gigabits = rate * self.wire_bytes * 8e-9;
            text += &format!(
                "{what:>10} {packets} packets, {:.3} Mpps, {gigabits:.3} Gbps\n",
                rate / 1e6
            );
        }
        text += &format!(
            "{:>10} {} packets, of them {dropped} dropped by the NIC\n",
            "lost",
            self.report.lost()
        );
        text += &format!("{:>10} {corrupted} packets, and {late} late or again\n", "corrupted");
        if let Some(times) = self.report.times.as_ref().filter(|times| !times.is_empty()) {
            let told = self.times(times).into_iter().map(|(name, ns)| format!("{name} {ns:.0}"));
            let told = told.collect::<Vec<_>>().join(", ");
            let of = match self.report.timed_every {
                0 | 1 => String::new(),
                every => format!(", of one packet in {every}"),
            };
            text += &format!("{:>10} {told} ns{of}\n", "round trip");
        }
        for (name, count) in self.counters.named() {
            text += &format!("{name:>24}: {count}\n");
        }
        text
    }

    pub(super) fn json(&self) -> Value {
        let Report { sent, dropped, received, corrupted, late, times, .. } = &self.report;
        let [sent_rate, received_rate] = self.rates();
        let counters: Map<String, Value> = self
            .counters
            .named()
            .into_iter()
            .map(|(name, count)| (name.into(), count.into()))
            .collect();
        let times = times.as_ref().filter(|times| !times.is_empty());
        let times = times.map(|times| {
            self.times(times)
                .into_iter()
                .map(|(name, ns)| (name.to_owned(), Value::from(ns)))
                .collect::<Map<_, _>>()
        });
        json!({
            "nic": self.config.map(|config| config.to_string()),
            "modelled": self.modelled(),
            "sent": sent,
            "received": received,
            "lost": self.report.lost(),
            "dropped": dropped,
            "corrupted": corrupted,
            "late": late,
            "sent_mpps": sent_rate / 1e6,
            "received_mpps": received_rate / 1e6,
            "sent_gbps": sent_rate * self.wire_bytes * 8e-9,
            "received_gbps": received_rate * self.wire_bytes * 8e-9,
            "rtt_ns": times,
            "rtt_of_one_in": self.report.timed_every,
            "counters": counters,
        })
    }

    /// How often each round-trip time was seen.
    pub(super) fn histogram(&self, times: &Histogram<u64>, mut to: impl Write) -> io::Result<()> {
        writeln!(to, "ns,packets")?;
        for value in times.iter_recorded() {
            let ns = self.ns(value.value_iterated_to());
            writeln!(to, "{ns:.1},{}", value.count_since_last_iteration())?;
        }
        to.flush()
    }
}
