//! What a sample of a crossing measures.

use lab::metric::{Better, Metric, STEP};

/// A time that is better when it is less.
pub const fn time(name: &'static str, about: &'static str) -> Metric {
    Metric { name, unit: "ns", better: Better::Lower, about }
}

/// A count that is only reported.
pub const fn count(name: &'static str, about: &'static str) -> Metric {
    Metric { name, unit: "1", better: Better::Neither, about }
}

/// The metrics of the one-way experiments.
pub const METRICS: &[Metric] = &[
    time("u2k", "user to kernel: median, the empty fenced pair subtracted"),
    time("u2k_min", "user to kernel: the least"),
    time("u2k_p99", "user to kernel: what 99% of crossings stay under"),
    time("u2k_p999", "user to kernel: what 99.9% of crossings stay under"),
    time("k2u", "kernel to user: median, the empty fenced pair subtracted"),
    time("k2u_min", "kernel to user: the least"),
    time("k2u_p99", "kernel to user: what 99% of crossings stay under"),
    time("k2u_p999", "kernel to user: what 99.9% of crossings stay under"),
    time("kernel", "between the two stamps inside the kernel: median"),
    time("round_trip", "the whole way there and back with no stamp inside: median"),
    time(
        "stamping",
        "the stamps with nothing between them, the empty fenced pair subtracted: median",
    ),
    Metric {
        name: "in_over_out",
        unit: "1",
        better: Better::Neither,
        about: "user to kernel over kernel to user: medians",
    },
    time(STEP, "what one step of the time-stamp counter amounts to"),
    count("crossings_made", "crossings made"),
    count("crossings_stamped", "crossings with both stamps, each its own"),
];
