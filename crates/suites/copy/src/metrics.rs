//! Metrics and covariates that several methods share.

use lab::metric::{Better, Metric};

/// Covariate: the memory type that the kernel gave a mapping, e.g. `uncached-minus`, or why it is not verified.
pub const MEMORY_TYPE: &str = "memory_type";

/// Covariate: the name of the GPU and the version of its driver's API.
pub const GPU: &str = "gpu";

/// Bytes copied per second.
pub const THROUGHPUT: &str = "throughput";
/// Time per copy: the median over the batches of a sample.
pub const TIME: &str = "time";
/// Time per copy in the fastest batch.
pub const TIME_MIN: &str = "time_min";
/// One step of the timer, divided by the copies of a batch.
pub const RESOLUTION: &str = "resolution";
/// Time per iteration of the timed loop around a function that returns at once.
pub const LOOP_FLOOR: &str = "loop_floor";
/// Bytes verified after the timing.
pub const CHECKED: &str = "checked";

pub(crate) const THROUGHPUT_METRIC: Metric = Metric::new(
    THROUGHPUT,
    "B/s",
    Better::Higher,
    "bytes copied per second, each byte counted once",
)
.rate_of(TIME);
pub(crate) const CHECKED_METRIC: Metric = Metric::new(
    CHECKED,
    "B",
    Better::Neither,
    "bytes whose delivery was verified after the timing",
);

/// The metrics of `throughput`.
pub const METRICS: &[Metric] = &[
    THROUGHPUT_METRIC,
    Metric::time(TIME, "time per copy, median over the batches of a sample"),
    Metric::time(TIME_MIN, "time per copy in the fastest batch of a sample"),
    Metric::time(RESOLUTION, "one step of the timer, per copy of a batch"),
    Metric::time(
        LOOP_FLOOR,
        "time per iteration of the same loop around a function that returns at once: a lower bound that overlaps the copy, not to be subtracted",
    ),
    CHECKED_METRIC,
];
