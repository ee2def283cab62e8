//! Histogram of the times of many crossings: minimum, median, tails; and the metrics of their numbers.

use hdrhistogram::Histogram;
use lab::measure::Measurement;
use lab::metric::{Metric, STEP};
use lab::sample::Failure;

/// The step of the time-stamp counter.
pub(crate) const STEP_METRIC: Metric =
    Metric::time(STEP, "duration of one step of the time-stamp counter");
/// The number of crossings.
pub(crate) const CROSSINGS_MADE: Metric = Metric::count("crossings_made", "crossings made");
/// The number of stamped crossings.
pub(crate) const CROSSINGS_STAMPED: Metric =
    Metric::count("crossings_stamped", "crossings with both stamps, each from that crossing");

/// Maximum time, ticks; longer ones are recorded as this. Half a second, far longer than any stall.
const MAX_TICKS: u64 = 1 << 30;

/// A histogram in ticks of the time-stamp counter, exact up to 2047 and with 0.1% precision above.
pub struct Ticks(Histogram<u64>);

impl Ticks {
    /// Creates an empty histogram with all its memory, so that recording does not allocate.
    ///
    /// # Errors
    /// Returns `failed` if the histogram cannot be created.
    pub fn new() -> Result<Self, Failure> {
        let histogram = Histogram::new_with_bounds(1, MAX_TICKS, 3);
        histogram.map(Self).map_err(|e| Failure::failed(format!("create a histogram: {e}")))
    }

    /// Records one crossing.
    #[inline]
    pub fn record(&mut self, ticks: u64) {
        self.0.saturating_record(ticks);
    }

    /// Records `count` crossings with the same time.
    pub fn record_many(&mut self, ticks: u64, count: u64) {
        self.0.saturating_record_n(ticks, count);
    }

    /// Returns the number of crossings recorded.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Returns the median, in ticks.
    pub fn median(&self) -> u64 {
        self.0.value_at_quantile(0.5)
    }

    /// Adds `name` (the median), `name_min`, `name_p99`, `name_p999` and the histogram, all in ns.
    ///
    /// # Errors
    /// Returns `failed` if the histogram cannot be encoded.
    pub fn into_measurement(
        &self,
        measurement: Measurement,
        name: &str,
        tsc_hertz: f64,
    ) -> Result<Measurement, Failure> {
        let ns = |ticks: u64| ticks as f64 * 1e9 / tsc_hertz;
        let quantile = |q| ns(self.0.value_at_quantile(q));
        let mut in_ns = Self::new()?;
        for step in self.0.iter_recorded() {
            in_ns.record_many(ns(step.value_iterated_to()).round() as u64, step.count_at_value());
        }
        measurement
            .value(name, quantile(0.5))
            .value(&format!("{name}_min"), ns(self.0.min()))
            .value(&format!("{name}_p99"), quantile(0.99))
            .value(&format!("{name}_p999"), quantile(0.999))
            .histogram(name, &in_ns.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metrics_are_the_quantiles_of_the_recorded_times() {
        let mut ticks = Ticks::new().unwrap();
        (1..=1000).for_each(|value| ticks.record(value));
        assert_eq!((ticks.count(), ticks.median()), (1000, 500));
        let measurement = ticks.into_measurement(Measurement::default(), "u2k", 0.5e9).unwrap();
        let value = |name| measurement.values[name];
        assert_eq!(
            [value("u2k"), value("u2k_min"), value("u2k_p99"), value("u2k_p999")],
            [1000.0, 2.0, 1980.0, 1998.0]
        );
        let decoded = lab::histogram::decode_histogram(&measurement.histograms["u2k"]).unwrap();
        assert_eq!((decoded.len(), decoded.value_at_quantile(0.5)), (1000, 1000));
    }

    #[test]
    fn a_time_above_the_maximum_is_still_counted() {
        let mut ticks = Ticks::new().unwrap();
        ticks.record(u64::MAX);
        assert_eq!(ticks.count(), 1);
    }
}
