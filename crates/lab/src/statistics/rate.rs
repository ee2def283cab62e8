//! Rates of rare events, from counts of independent samples.

use super::interval::CONFIDENCE;

/// Halvings of the interval [0, 1], after which its width is below the precision of `f64`.
const HALVINGS: u32 = 60;

/// Returns the exact one-sided 95% upper limit of a rate, if `events` of `samples` independent
/// samples had the event: the rate at which so few events, or fewer, have a probability of 5%
/// (Clopper and Pearson 1934). 1 if every sample had the event, and without samples. After no event
/// in `n` samples it is about `3 / n`.
pub fn rate_upper_limit(events: usize, samples: usize) -> f64 {
    if events >= samples {
        return 1.0;
    }
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        match at_most(events, samples, middle) < 1.0 - CONFIDENCE {
            true => high = middle,
            false => low = middle,
        }
    }
    high
}

/// Returns the probability of at most `events` in `samples`, each with a probability of `rate`,
/// which is inside (0, 1).
fn at_most(events: usize, samples: usize, rate: f64) -> f64 {
    let odds = rate.ln() - (-rate).ln_1p();
    // The logarithm of the probability of exactly `count` events, because the first ones underflow.
    let mut exactly = samples as f64 * (-rate).ln_1p();
    let mut sum = exactly.exp();
    for count in 1..=events {
        exactly += ((samples - count + 1) as f64 / count as f64).ln() + odds;
        sum += exactly.exp();
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::rate_upper_limit;
    use statrs::distribution::{Beta, ContinuousCDF};

    #[test]
    fn the_limit_is_a_quantile_of_the_beta_distribution() {
        for (events, samples) in [(0, 1), (0, 6), (0, 60), (1, 6), (5, 20), (19, 20), (3, 3000)] {
            let beta = Beta::new((events + 1) as f64, (samples - events) as f64).unwrap();
            let limit = rate_upper_limit(events, samples);
            assert!((beta.cdf(limit) - 0.95).abs() < 1e-9, "{events} of {samples}: {limit}");
        }
        assert!((rate_upper_limit(0, 59) - 0.0495).abs() < 1e-4);
        assert_eq!((rate_upper_limit(4, 4), rate_upper_limit(0, 0)), (1.0, 1.0));
    }
}
