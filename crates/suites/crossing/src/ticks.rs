//! What many crossings took, streamed into a histogram: median, least, tails.

use hdrhistogram::Histogram;
use lab::measure::Measurement;
use lab::sample::Failure;

/// Crossings longer than this many ticks count as this long: half a second, far beyond any stall.
const LONGEST: u64 = 1 << 30;

/// Ticks of the time-stamp counter that crossings took, exact up to 2047 and to 0.1% above.
pub struct Ticks(Histogram<u64>);

impl Ticks {
    /// None yet. All memory is taken now, so that recording takes none.
    ///
    /// # Errors
    /// When a histogram cannot be made.
    pub fn new() -> Result<Self, Failure> {
        let made = Histogram::new_with_bounds(1, LONGEST, 3);
        made.map(Self).map_err(|e| Failure::failed(format!("a histogram: {e}")))
    }

    /// Takes note of one crossing.
    #[inline]
    pub fn record(&mut self, ticks: u64) {
        self.0.saturating_record(ticks);
    }

    /// Takes note of several crossings that took the same.
    pub fn record_many(&mut self, ticks: u64, count: u64) {
        self.0.saturating_record_n(ticks, count);
    }

    /// How many were noted.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The median, ticks.
    pub fn median(&self) -> u64 {
        self.0.value_at_quantile(0.5)
    }

    /// Adds `name` (the median), `name_min`, `name_p99`, `name_p999` and the histogram, all in ns.
    ///
    /// # Errors
    /// When the histogram cannot be encoded.
    pub fn into_measurement(
        &self,
        measurement: Measurement,
        name: &str,
        tsc_hertz: f64,
    ) -> Result<Measurement, Failure> {
        let ns = |ticks: u64| ticks as f64 * 1e9 / tsc_hertz;
        let at = |quantile| ns(self.0.value_at_quantile(quantile));
        let mut in_ns = Self::new()?;
        for step in self.0.iter_recorded() {
            in_ns.record_many(ns(step.value_iterated_to()).round() as u64, step.count_at_value());
        }
        measurement
            .value(name, at(0.5))
            .value(&format!("{name}_min"), ns(self.0.min()))
            .value(&format!("{name}_p99"), at(0.99))
            .value(&format!("{name}_p999"), at(0.999))
            .histogram(name, &in_ns.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_least_and_tails_are_those_of_what_was_recorded() {
        let mut ticks = Ticks::new().unwrap();
        (1..=1000).for_each(|value| ticks.record(value));
        assert_eq!((ticks.count(), ticks.median()), (1000, 500));
        let told = ticks.into_measurement(Measurement::default(), "u2k", 0.5e9).unwrap();
        let value = |name| told.values[name];
        assert_eq!(
            [value("u2k"), value("u2k_min"), value("u2k_p99"), value("u2k_p999")],
            [1000.0, 2.0, 1980.0, 1998.0]
        );
        let journalled = lab::histogram::decode_histogram(&told.histograms["u2k"]).unwrap();
        assert_eq!((journalled.len(), journalled.value_at_quantile(0.5)), (1000, 1000));
    }

    #[test]
    fn what_lasts_longer_than_the_longest_is_still_counted() {
        let mut ticks = Ticks::new().unwrap();
        ticks.record(u64::MAX);
        assert_eq!(ticks.count(), 1);
    }
}
