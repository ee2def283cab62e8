//! Histogram of the times of many crossings: minimum, trimmed mean, tails; and the metrics of their numbers.
//!
//! A single reading of the counter is a multiple of its step, e.g. 26 ticks. The median of such times is a multiple
//! too, whatever the true time is. Their mean is unbiased, because the phase of the counter varies; without the extremes
//! it is not affected by interruptions.

use hdrhistogram::Histogram;
use lab::measure::Measurement;
use lab::metric::{Metric, RESOLUTION, STEP};
use lab::sample::Failure;

/// The step of the time-stamp counter.
pub(crate) const STEP_METRIC: Metric =
    Metric::time(STEP, "duration of one step of the time-stamp counter");
/// The resolution of trimmed means.
pub(crate) const RESOLUTION_METRIC: Metric = Metric::time(
    RESOLUTION,
    "resolution of the trimmed means: the counter's step divided by the root of the crossings",
);
/// The number of crossings.
pub(crate) const CROSSINGS_MADE: Metric = Metric::count("crossings_made", "crossings made");
/// The number of stamped crossings.
pub(crate) const CROSSINGS_STAMPED: Metric =
    Metric::count("crossings_stamped", "crossings with both stamps, each from that crossing");

/// Maximum time, ticks; longer ones are recorded as this. Half a second, far longer than any stall.
const MAX_TICKS: u64 = 1 << 30;

/// Share of the lowest and of the highest times that a trimmed mean leaves out.
const TRIMMED: f64 = 0.025;

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

    /// Returns the trimmed mean, in ticks; 0 if empty.
    pub fn trimmed_mean(&self) -> f64 {
        let times = self.0.iter_recorded();
        let times = times.map(|step| (step.value_iterated_to(), step.count_at_value()));
        trimmed_mean(self.count(), times)
    }

    /// Adds `name` (`centre`, in ticks), `name_min`, `name_p99`, `name_p999` and the histogram, all in ns.
    ///
    /// # Errors
    /// Returns `failed` if the histogram cannot be encoded.
    pub fn into_measurement(
        &self,
        measurement: Measurement,
        name: &str,
        centre: f64,
        tsc_hertz: f64,
    ) -> Result<Measurement, Failure> {
        let ns = |ticks: u64| ticks as f64 * 1e9 / tsc_hertz;
        let quantile = |q| ns(self.0.value_at_quantile(q));
        let mut in_ns = Self::new()?;
        for step in self.0.iter_recorded() {
            in_ns.record_many(ns(step.value_iterated_to()).round() as u64, step.count_at_value());
        }
        measurement
            .value(name, centre * 1e9 / tsc_hertz)
            .value(&format!("{name}_min"), ns(self.0.min()))
            .value(&format!("{name}_p99"), quantile(0.99))
            .value(&format!("{name}_p999"), quantile(0.999))
            .histogram(name, &in_ns.0)
    }
}

/// Returns the mean of `count` times without the lowest and the highest 2.5%, in ticks; 0 without times. `times` are
/// ascending, each with its count.
pub(crate) fn trimmed_mean(count: u64, times: impl Iterator<Item = (u64, u64)>) -> f64 {
    if count == 0 {
        return 0.0;
    }
    let all = count as f64;
    let (first, last) = (TRIMMED * all, (1.0 - TRIMMED) * all);
    let (mut seen, mut sum) = (0.0f64, 0.0);
    for (ticks, count) in times {
        let start = seen.max(first);
        seen += count as f64;
        sum += ticks as f64 * (seen.min(last) - start).max(0.0);
    }
    sum / (last - first)
}

/// Returns the resolution of the trimmed mean of `count` times, in the unit of the counter's step.
pub(crate) fn resolution(step: f64, count: u64) -> f64 {
    step / (count.max(1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metrics_are_the_quantiles_of_the_recorded_times() {
        let mut ticks = Ticks::new().unwrap();
        (1..=1000).for_each(|value| ticks.record(value));
        assert_eq!((ticks.count(), ticks.trimmed_mean()), (1000, 500.5));
        let measurement =
            ticks.into_measurement(Measurement::default(), "u2k", 500.0, 0.5e9).unwrap();
        let value = |name| measurement.values[name];
        assert_eq!(
            [value("u2k"), value("u2k_min"), value("u2k_p99"), value("u2k_p999")],
            [1000.0, 2.0, 1980.0, 1998.0]
        );
        let decoded = lab::histogram::decode_histogram(&measurement.histograms["u2k"]).unwrap();
        assert_eq!((decoded.len(), decoded.value_at_quantile(0.5)), (1000, 1000));
    }

    #[test]
    fn a_trimmed_mean_is_within_a_step_and_ignores_interruptions() {
        const STEP: u64 = 26;
        for truth in 100..160u64 {
            // The counter advances by a step; the phase of the first reading is uniform.
            let (mut ticks, mut stalled) = (Ticks::new().unwrap(), Ticks::new().unwrap());
            for phase in 0..1000 * STEP {
                let time = (truth + phase % STEP) / STEP * STEP;
                ticks.record(time);
                stalled.record(if phase % 100 == 0 { 1_000_000 } else { time });
            }
            let centre = ticks.trimmed_mean();
            let error = centre - truth as f64;
            // Trimming moves the mean by less than its share of a step; a median is wrong by up to half.
            assert!(error.abs() < 2.0 * TRIMMED * STEP as f64, "{truth}: {centre}");
            assert!((stalled.trimmed_mean() - centre).abs() < TRIMMED * STEP as f64, "{truth}");
        }
        assert_eq!(Ticks::new().unwrap().trimmed_mean(), 0.0);
    }

    #[test]
    fn a_time_above_the_maximum_is_still_counted() {
        let mut ticks = Ticks::new().unwrap();
        ticks.record(u64::MAX);
        assert_eq!(ticks.count(), 1);
    }
}
