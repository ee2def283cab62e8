//! What a sample of a copy measures.

use lab::metric::{Better, Metric};

/// Bytes copied a second.
pub const THROUGHPUT: &str = "throughput";
/// Time a copy: the median over the batches of a sample.
pub const TIME: &str = "time";
/// Time a copy in the fastest batch.
pub const TIME_MIN: &str = "time_min";
/// What the timer's step amounts to.
pub const RESOLUTION: &str = "resolution";
/// Time of the timed loop around a function that returns at once.
pub const LOOP_FLOOR: &str = "loop_floor";
/// Bytes whose delivery was verified.
pub const CHECKED: &str = "checked";

pub(crate) const THROUGHPUT_METRIC: Metric =
    Metric::new(THROUGHPUT, "B/s", Better::Higher, "bytes copied a second, each byte counted once");
pub(crate) const CHECKED_METRIC: Metric =
    Metric::new(CHECKED, "B", Better::Neither, "bytes verified to have arrived, after the timing");

/// The metrics of the copying experiments.
pub const METRICS: &[Metric] = &[
    THROUGHPUT_METRIC,
    Metric::time(TIME, "time a copy, median over the batches of a sample"),
    Metric::time(TIME_MIN, "time a copy in the fastest batch of a sample"),
    Metric::time(RESOLUTION, "what one step of the timer amounts to in the time of a copy"),
    Metric::time(
        LOOP_FLOOR,
        "time of the same loop around a function that returns at once; a lower bound that overlaps with the copy; not to be subtracted",
    ),
    CHECKED_METRIC,
];
