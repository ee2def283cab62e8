//! The metrics of the suite.

use lab::measure::{BUSY_CORES, Measurement};
use lab::metric::{Better, Metric};
use machine::tsc::Tsc;

use super::ceiling::Ceiling;
use super::testbed::TrialReport;
use super::testbed_config::TestbedConfig;
use crate::core_use::Engine;
use crate::generator::{Expectation, Report};
use crate::wire::sample::{MIN_SIZE, Sizes};

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

const fn time_share(name: &'static str, about: &'static str) -> Metric {
    share(name, Better::Neither, about).from_time()
}

const fn cycles(name: &'static str, about: &'static str) -> Metric {
    Metric::new(name, "cycles", Better::Lower, about)
}

const fn lost(name: &'static str, about: &'static str) -> Metric {
    Metric::new(name, "1", Better::Lower, about)
}

/// All metrics of the suite.
pub const METRICS: &[Metric] = &[
    rate("rate", "echoed packets, or consumed ones, from the first sent to the last received"),
    Metric::new("wire_rate", BITS, Better::Higher, "rate on the wire, with preamble and gap")
        .called("rate on the wire"),
    share("of_ceiling", Better::Higher, "rate as a share of the sample's ceiling").from_time(),
    rate(
        "ceiling",
        "64 B lines that one core writes, the other adds 1 to, and the first reads back",
    ),
    rate("ceiling_one_way", "64 B lines that one core writes and the other reads"),
    cycles(
        "cycles_per_packet",
        "core cycles per packet of the application's cores, without polling in vain",
    ),
    cycles(
        "cycles_with_polling",
        "core cycles per echoed packet of the application's cores, polling included",
    ),
    cycles(
        "nic_cycles_per_packet",
        "core cycles of NIC and generator to send a packet and take it back, without polling in vain",
    ),
    time_share("busy_nic", "time of the NIC's core in iterations with packets"),
    time_share(
        "busy_application",
        "time of the application's busiest core in iterations with packets",
    ),
    time_share("polling_nic", "time in which the NIC's core looked for packets"),
    time_share(
        "polling_application",
        "time in which the application's core that looked least looked for packets",
    ),
    Metric::new(
        "packets_per_iteration_nic",
        "1",
        Better::Neither,
        "packets sent and taken back per iteration of the NIC's loop with packets",
    ),
    Metric::new(
        "packets_per_iteration_application",
        "1",
        Better::Neither,
        "packets per iteration of the application's loops with packets",
    ),
    rate("offered", "packets sent"),
    Metric::count(
        "checked",
        "without a usable clock: packets that returned in order with every byte as expected, or that the application consumed and counted",
    ),
    share("delivered", Better::Higher, "echoed packets, as a share of those to be sent"),
    Metric::new("lost", "1", Better::Lower, "packets to be sent that were not echoed"),
    Metric::new("dropped", "1", Better::Lower, "lost packets for which the NIC had no space"),
    Metric::new(
        "application_dropped",
        "1",
        Better::Lower,
        "lost packets that testpmd dropped because its transmit ring was full",
    ),
    Metric::new(
        "missing_values",
        "1",
        Better::Lower,
        "requested values that the key-value store has evicted; with check one-word only of packets whose first value is missing",
    ),
    cycles(
        "work_cycles_per_packet",
        "core cycles that the application alone needs per packet in memory, without an interface",
    ),
    cycles(
        "io_cycles_per_packet",
        "cycles_per_packet minus work_cycles_per_packet, if the application is saturated or the loop closed",
    ),
    share(
        "of_alone",
        Better::Higher,
        "rate as a share of that of the application alone on packets in memory",
    )
    .from_time(),
    cycles(
        "store_cycles_per_packet",
        "core cycles that the key-value store needs per packet for its requests, called in a loop without packets",
    ),
    share(
        "of_store",
        Better::Higher,
        "rate as a share of that of the same store called in a loop without packets",
    )
    .from_time(),
    cycles(
        "hyperscan_cycles_per_packet",
        "core cycles that Hyperscan alone needs per packet to scan the payload of packets in memory",
    ),
    share(
        "of_hyperscan",
        Better::Higher,
        "rate as a share of that of Hyperscan alone on the same bytes in memory",
    )
    .from_time(),
    Metric::time("application_waited", "time that testpmd's threads waited for their CPUs"),
    lost("lost_not_sent", "lost packets that the generator did not send in time"),
    lost("lost_no_rule", "lost packets for which the NIC had no rule"),
    lost(
        "flows_without_rule",
        "flows for whose rule the flow table has no space: their packets are lost",
    ),
    lost("lost_ring_full", "lost packets for which the pipe or descriptor ring was full"),
    lost("lost_notifications_full", "lost packets for which the notification buffer was full"),
    lost("lost_not_echoed", "lost packets that the NIC wrote to memory and that were not echoed"),
    Metric::time("rtt", "round-trip time, from memory to memory: median")
        .called("round-trip time")
        .statistic("p50"),
    Metric::time("rtt_p99", "round-trip time: 99th percentile within the round")
        .called("round-trip time")
        .statistic("p99"),
    Metric::time("rtt_p999", "round-trip time: 99.9th percentile within the round")
        .called("round-trip time")
        .statistic("p99.9"),
    rate("ndr_strict", "highest load without loss, confirmed, void trials included (MLRsearch)")
        .called("highest load without loss"),
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
    )
    .called("highest load without loss, on the wire"),
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
    Metric::new(
        "pcie_bytes_per_packet",
        "B",
        Better::Lower,
        "bytes that a card would move over PCIe per echoed packet, both directions, with overhead",
    ),
    Metric::new(
        "pcie_to_host_per_packet",
        "B",
        Better::Lower,
        "of them, to the host: packets, notifications or descriptors, and requests to read",
    ),
    Metric::new(
        "pcie_to_nic_per_packet",
        "B",
        Better::Lower,
        "of them, to the NIC: packets, notifications or descriptors, and writes to registers",
    ),
    Metric::count("depth", "packets that each pipe or queue can store"),
];

/// Metrics of a trial that would be better with a faster NIC and generator, if their core was the bottleneck.
const LIMITED: &[&str] = &[
    "rate",
    "wire_rate",
    "of_ceiling",
    "of_alone",
    "of_store",
    "of_hyperscan",
    "cycles_with_polling",
    "delivered",
    "lost",
    "dropped",
    "application_dropped",
    "rtt",
    "rtt_p99",
    "rtt_p999",
];

/// Returns the metrics of one trial.
pub(super) fn from_trial(trial: &TrialReport, tsc: &Tsc) -> Measurement {
    let rate = trial.report.rate() * tsc.hertz;
    let measurement = Measurement::default()
        .value("rate", rate)
        .value("wire_rate", trial.report.wire_rate() * tsc.hertz)
        .value("lost", trial.lost() as f64)
        .value("dropped", trial.report.dropped as f64);
    let named =
        [&interruptions(trial, tsc)[..], &utilisation(trial, tsc), &pcie_bytes(trial)].concat();
    let measurement = named.into_iter().fold(measurement, |all, (name, one)| all.value(name, one));
    let measurement = with_missing_values(measurement, &trial.report);
    match busy_shares(trial) {
        Some(shares) => measurement.covariate(BUSY_CORES, shares),
        None => measurement,
    }
}

/// Returns the metrics of a trial whose packets were counted and not timed.
pub(super) fn from_counted(trial: &TrialReport) -> Measurement {
    let (returned, lost) = (trial.report.received as f64, trial.lost() as f64);
    let measurement = Measurement::default()
        .value("checked", returned)
        .value("delivered", returned / trial.asked as f64)
        .value("lost", lost)
        .value("dropped", trial.report.dropped as f64);
    let by_cause = trial.losses().named().into_iter();
    let measurement =
        by_cause.fold(measurement, |all, (name, _, lost)| all.value(name, lost as f64));
    with_missing_values(measurement, &trial.report)
}

/// Records how many requested values the key-value store has evicted, if it is the application and that is known.
fn with_missing_values(measurement: Measurement, report: &Report) -> Measurement {
    match (report.expectation, report.missing) {
        (Expectation::Answers, Some(missing)) => {
            measurement.value("missing_values", missing as f64)
        }
        (
            Expectation::Answers
            | Expectation::Same
            | Expectation::Byte
            | Expectation::Images
            | Expectation::Nothing,
            _,
        ) => measurement,
    }
}

/// Records which side was the bottleneck, and which metrics the instrument limited.
pub(super) fn with_bottleneck(measurement: Measurement, trial: &TrialReport) -> Measurement {
    let limited = if trial.is_limited() { LIMITED } else { &[] };
    measurement.bottleneck(trial.bottleneck().name(), limited)
}

/// Returns the busy share of each application core, e.g. `0.98, 0.42`, if there are several.
fn busy_shares(trial: &TrialReport) -> Option<String> {
    let shares = trial.application_use();
    let text = shares.iter().map(|core| format!("{:.2}", core.busy)).collect::<Vec<_>>();
    (text.len() > 1).then(|| text.join(", "))
}

/// Returns the longest iterations and the stalls of the loops, in ns. Those of testpmd are unknown.
pub(super) fn interruptions(trial: &TrialReport, tsc: &Tsc) -> Vec<(&'static str, f64)> {
    let nic = &trial.report.iterations;
    let cores = || trial.application.iter().map(|core| &core.iterations);
    let nanoseconds = |(name, ticks): (_, u64)| (name, tsc.nanoseconds(ticks as f64));
    let nic = [
        ("gap_nic", nic.longest),
        ("stalled_nic", nic.stalled),
        ("longest_stall_nic", nic.longest_stall),
    ];
    let threads = [
        ("gap_application", cores().map(|it| it.longest).max().unwrap_or(0)),
        ("stalled_application", cores().map(|it| it.stalled).sum()),
        ("longest_stall_application", cores().map(|it| it.longest_stall).max().unwrap_or(0)),
    ];
    let known = if trial.testpmd.is_some() { &[][..] } else { &threads };
    nic.iter().chain(known).copied().map(nanoseconds).collect()
}

/// Returns what each core did in a trial and where packets were lost, as far as it is known.
pub(super) fn utilisation(trial: &TrialReport, tsc: &Tsc) -> Vec<(&'static str, f64)> {
    let nic = trial.report.core_use();
    let cores = trial.application_use();
    let polling = cores.iter().map(|core| core.polling).reduce(f64::min);
    let mut named = vec![("busy_nic", nic.busy), ("polling_nic", nic.polling)];
    named.extend(trial.losses().named().map(|(name, _, packets)| (name, packets as f64)));
    let testpmd = trial.testpmd.as_ref();
    let waited = testpmd.and_then(|testpmd| testpmd.waited);
    let if_known = [
        ("busy_application", trial.application_busy()),
        ("polling_application", polling),
        ("application_dropped", testpmd.map(|testpmd| testpmd.forward.dropped as f64)),
        ("application_waited", waited.map(|ticks| tsc.nanoseconds(ticks as f64))),
        ("cycles_per_packet", trial.cycles_per_packet(tsc)),
        ("cycles_with_polling", trial.cycles_with_polling(tsc)),
        ("work_cycles_per_packet", trial.work_cycles(tsc)),
        ("io_cycles_per_packet", trial.io_cycles(tsc)),
        ("of_alone", trial.of_alone()),
        ("store_cycles_per_packet", trial.engine_cycles(Engine::Store, tsc)),
        ("of_store", trial.of_engine(Engine::Store)),
        ("hyperscan_cycles_per_packet", trial.engine_cycles(Engine::Hyperscan, tsc)),
        ("of_hyperscan", trial.of_engine(Engine::Hyperscan)),
        ("nic_cycles_per_packet", trial.report.cycles_per_packet(tsc.hertz)),
        ("packets_per_iteration_nic", nic.packets_per_iteration),
        ("packets_per_iteration_application", trial.packets_per_iteration()),
    ];
    named.extend(if_known.into_iter().filter_map(|(name, value)| Some((name, value?))));
    named
}

/// Returns the bytes that a card would move over PCIe per echoed packet; none if no packet was echoed, or if the NIC has no
/// such interface.
pub(super) fn pcie_bytes(trial: &TrialReport) -> Vec<(&'static str, f64)> {
    let (to_host, to_nic) = (trial.nic.to_host(), trial.nic.to_nic());
    if trial.report.received == 0 || to_host == 0 {
        return Vec::new();
    }
    let per_packet = |bytes: u64| bytes as f64 / trial.report.received as f64;
    vec![
        ("pcie_bytes_per_packet", per_packet(to_host + to_nic)),
        ("pcie_to_host_per_packet", per_packet(to_host)),
        ("pcie_to_nic_per_packet", per_packet(to_nic)),
    ]
}

/// Adds the metrics that describe the testbed: its ceiling and its depth.
pub(super) fn with_config(
    mut measurement: Measurement,
    config: &TestbedConfig,
    ceiling: Ceiling,
) -> Measurement {
    // The ceiling counts single lines and is no bound for packets of several lines.
    let one_line = config.packet_bytes == Sizes::One(MIN_SIZE);
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
        .value("depth", f64::from(config.capacity()))
        .covariate("modelled", config.pcie.to_string().as_str())
}
