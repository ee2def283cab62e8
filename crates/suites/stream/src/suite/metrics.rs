//! The metrics of the suite.

use lab::measure::Measurement;
use lab::metric::{Better, Metric};
use machine::tsc::Tsc;

use super::ceiling::Ceiling;
use super::testbed::TrialReport;
use super::testbed_config::TestbedConfig;
use crate::wire::sample::MIN_SIZE;

/// Unit of packet rates.
pub const PACKETS: &str = "packets/s";
/// Unit of rates on the wire.
pub const BITS: &str = "bit/s";

const fn rate(name: &'static str, about: &'static str) -> Metric {
    Metric::new(name, PACKETS, Better::Higher, about)
}

const fn share(name: &'static str, better: Better, about: &'static str) -> Metric {
    Metric::new(name, "share", better, about)
}

/// All metrics of the suite.
pub const METRICS: &[Metric] = &[
    rate("rate", "echoed packets, from the first sent to the last received"),
    Metric::new("wire_rate", BITS, Better::Higher, "rate on the wire, with preamble and gap"),
    share("of_ceiling", Better::Higher, "rate as a share of the sample's ceiling").from_time(),
    rate(
        "ceiling",
        "64 B lines that one core writes, the other adds 1 to, and the first reads back",
    ),
    rate("ceiling_one_way", "64 B lines that one core writes and the other reads"),
    Metric::new(
        "cycles_per_packet",
        "cycles",
        Better::Lower,
        "core cycles per packet of the application's core, in iterations with packets",
    ),
    rate("offered", "packets sent"),
    share("delivered", Better::Higher, "echoed packets, as a share of those to be sent"),
    Metric::new("lost", "1", Better::Lower, "packets to be sent that were not echoed"),
    Metric::new("dropped", "1", Better::Lower, "lost packets for which the NIC had no space"),
    Metric::new(
        "application_dropped",
        "1",
        Better::Lower,
        "lost packets that testpmd dropped because its transmit ring was full",
    ),
    Metric::time("application_waited", "time that testpmd's threads waited for their CPUs"),
    Metric::time("rtt", "round-trip time, from memory to memory: median"),
    Metric::time("rtt_p99", "round-trip time: 99th percentile within the round"),
    Metric::time("rtt_p999", "round-trip time: 99.9th percentile within the round"),
    rate("ndr_strict", "highest load without loss, confirmed, void trials included (MLRsearch)"),
    rate("ndr_strict_upper", "lowest load of these trials that lost packets"),
    rate("ndr", "highest load without loss, confirmed by valid trials (MLRsearch)"),
    rate("ndr_upper", "lowest load of these trials that lost packets"),
    rate("pdr", "highest load with at most 0.5% loss, confirmed by valid trials (MLRsearch)"),
    rate("pdr_upper", "lowest load of these trials that lost more"),
    rate(
        "rfc2544",
        "highest load without loss, by the binary search of RFC 2544, void trials included",
    ),
    rate("rfc2544_upper", "lowest load of these trials that lost packets"),
    Metric::new(
        "ndr_strict_wire",
        BITS,
        Better::Higher,
        "ndr_strict on the wire, with preamble and gap",
    ),
    Metric::new("rfc2544_wire", BITS, Better::Higher, "rfc2544 on the wire, with preamble and gap"),
    Metric::count("trials", "trials of both searches, including void ones"),
    Metric::count("void_trials", "void trials of both searches"),
    Metric::time("gap_nic", "longest iteration of the NIC and generator loop"),
    Metric::time("gap_application", "longest iteration of the application's loops"),
    Metric::time("stalled_nic", "stall time of the NIC and generator loop"),
    Metric::time(
        "stalled_application",
        "stall time of the application's loops in which packets came",
    ),
    Metric::time("longest_stall_nic", "longest stall of the NIC and generator loop"),
    Metric::time(
        "longest_stall_application",
        "longest stall of the application's loops in which packets came",
    ),
    Metric::count("depth", "packets that each pipe or queue can store"),
];

/// Returns the metrics of one trial.
pub(super) fn from_trial(trial: &TrialReport, config: &TestbedConfig, tsc: &Tsc) -> Measurement {
    let TrialReport { report, application, .. } = trial;
    let rate = report.rate() * tsc.hertz;
    let measurement = Measurement::default()
        .value("rate", rate)
        .value("wire_rate", rate * config.wire_bits())
        .value("lost", trial.lost() as f64)
        .value("dropped", report.dropped as f64);
    let mut measurement = interruptions(trial, tsc)
        .into_iter()
        .fold(measurement, |all, (name, ns)| all.value(name, ns));
    if let Some(testpmd) = trial.testpmd {
        measurement = measurement.value("application_dropped", testpmd.forward.dropped as f64);
        if let Some(waited) = testpmd.waited {
            measurement = measurement.value("application_waited", waited.as_nanos() as f64);
        }
    }
    if application.worked > 0 {
        let seconds = application.busy as f64 / tsc.hertz;
        let cycles = seconds * application.core_hertz / application.worked as f64;
        measurement = measurement.value("cycles_per_packet", cycles);
    }
    measurement
}

/// Returns the longest iterations and the stalls of the loops, in ns. Those of testpmd are unknown.
pub(super) fn interruptions(trial: &TrialReport, tsc: &Tsc) -> Vec<(&'static str, f64)> {
    let TrialReport { report, application, testpmd, .. } = trial;
    let nanoseconds = |(name, ticks): (_, u64)| (name, tsc.nanoseconds(ticks as f64));
    let nic = [
        ("gap_nic", report.gap),
        ("stalled_nic", report.stalled),
        ("longest_stall_nic", report.longest_stall),
    ];
    let threads = [
        ("gap_application", application.gap),
        ("stalled_application", application.stalled),
        ("longest_stall_application", application.longest_stall),
    ];
    let known = if testpmd.is_some() { &[][..] } else { &threads };
    nic.iter().chain(known).copied().map(nanoseconds).collect()
}

/// Adds the metrics that describe the testbed: its ceiling and its depth.
pub(super) fn with_config(
    mut measurement: Measurement,
    config: &TestbedConfig,
    ceiling: Ceiling,
) -> Measurement {
    // The ceiling counts single lines and is no bound for packets of several lines.
    let one_line = config.packet_bytes == MIN_SIZE;
    if ceiling.back > 0.0 {
        let rate = measurement.values.get("rate").copied().filter(|_| one_line);
        measurement = match rate {
            Some(rate) => measurement.value("of_ceiling", rate / ceiling.back),
            None => measurement,
        };
        measurement = measurement.value("ceiling", ceiling.back);
    }
    if ceiling.one_way > 0.0 {
        measurement = measurement.value("ceiling_one_way", ceiling.one_way);
    }
    measurement
        .value("depth", f64::from(config.depth))
        .covariate("modelled", config.modelled().as_str())
}
