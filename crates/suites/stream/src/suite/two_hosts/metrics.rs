//! The metrics of two hosts. Those of the device under test begin with `dut_`: each metric is measured by one role.

use lab::metric::{Better, Metric};

use super::super::metrics::{BITS, PACKETS};

const fn packets(name: &'static str, about: &'static str) -> Metric {
    Metric::new(name, "1", Better::Neither, about)
}

const fn lost(name: &'static str, about: &'static str) -> Metric {
    Metric::new(name, "1", Better::Lower, about)
}

const fn cycles(name: &'static str, about: &'static str) -> Metric {
    Metric::new(name, "cycles", Better::Lower, about)
}

/// All metrics. The rates and times are those of the interfaces, the kernels of both hosts and what connects them: over a veth
/// pair, which is a link of the kernel, they are not those of a NIC.
pub(super) const METRICS: &[Metric] = &[
    Metric::new(
        "rate",
        PACKETS,
        Better::Higher,
        "echoed packets at the generator, from the first sent to the last received",
    ),
    Metric::new("wire_rate", BITS, Better::Higher, "rate on the wire, with preamble and gap").called("rate on the wire"),
    Metric::new("offered", PACKETS, Better::Higher, "packets sent"),
    Metric::new(
        "delivered",
        "share",
        Better::Higher,
        "echoed packets, as a share of those to be sent",
    ),
    lost("lost", "packets to be sent that were not echoed"),
    lost("lost_not_sent", "lost packets that the generator did not send in time"),
    lost("lost_before_dut", "sent packets that the device under test did not process"),
    lost("lost_after_dut", "packets that the device under test processed and that did not return"),
    lost("dropped_by_kernel", "packets that the kernel dropped at the generator's interface"),
    Metric::time(
        "rtt",
        "round-trip time at the generator, through the kernels of both hosts and what connects them: median",
    ).called("round-trip time").statistic("p50"),
    Metric::time("rtt_p99", "the same: 99th percentile within the round").called("round-trip time").statistic("p99"),
    Metric::time("rtt_p999", "the same: 99.9th percentile within the round").called("round-trip time").statistic("p99.9"),
    cycles(
        "nic_cycles_per_packet",
        "core cycles of the generator to send a packet and take it back, without polling in vain",
    ),
    Metric::new(
        "polling_nic",
        "share",
        Better::Neither,
        "time in which the generator's core looked for packets",
    )
    .from_time(),
    Metric::time("stalled_nic", "stall time of the generator's loop"),
    Metric::time("longest_stall_nic", "longest stall of the generator's loop"),
    packets("dut_packets", "packets that the device under test processed in the trial"),
    packets("dut_stray", "other packets that it received"),
    lost("dut_dropped_by_kernel", "packets that the kernel dropped at its interface"),
    cycles(
        "dut_cycles_per_packet",
        "core cycles per packet of the device under test, without polling in vain",
    ),
    Metric::time("dut_stalled", "stall time of its loop in which packets came"),
    Metric::time("dut_longest_stall", "longest stall of its loop in which packets came"),
];

/// Metrics that would be better with a faster generator, if its core was the bottleneck.
pub(super) const LIMITED: &[&str] =
    &["rate", "wire_rate", "delivered", "lost", "rtt", "rtt_p99", "rtt_p999"];
