//! What a sample of a crossing measures.

use lab::metric::{Better, Metric, STEP};

pub(crate) const STEP_METRIC: Metric =
    Metric::time(STEP, "what one step of the time-stamp counter amounts to");
pub(crate) const CROSSINGS_MADE: Metric = Metric::count("crossings_made", "crossings made");
pub(crate) const CROSSINGS_STAMPED: Metric =
    Metric::count("crossings_stamped", "crossings with both stamps, each its own");

/// The metrics of the one-way experiments.
pub const METRICS: &[Metric] = &[
    Metric::time("u2k", "user to kernel: median, the empty fenced pair subtracted"),
    Metric::time("u2k_min", "user to kernel: the least"),
    Metric::time("u2k_p99", "user to kernel: what 99% of crossings stay under"),
    Metric::time("u2k_p999", "user to kernel: what 99.9% of crossings stay under"),
    Metric::time("k2u", "kernel to user: median, the empty fenced pair subtracted"),
    Metric::time("k2u_min", "kernel to user: the least"),
    Metric::time("k2u_p99", "kernel to user: what 99% of crossings stay under"),
    Metric::time("k2u_p999", "kernel to user: what 99.9% of crossings stay under"),
    Metric::time("kernel", "between the two stamps inside the kernel: median"),
    Metric::time("round_trip", "the whole way there and back with no stamp inside: median"),
    Metric::time(
        "stamping",
        "the stamps with nothing between them, the empty fenced pair subtracted: median",
    ),
    Metric {
        name: "in_over_out",
        unit: "1",
        better: Better::Neither,
        about: "user to kernel over kernel to user: medians",
    },
    STEP_METRIC,
    CROSSINGS_MADE,
    CROSSINGS_STAMPED,
];
