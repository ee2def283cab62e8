//! Whether the medians of the runs of two sides differ, by Welch's t-test of their logarithms.

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::medians::RunMedian;
use super::{Compared, Difference, MIN_RUNS};
use crate::point::Point;
use crate::statistics::CONFIDENCE;

/// Maximum difference of logarithms that rounding makes of equal values.
const ROUNDING: f64 = 1e-12;

/// Compares the medians of the runs at a point, of one class and state.
pub(super) fn compared(point: &Point, a: &[RunMedian], b: &[RunMedian]) -> Compared {
    let logarithms = |side: &[RunMedian]| -> Option<Vec<f64>> {
        side.iter().map(|run| (run.value > 0.0).then(|| run.value.ln())).collect()
    };
    let (mut ratio, mut welch, mut difference) = (None, None, Difference::NotPositive);
    if let (Some(below), Some(above)) = (logarithms(a), logarithms(b)) {
        ratio = Some((mean(&above) - mean(&below)).exp());
        welch = Welch::of(&above, &below, share(a).hypot(share(b)));
        difference = match &welch {
            _ if a.len().min(b.len()) < MIN_RUNS => Difference::TooFewRuns(a.len().min(b.len())),
            Some(welch) if welch.low() > 0.0 => Difference::Higher,
            Some(welch) if welch.high() < 0.0 => Difference::Lower,
            Some(_) => Difference::Unresolved,
            None => Difference::NoSpread,
        };
    }
    let values = |side: &[RunMedian]| side.iter().map(|run| run.value).collect();
    Compared {
        point: point.clone(),
        class: None,
        state: None,
        a: values(a),
        b: values(b),
        ratio,
        interval: welch.as_ref().map(|welch| (welch.low().exp(), welch.high().exp())),
        p_value: welch.map(|welch| welch.p_value),
        difference,
    }
}

/// Returns the lowest resolution of some runs, as a share of each value.
fn share(runs: &[RunMedian]) -> f64 {
    runs.iter().map(|run| run.resolution / run.value).fold(0.0, f64::max)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Welch's t-test of the difference of two means.
#[derive(Debug)]
struct Welch {
    difference: f64,
    /// Half the width of the 95% interval.
    half_width: f64,
    /// Two-sided p-value.
    p_value: f64,
}

impl Welch {
    /// Tests whether two sets of values have equal means. `resolution` is the resolution of the difference, and the
    /// minimum half-width; the test is of the difference beyond it. `None` if a set has one value, or if no set has
    /// variance. The number of degrees of freedom is that of Welch and Satterthwaite.
    fn of(above: &[f64], below: &[f64], resolution: f64) -> Option<Self> {
        let difference = mean(above) - mean(below);
        // Variance of the mean, and degrees of freedom.
        let of = |values: &[f64]| {
            let (mean, freedom) = (mean(values), values.len() as f64 - 1.0);
            let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
            (freedom > 0.0).then(|| (squares / freedom / values.len() as f64, freedom))
        };
        let ((above, above_freedom), (below, below_freedom)) = (of(above)?, of(below)?);
        let variance = above + below;
        // The mean of equal values may differ from them by rounding.
        if variance.sqrt() < ROUNDING {
            return None;
        }
        let freedom =
            variance.powi(2) / (above.powi(2) / above_freedom + below.powi(2) / below_freedom);
        let student = StudentsT::new(0.0, 1.0, freedom).ok()?;
        let half_width = student.inverse_cdf(f64::midpoint(1.0, CONFIDENCE)) * variance.sqrt();
        let beyond = (difference.abs() - resolution).max(0.0);
        let p_value = 2.0 * student.sf(beyond / variance.sqrt());
        Some(Self { difference, half_width: half_width.max(resolution), p_value })
    }

    fn low(&self) -> f64 {
        self.difference - self.half_width
    }

    fn high(&self) -> f64 {
        self.difference + self.half_width
    }
}

#[cfg(test)]
mod tests {
    use super::super::correct;
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    fn judge(a: &[f64], b: &[f64]) -> Compared {
        judge_with(0.0, a, b)
    }

    fn judge_with(resolution: f64, a: &[f64], b: &[f64]) -> Compared {
        let side = |values: &[f64]| -> Vec<_> {
            values.iter().map(|value| RunMedian { value: *value, resolution }).collect()
        };
        compared(&Point::default(), &side(a), &side(b))
    }

    #[test]
    fn the_interval_is_that_of_welch() {
        // R: t.test(log(c(120, 126, 118)), log(c(100, 103, 99, 101))).
        let compared = judge(&[100.0, 103.0, 99.0, 101.0], &[120.0, 126.0, 118.0]);
        let (low, high) = compared.interval.unwrap();
        assert!((compared.ratio.unwrap() - 1.203_962).abs() < 1e-6, "{compared:?}");
        assert!(low > 1.11 && low < 1.14 && high > 1.27 && high < 1.30, "{compared:?}");
        assert_eq!(compared.difference, Difference::Higher);
        let back = judge(&[120.0, 126.0, 118.0], &[100.0, 103.0, 99.0, 101.0]);
        assert_eq!(back.difference, Difference::Lower);
        assert!((back.interval.unwrap().0 * high - 1.0).abs() < 1e-12);
    }

    #[test]
    fn fewer_than_three_runs_are_not_judged() {
        let one = judge(&[100.0], &[200.0]);
        assert!((one.ratio.unwrap() - 2.0).abs() < 1e-12 && one.interval.is_none(), "{one:?}");
        assert_eq!(one.difference.to_string(), "not judged: one run each");
        let two = judge(&[100.0, 101.0], &[200.0, 201.0, 202.0]);
        assert_eq!(two.difference, Difference::TooFewRuns(2));
        assert_eq!(judge(&[0.0; 3], &[1.0; 3]).difference, Difference::NotPositive);
    }

    #[test]
    fn equal_runs_resolve_nothing() {
        for resolution in [0.0, 0.5] {
            let equal = judge_with(resolution, &[135.0; 3], &[170.0; 3]);
            assert_eq!((equal.difference, equal.interval), (Difference::NoSpread, None));
        }
        // A small spread does not make an interval narrower than the resolution.
        let quantised =
            |b: f64| judge_with(0.5, &[100.0, 100.001, 100.002], &[b, b + 0.001, b + 0.002]);
        assert_eq!(quantised(100.5).difference, Difference::Unresolved);
        assert_eq!(quantised(102.0).difference, Difference::Higher);
        let (low, high) = quantised(100.0).interval.unwrap();
        let expected = 0.005 * 2.0_f64.sqrt();
        assert!((high.ln() - expected).abs() < 1e-6 && (low.ln() + expected).abs() < 1e-6);
        // The p-value, by which many points are corrected, excludes the resolution too.
        assert!(quantised(100.5).p_value.unwrap() > 0.99);
    }

    /// Runs that differ by 3% each, of 40 points at which nothing changed.
    #[test]
    fn equal_sides_are_called_different_in_at_most_one_comparison_of_twenty() {
        const REPLICATIONS: u32 = 1000;
        let mut random = Pcg64Mcg::seed_from_u64(11);
        let mut side = || -> [f64; 3] {
            std::array::from_fn(|_| {
                let (u, v): (f64, f64) = (random.random(), random.random());
                let normal = (-2.0 * (1.0 - u).ln()).sqrt() * (std::f64::consts::TAU * v).cos();
                100.0 * (0.03 * normal).exp()
            })
        };
        let (mut before, mut after) = (0, 0);
        for _ in 0..REPLICATIONS {
            let mut rows: Vec<_> = (0..40).map(|_| judge(&side(), &side())).collect();
            let differ =
                |row: &Compared| matches!(row.difference, Difference::Higher | Difference::Lower);
            before += u32::from(rows.iter().any(differ));
            correct(rows.iter_mut());
            after += u32::from(rows.iter().any(differ));
        }
        let [before, after] =
            [before, after].map(|count| f64::from(count) / f64::from(REPLICATIONS));
        println!("40 equal points: any differs in {before:.3}, corrected in {after:.3}");
        // Two standard errors of 1000 replications are 1.4%. Welch's test is conservative with few runs.
        assert!(before > 0.5 && after < 0.064, "{before} {after}");
        // A true difference remains.
        let mut rows: Vec<_> = (0..40).map(|_| judge(&side(), &side())).collect();
        rows.push(judge(&[100.0, 101.0, 102.0], &[201.0, 203.0, 200.0]));
        correct(rows.iter_mut());
        assert_eq!(rows[40].difference, Difference::Higher);
    }
}
