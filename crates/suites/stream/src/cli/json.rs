//! JSON output of the commands.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::Ipv4Addr;

use lab::schema::{self, JsonOutput, OutputSchema};
use schemars::JsonSchema;
use serde::Serialize;

use super::Error;
use crate::core_use::CoreUse;

/// Schemas of the commands' outputs; `search` prints that of every suite's command.
pub(crate) const SCHEMAS: &[OutputSchema] = &[
    OutputSchema::of::<ApplicationOutput<'static>>(),
    OutputSchema::of::<GeneratorOutput<'static>>(),
    OutputSchema::of::<PcapOutput>(),
];

/// Prints an output in one line.
///
/// # Errors
/// Returns the error of standard output.
pub(super) fn print<T: JsonOutput>(output: &T) -> Result<(), Error> {
    writeln!(lab::terminal::stdout(), "{}", schema::to_value(output)?)?;
    Ok(())
}

/// How a core spent its time.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CoreOutput {
    /// Share of the time in iterations with packets.
    busy: f64,
    /// Share of the time in which the loop looked for packets.
    polling: f64,
    /// Whether the loop had at least as much work as it can do.
    saturated: bool,
    /// Packets per iteration with packets; `null` if there was none.
    packets_per_iteration: Option<f64>,
    /// Core cycles per packet; `null` if unknown.
    cycles_per_packet: Option<f64>,
}

impl CoreOutput {
    pub(super) fn new(used: &CoreUse, cycles_per_packet: Option<f64>) -> Self {
        let CoreUse { busy, polling, packets_per_iteration } = *used;
        let saturated = used.is_saturated();
        Self { busy, polling, saturated, packets_per_iteration, cycles_per_packet }
    }
}

/// Interface of Linux through which packets passed. All fields are `null` if they passed the software NIC.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(super) struct LinkOutput {
    /// How packets passed the interface.
    pub(super) link: Option<String>,
    /// Whether packets were not copied; `null` also without AF_XDP.
    pub(super) zero_copy: Option<bool>,
    /// Whether the driver of the interface runs the XDP program; `null` also without AF_XDP.
    pub(super) native_xdp: Option<bool>,
    /// Received packets that are not of the traffic.
    pub(super) stray: Option<u64>,
    /// Packets dropped on this side, by cause.
    pub(super) dropped_by_kernel: Option<BTreeMap<&'static str, u64>>,
}

/// Port of DPDK through which packets passed.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct PortOutput {
    /// Name of the driver.
    pub(super) driver: String,
    /// Version of DPDK.
    pub(super) dpdk: String,
    /// Ethernet address; `null` if unknown.
    pub(super) ethernet: Option<String>,
    /// Whether its link is up.
    pub(super) link_up: bool,
    /// Speed of its link, Mbit/s; `null` if unknown.
    pub(super) link_mbps: Option<u32>,
    /// Queues of all cores.
    pub(super) queues: usize,
    /// Receive descriptors per queue.
    pub(super) rx_descriptors: u16,
    /// Transmit descriptors per queue.
    pub(super) tx_descriptors: u16,
    /// Received packets, as the port counts them.
    pub(super) received: u64,
    /// Sent packets, as the port counts them.
    pub(super) sent: u64,
    /// Received packets that are not of the traffic.
    pub(super) stray: u64,
    /// Packets that the port dropped, by cause.
    pub(super) dropped: BTreeMap<&'static str, u64>,
}

/// Pair of addresses with many packets.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct HeavyFlow {
    /// Address of the sender.
    pub(super) source: Ipv4Addr,
    /// Address of the receiver.
    pub(super) destination: Ipv4Addr,
    /// Estimated number of packets.
    pub(super) packets: u64,
}

/// Results of an application.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ApplicationOutput<'a> {
    /// Name of the application.
    pub(super) application: &'a str,
    /// Its options in words.
    pub(super) options: String,
    /// Packets of all cores.
    pub(super) packets: u64,
    /// Counts of the application on all cores, by name.
    pub(super) counts: BTreeMap<&'static str, u64>,
    /// Pairs of addresses with at least 0.1% of a core's packets, at most 64 per core, the highest estimate first; `null` unless
    /// it is the telemetry.
    pub(super) heavy_flows: Option<Vec<HeavyFlow>>,
    /// Matching lines by rule file; `null` unless it is the log monitor.
    pub(super) matching_lines: Option<BTreeMap<&'a str, u64>>,
    /// How each core spent its time.
    pub(super) core_use: Vec<CoreOutput>,
    /// NOP instructions per packet; `null` unless it is the echo.
    pub(super) nops: Option<u32>,
    /// Time that it ran, s.
    pub(super) seconds: f64,
    /// Interface of the software NIC with its configuration, or the name of an interface of Linux or of a port of DPDK.
    pub(super) interface: String,
    /// Packets of each core; `null` over an interface of Linux, which one core serves.
    pub(super) cores: Option<&'a [u64]>,
    /// Pipes per core; `null` without the software NIC.
    pub(super) pipes: Option<u32>,
    /// How the software NIC chooses a pipe; `null` without it.
    pub(super) steering: Option<&'static str>,
    /// Flows that have a rule; `null` without rules.
    pub(super) flows: Option<u32>,
    /// Why it ended; `null` without the software NIC.
    pub(super) ended: Option<&'a str>,
    /// Port of DPDK; `null` without one.
    pub(super) port: Option<PortOutput>,
    #[serde(flatten)]
    pub(super) link: LinkOutput,
}

impl JsonOutput for ApplicationOutput<'_> {
    const NAME: &'static str = "stream-application";
    const WRITTEN_BY: &'static str =
        "tollgate stream echo|maglev|key-value|log-monitor|telemetry --json";
    const VERSION: u64 = 2;
}

/// Result of the packet generator.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct GeneratorOutput<'a> {
    /// Configuration of the software NIC; `null` if no program connected.
    pub(super) nic: Option<String>,
    /// Modelled properties of PCIe; `null` without the software NIC.
    pub(super) modelled: Option<String>,
    /// Packets sent.
    pub(super) sent: u64,
    /// Packets returned.
    pub(super) received: u64,
    /// Packets that were not returned; `null` if none should be.
    pub(super) lost: Option<u64>,
    /// Sent packets for which the NIC had no space.
    pub(super) dropped: u64,
    /// Lost packets by cause, as far as it is known.
    pub(super) lost_by_cause: BTreeMap<&'static str, u64>,
    /// How the core of NIC and generator spent its time.
    pub(super) nic_core: CoreOutput,
    /// Returned packets with wrong contents.
    pub(super) corrupted: u64,
    /// Packets returned after a later one of their sequence, or twice.
    pub(super) late: u64,
    /// Values that answers of the key-value store state to be missing; `null` if they are not checked.
    pub(super) missing: Option<u64>,
    /// Lines that a log monitor finds in the sent packets; `null` for other traffic.
    pub(super) matching_lines: Option<u64>,
    /// Application of which the traffic was; `null` if it came from a file.
    pub(super) application: Option<&'a str>,
    /// The traffic in words; `null` if it came from a file.
    pub(super) traffic: Option<String>,
    /// Millions of packets sent per second.
    pub(super) sent_mpps: f64,
    /// Millions of packets returned per second.
    pub(super) received_mpps: f64,
    /// Gbit/s sent, with check sequences, preambles and gaps.
    pub(super) sent_gbps: f64,
    /// Gbit/s returned, with check sequences, preambles and gaps.
    pub(super) received_gbps: f64,
    /// Mean, minimum, quantiles and maximum of the round-trip times, ns; `null` if none was measured.
    pub(super) rtt_ns: Option<BTreeMap<&'static str, f64>>,
    /// Timing interval in packets; 0 if no packet was timed.
    pub(super) rtt_of_one_in: u32,
    /// Counters of the software NIC, by name; `null` without it.
    pub(super) counters: Option<BTreeMap<&'static str, u64>>,
    /// Name of the interface of Linux; `null` without one.
    pub(super) interface: Option<&'a str>,
    #[serde(flatten)]
    pub(super) link: LinkOutput,
}

impl JsonOutput for GeneratorOutput<'_> {
    const NAME: &'static str = "stream-generate";
    const WRITTEN_BY: &'static str = "tollgate stream generate --json";
    const VERSION: u64 = 1;
}

/// Files of sample traffic.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct PcapOutput {
    /// The files written.
    pub(super) files: Vec<PcapFile>,
}

/// A file of sample traffic.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct PcapFile {
    /// Path.
    pub(super) file: String,
    /// Number of packets.
    pub(super) packets: u32,
    /// Packet size on the wire in bytes, or the name of a mix of sizes.
    pub(super) size: String,
    /// Number of source addresses.
    pub(super) sources: u32,
    /// Number of destination addresses.
    pub(super) destinations: u32,
}

impl JsonOutput for PcapOutput {
    const NAME: &'static str = "stream-pcap";
    const WRITTEN_BY: &'static str = "tollgate stream pcap --json";
    const VERSION: u64 = 1;
}
