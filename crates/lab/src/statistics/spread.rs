//! Spread of the rounds of a point.

use super::estimate::{median_of_sorted, sorted};
use super::{Interval, StatisticsError};

/// Spread of some values, one per round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The median.
    pub centre: f64,
    /// Width of the middle half, in the unit of the values: half of them are within half of it from the median.
    pub width: f64,
    /// Interval of the width.
    pub interval: Interval,
    /// Number of rounds.
    pub rounds: usize,
}

impl Spread {
    /// Returns the spread of values of which `unit` is 1.
    #[must_use]
    pub fn in_units_of(self, unit: f64) -> Self {
        let interval = self.interval.map(|end| end / unit);
        Self { centre: self.centre / unit, width: self.width / unit, interval, ..self }
    }

    /// Returns the spread of values with a limited resolution, in their unit: the interval is at least as wide on
    /// either side, and not below 0.
    #[must_use]
    pub fn with_resolution(self, resolution: f64) -> Self {
        let Self { width, .. } = self;
        let interval = self.interval.including((width - resolution).max(0.0), width + resolution);
        Self { interval, ..self }
    }
}

/// Estimates the spread of values, one per round: twice the median distance of a value from their median, which is the
/// interquartile range if the distribution is symmetric.
///
/// Its interval, with the coverage `confidence`, is that of the median of the distances, as if they were independent.
/// So it narrows with the number of rounds but does not move with it, as the span of all values does. Correlation of
/// the rounds is ignored, because 6 rounds cannot show that of their distances.
///
/// # Errors
/// Returns an error without values, or if a value is not finite.
pub fn spread(values: &[f64], confidence: f64) -> Result<Spread, StatisticsError> {
    let centre = median_of_sorted(&sorted(values)?);
    let distances: Vec<f64> = values.iter().map(|value| 2.0 * (value - centre).abs()).collect();
    let distances = sorted(&distances)?;
    Ok(Spread {
        centre,
        width: median_of_sorted(&distances),
        interval: Interval::of_sorted(&distances, 1.0, confidence),
        rounds: values.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::{CONFIDENCE, IntervalKind};

    #[test]
    fn the_width_is_that_of_the_middle_half() {
        let values: Vec<f64> = (0..=100).map(f64::from).collect();
        let spread = spread(&values, CONFIDENCE).unwrap();
        assert_eq!((spread.centre, spread.width, spread.rounds), (50.0, 50.0, 101));
        let Interval { low, high, kind, .. } = spread.interval;
        assert_eq!(kind, IntervalKind::Confidence);
        assert!((38.0..42.0).contains(&low) && (58.0..62.0).contains(&high), "{spread:?}");
        let halves = spread.in_units_of(0.5);
        assert_eq!((halves.width, halves.interval.low), (100.0, 2.0 * low));
        let coarse = spread.with_resolution(60.0).interval;
        assert_eq!((coarse.low, coarse.high), (0.0, 110.0));
    }

    #[test]
    fn a_stall_does_not_change_the_width() {
        let values = [10.0, 10.1, 9.9, 10.0, 10.1, 9.9, 10.05, 9.95, 1e6];
        assert!(spread(&values, CONFIDENCE).unwrap().width < 0.3);
        assert_eq!(spread(&[7.0; 6], CONFIDENCE).unwrap().width, 0.0);
        assert_eq!(spread(&[], CONFIDENCE), Err(StatisticsError::Empty));
    }
}
