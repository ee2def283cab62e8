//! Tails of the binomial distribution, from which the intervals of a median follow.

/// The binomial distribution of `n` trials, for any chance of success.
pub(super) struct Binomial {
    /// The logarithm of `n` choose `k`, for each `k` in 0 to `n`. Logarithms, since `n` choose `k`
    /// overflows from 1030 trials up.
    ln_choose: Vec<f64>,
}

impl Binomial {
    /// Prepares for `n` trials.
    pub(super) fn new(n: usize) -> Self {
        let mut ln_choose = vec![0.0; n + 1];
        for k in 1..=n / 2 {
            ln_choose[k] = ln_choose[k - 1] + ((n - k + 1) as f64 / k as f64).ln();
            ln_choose[n - k] = ln_choose[k];
        }
        Self { ln_choose }
    }

    /// The logarithm of `n` choose `k`.
    pub(super) fn ln_choose(&self, k: usize) -> f64 {
        self.ln_choose[k]
    }

    /// The probability of `k` successes or more, each with chance `p`.
    pub(super) fn at_least(&self, k: usize, p: f64) -> f64 {
        if k == 0 || p >= 1.0 {
            return 1.0;
        }
        if p <= 0.0 {
            return 0.0;
        }
        let n = self.ln_choose.len() - 1;
        let (ln_p, ln_q) = (p.ln(), (-p).ln_1p());
        (k..=n)
            .map(|j| (self.ln_choose[j] + j as f64 * ln_p + (n - j) as f64 * ln_q).exp())
            .sum::<f64>()
            .min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use statrs::distribution::DiscreteCDF;

    use super::Binomial;

    proptest! {
        #[test]
        fn a_tail_is_what_the_oracle_says(n in 1usize..200, at in 0.0..=1.0f64, p in 0.001..0.999f64) {
            let k = (at * n as f64) as usize;
            let oracle = statrs::distribution::Binomial::new(p, n as u64).unwrap();
            let expected = if k == 0 { 1.0 } else { oracle.sf(k as u64 - 1) };
            prop_assert!((Binomial::new(n).at_least(k, p) - expected).abs() < 1e-9);
        }
    }
}
