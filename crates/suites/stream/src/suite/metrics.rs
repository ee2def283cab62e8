//! The metrics of the suite.

use lab::metric::{Better, Metric};

/// The unit of rates.
pub const PACKETS: &str = "packets/s";
/// The unit of rates on the wire.
pub const BITS: &str = "bit/s";

const fn rate(name: &'static str, about: &'static str) -> Metric {
    Metric::new(name, PACKETS, Better::Higher, about)
}

const fn share(name: &'static str, better: Better, about: &'static str) -> Metric {
    Metric::new(name, "share", better, about)
}

/// The metrics.
pub const METRICS: &[Metric] = &[
    rate("rate", "packets that came back, from the first sent until the last came"),
    Metric::new("wire_rate", BITS, Better::Higher, "the same on the wire, with preamble and gap"),
    share("of_ceiling", Better::Higher, "the rate over the ceiling of the same sample"),
    rate("ceiling", "lines of 64 B that one core writes, the other adds 1 to, and the first reads"),
    rate("ceiling_one_way", "lines of 64 B that one core writes and the other reads"),
    Metric::new(
        "cycles_per_packet",
        "cycles",
        Better::Lower,
        "core cycles of the application's core in turns that brought packets, for each of them",
    ),
    rate("offered", "packets that were sent"),
    share("delivered", Better::Higher, "packets that came back, of those that were to be sent"),
    Metric::new("lost", "1", Better::Lower, "packets that were to be sent and did not come back"),
    Metric::new("dropped", "1", Better::Lower, "those of them for which the NIC had no room"),
    Metric::time("rtt", "from before a packet is written to memory until it has left, median"),
    Metric::time("rtt_p99", "the same, 99th percentile inside the round"),
    Metric::time("rtt_p999", "the same, 99.9th percentile inside the round"),
    rate("ndr", "the largest load that loses nothing, confirmed (MLRsearch)"),
    rate("ndr_strict", "the same with void trials counted as loss"),
    rate("pdr", "the largest load that loses no more than 0.5%, confirmed (MLRsearch)"),
    rate("rfc2544", "the largest load that loses nothing, by the binary search of RFC 2544"),
    Metric::new("ndr_wire", BITS, Better::Higher, "ndr on the wire, with preamble and gap"),
    Metric::new("rfc2544_wire", BITS, Better::Higher, "rfc2544 on the wire, with preamble and gap"),
    Metric::count("trials", "trials of the searches, void ones too"),
    Metric::time("gap_nic", "the longest turn of the loop of NIC and generator"),
    Metric::time("gap_application", "the longest turn of the application's loop, of all cores"),
    Metric::time("stood_nic", "for how long the loop of NIC and generator stood still"),
    Metric::time(
        "stood_application",
        "for how long the loops of the application did while packets came",
    ),
    Metric::count("depth", "packets that each pipe or queue holds"),
];
