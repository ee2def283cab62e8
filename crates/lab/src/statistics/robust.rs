//! Robust location and scale of values of which some may be outliers, and how improbable one is next to the others.
//!
//! The estimators are the tau estimators of Maronna and Zamar (2002, Technometrics 44): a mean weighted by the distance
//! from the median, and the root of a mean of squares that are limited at three times the median absolute deviation.
//! Up to half of the values may be arbitrary, and for normal values the variance of the scale is about that of a standard
//! deviation of 3/4 as many values.

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::estimate::{median_of_sorted, sorted};
use super::{StatisticsError, mad};

/// Factor by which the median absolute deviation is a standard deviation, for normal values.
const MAD_TO_SIGMA: f64 = 1.482_602_2;
/// Distance from which a value has no weight in the location, in scales.
const LOCATION_LIMIT: f64 = 4.5;
/// Distance at which the square of a value is limited, in scales.
const SCALE_LIMIT: f64 = 3.0;
/// Expected square of a standard normal value, limited at [`SCALE_LIMIT`].
const LIMITED_SQUARE: f64 = 0.995_007_3;
/// Variance of the location of normal values, relative to that of their mean.
const LOCATION_VARIANCE: f64 = 1.2;

/// Robust location and scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Robust {
    /// Location, in the unit of the values.
    pub centre: f64,
    /// Scale: the standard deviation of normal values; 0 if more than half of the values are equal.
    pub scale: f64,
    /// Number of values.
    pub values: usize,
}

impl Robust {
    /// Minimum number of values for [`p_value`](Self::p_value).
    pub const MIN_VALUES: usize = 7;

    /// Estimates location and scale.
    ///
    /// # Errors
    /// Returns an error without values, or if a value is not finite.
    pub fn of(values: &[f64]) -> Result<Self, StatisticsError> {
        let sorted = sorted(values)?;
        let median = median_of_sorted(&sorted);
        let first = MAD_TO_SIGMA * mad(&sorted).ok_or(StatisticsError::Empty)?;
        if first == 0.0 {
            return Ok(Self { centre: median, scale: 0.0, values: values.len() });
        }
        let weight = |value: f64| {
            let distance = (value - median) / (LOCATION_LIMIT * first);
            (1.0 - distance * distance).max(0.0).powi(2)
        };
        // The median, or the two values next to it, have a weight, so that the sum is positive.
        let weights: f64 = sorted.iter().map(|value| weight(*value)).sum();
        let centre =
            sorted.iter().map(|value| weight(*value) * (value - median)).sum::<f64>() / weights;
        let square = |value: f64| {
            let distance = (value - median - centre) / first;
            (distance * distance).min(SCALE_LIMIT * SCALE_LIMIT)
        };
        let squares: f64 = sorted.iter().map(|value| square(*value)).sum();
        let scale = first * (squares / sorted.len() as f64 / LIMITED_SQUARE).sqrt();
        Ok(Self { centre: median + centre, scale, values: values.len() })
    }

    /// Returns the probability (two-sided) that another value of the same normal distribution is this far from the
    /// centre, in units of the scale; `None` for less than [`MIN_VALUES`](Self::MIN_VALUES) values.
    ///
    /// The distance is distributed nearly as Student's t. Its degrees of freedom were fitted to the exact tail
    /// probabilities of simulated normal values: for 7 to 200 values the p-value is right within a factor of 1.5 down to
    /// 1e-3, and of 4 down to 1e-6.
    pub fn p_value(&self, distance: f64) -> Option<f64> {
        if self.values < Self::MIN_VALUES || distance.is_nan() {
            return None;
        }
        let values = self.values as f64;
        let student = StudentsT::new(0.0, 1.0, 0.75 * values - 1.5).ok()?;
        let deviate = distance.abs() / (1.0 + LOCATION_VARIANCE / values).sqrt();
        Some((2.0 * student.sf(deviate)).clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    fn normal(random: &mut Pcg64Mcg) -> f64 {
        let (u, v): (f64, f64) = (random.random(), random.random());
        (-2.0 * (1.0 - u).ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    #[test]
    fn normal_values_have_their_mean_and_deviation() {
        let mut random = Pcg64Mcg::seed_from_u64(1);
        let values: Vec<f64> = (0..20_000).map(|_| 5.0 + 2.0 * normal(&mut random)).collect();
        let Robust { centre, scale, values } = Robust::of(&values).unwrap();
        assert!((centre - 5.0).abs() < 0.06 && (scale - 2.0).abs() < 0.06, "{centre} {scale}");
        assert_eq!(values, 20_000);
    }

    #[test]
    fn outliers_hardly_change_either() {
        let mut random = Pcg64Mcg::seed_from_u64(2);
        let good: Vec<f64> = (0..70).map(|_| normal(&mut random)).collect();
        let before = Robust::of(&good).unwrap();
        for far in [50.0, 1e9] {
            let with: Vec<f64> = good.iter().copied().chain([far; 30]).collect();
            let after = Robust::of(&with).unwrap();
            assert!((after.centre - before.centre).abs() < 1.0, "{far}: {after:?}");
            assert!(after.scale < 4.0 * before.scale, "{far}: {after:?}");
        }
    }

    #[test]
    fn equal_values_have_no_scale() {
        let equal = Robust::of(&[3.0, 3.0, 3.0, 3.0, 9.0]).unwrap();
        assert_eq!((equal.centre, equal.scale), (3.0, 0.0));
        assert_eq!(equal.p_value(9.0), None, "too few values");
        assert_eq!(Robust::of(&[]), Err(StatisticsError::Empty));
        assert!(Robust::of(&[f64::NAN]).is_err());
    }

    #[test]
    fn p_values_of_equal_nodes_are_uniform() {
        let mut random = Pcg64Mcg::seed_from_u64(3);
        for others in [7, 10, 15, 30, 100] {
            const REPLICATIONS: usize = 20_000;
            let (mut at_5, mut at_1) = (0, 0);
            for _ in 0..REPLICATIONS {
                let values: Vec<f64> = (0..others).map(|_| normal(&mut random)).collect();
                let robust = Robust::of(&values).unwrap();
                let distance = (normal(&mut random) - robust.centre) / robust.scale;
                let p = robust.p_value(distance).unwrap();
                at_5 += usize::from(p <= 0.05);
                at_1 += usize::from(p <= 0.01);
            }
            let [at_5, at_1] = [at_5, at_1].map(|hits| hits as f64 / REPLICATIONS as f64);
            println!("{others} others: {at_5} below 5%, {at_1} below 1%");
            assert!((0.03..0.065).contains(&at_5), "{others}: {at_5}");
            assert!((0.005..0.015).contains(&at_1), "{others}: {at_1}");
        }
    }

    proptest! {
        #[test]
        fn any_values_shift_and_scale(
            values in prop::collection::vec(-1e6..1e6f64, 1..60),
            shift in -1e6..1e6f64,
            factor in 1e-3..1e3f64,
        ) {
            let one = Robust::of(&values).unwrap();
            let changed: Vec<f64> = values.iter().map(|value| shift + factor * value).collect();
            let other = Robust::of(&changed).unwrap();
            let tolerance = 1e-6 * (1.0 + shift.abs() + factor * 1e6);
            prop_assert!((other.centre - (shift + factor * one.centre)).abs() < tolerance);
            // Values that differ by rounding only may get a scale.
            prop_assert!((other.scale - factor * one.scale).abs() < tolerance);
            prop_assert!(one.scale >= 0.0 && one.scale.is_finite());
        }
    }
}
