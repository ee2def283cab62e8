//! Ratios of two independent sets of values, e.g. of one value per boot.

use super::estimate::{median_of_sorted, sorted};
use super::{CONFIDENCE, Interval, IntervalKind, LostRounds, Ratio, StatisticsError};

/// Returns the ratio of two independent sets of values: the exponential of the median of all differences of their
/// logarithms (Hodges and Lehmann, 1963). The interval is that of the Mann-Whitney test, from the `k`-th lowest to the
/// `k`-th highest difference; its coverage is exact if the two sets differ by a factor only. The number of rounds is
/// that of the smaller set.
///
/// # Errors
/// Returns an error if a set is empty, or a value is not finite and positive.
pub fn unpaired_ratio(numerator: &[f64], denominator: &[f64]) -> Result<Ratio, StatisticsError> {
    let above = numerator.iter().map(|value| value.ln());
    let differences: Vec<f64> =
        above.flat_map(|above| denominator.iter().map(move |below| above - below.ln())).collect();
    let differences = sorted(&differences)?;
    let tails = mann_whitney(numerator.len(), denominator.len());
    // The `k`-th lowest difference is above the true one with the probability of at most `k - 1`.
    let excluded = tails.iter().take_while(|tail| 2.0 * **tail <= 1.0 - CONFIDENCE).count();
    let (rank, kind) = match excluded {
        0 => (1, IntervalKind::Range),
        excluded => (excluded, IntervalKind::Confidence),
    };
    let (low, high) = (differences[rank - 1], differences[differences.len() - rank]);
    let coverage = (1.0 - 2.0 * tails[rank - 1]).max(0.0);
    Ok(Ratio {
        ratio: median_of_sorted(&differences).exp(),
        interval: Interval { low: low.exp(), high: high.exp(), kind, coverage, drift: 0.0 },
        lag_1: None,
        rounds: numerator.len().min(denominator.len()),
        lost: LostRounds::default(),
    })
}

/// Returns the probabilities that at most 0, 1, 2, ... of the pairs of two sets of equally distributed values have the
/// larger value in the first set. The counts are the coefficients of a Gaussian binomial.
fn mann_whitney(one: usize, other: usize) -> Vec<f64> {
    let mut counts = vec![0.0; one * other + 1];
    counts[0] = 1.0;
    for factor in 1..=one {
        for at in (other + factor..counts.len()).rev() {
            counts[at] -= counts[at - other - factor];
        }
        for at in factor..counts.len() {
            counts[at] += counts[at - factor];
        }
    }
    let all: f64 = counts.iter().sum();
    let cumulative = counts.iter().scan(0.0, |sum, count| {
        *sum += count;
        Some(*sum / all)
    });
    cumulative.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    #[test]
    fn the_distribution_is_that_of_published_tables() {
        let close = |one: f64, other: f64| (one - other).abs() < 1e-9;
        // 20 arrangements of 3 and 3: 1 with no inversion, 1 with one, 2 with two, 3 with three.
        let three = mann_whitney(3, 3);
        assert!(close(three[0], 0.05) && close(three[2], 0.20) && close(three[3], 0.35));
        assert!(close(three[9], 1.0));
        // The critical value of a two-sided test at 5% is 5 for 6 and 6, and 8 for 7 and 7.
        for (values, critical) in [(6, 5), (7, 8)] {
            let tails = mann_whitney(values, values);
            assert!(2.0 * tails[critical] <= 0.05 && 2.0 * tails[critical + 1] > 0.05);
        }
    }

    #[test]
    fn the_interval_covers_the_true_ratio() {
        let mut random = Pcg64Mcg::seed_from_u64(5);
        let mut values = |count: usize, centre: f64| -> Vec<f64> {
            (0..count).map(|_| centre * (0.8 + 0.4 * random.random::<f64>())).collect()
        };
        let mut covered = 0;
        for _ in 0..2000 {
            let ratio = unpaired_ratio(&values(6, 150.0), &values(7, 100.0)).unwrap();
            assert_eq!((ratio.rounds, ratio.interval.kind), (6, IntervalKind::Confidence));
            covered += usize::from(ratio.interval.includes(1.5));
        }
        let covered = covered as f64 / 2000.0;
        assert!((0.94..=0.98).contains(&covered), "{covered}");
        assert_eq!(unpaired_ratio(&[], &[1.0]), Err(StatisticsError::Empty));
        assert!(unpaired_ratio(&[0.0], &[1.0]).is_err());
        assert_eq!(unpaired_ratio(&[2.0], &[1.0]).unwrap().interval.kind, IntervalKind::Range);
    }
}
