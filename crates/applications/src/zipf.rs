//! Zipf-distributed ranks: rank `r` of `n`, from 0, has a probability proportional to `(r + 1)^-exponent`.
//!
//! By rejection-inversion: Hörmann and Derflinger, *Rejection-inversion to generate variates from monotone discrete
//! distributions*, ACM TOMACS 6 (3), 1996. It needs no table and takes the same time for every `n`. An exponent of 0 gives a
//! uniform distribution.

use rand::{Rng, RngExt};

/// Why there is no such distribution.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum ZipfError {
    /// No ranks, or more than can be told apart.
    #[error("{0} ranks; the distribution needs 1 to 2^48")]
    Ranks(u64),
    /// A negative exponent, or one that is not finite.
    #[error("an exponent of {0}; use a number of at least 0, e.g. 0.99")]
    Exponent(f64),
}

/// The distribution.
#[derive(Debug, Clone, Copy)]
pub struct Zipf {
    ranks: u64,
    exponent: f64,
    /// The integral of the hat function up to the first rank and up to the last.
    first: f64,
    last: f64,
    /// Below this distance a candidate is accepted without another evaluation.
    squeeze: f64,
}

impl Zipf {
    /// Creates a distribution of `ranks` ranks.
    ///
    /// # Errors
    /// Returns an error if the number of ranks is 0 or above 2^48, or the exponent is negative or not finite.
    pub fn new(ranks: u64, exponent: f64) -> Result<Self, ZipfError> {
        if ranks == 0 || ranks > 1 << 48 {
            return Err(ZipfError::Ranks(ranks));
        }
        if !(0.0..f64::INFINITY).contains(&exponent) {
            return Err(ZipfError::Exponent(exponent));
        }
        let mut zipf = Self { ranks, exponent, first: 0.0, last: 0.0, squeeze: 0.0 };
        zipf.first = zipf.integral(1.5) - 1.0;
        zipf.last = zipf.integral(ranks as f64 + 0.5);
        zipf.squeeze = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        Ok(zipf)
    }

    /// Returns the number of ranks.
    pub fn ranks(&self) -> u64 {
        self.ranks
    }

    /// Draws a rank from 0.
    pub fn draw(&self, random: &mut impl Rng) -> u64 {
        loop {
            let area = self.last + random.random::<f64>() * (self.first - self.last);
            let x = self.inverse(area);
            let rank = (x + 0.5).clamp(1.0, self.ranks as f64).floor();
            if rank - x <= self.squeeze || area >= self.integral(rank + 0.5) - self.density(rank) {
                return rank as u64 - 1;
            }
        }
    }

    fn density(&self, x: f64) -> f64 {
        x.powf(-self.exponent)
    }

    /// Returns the integral of the density from 1 to `x`.
    fn integral(&self, x: f64) -> f64 {
        let power = 1.0 - self.exponent;
        if power == 0.0 { x.ln() } else { (x.powf(power) - 1.0) / power }
    }

    fn inverse(&self, area: f64) -> f64 {
        let power = 1.0 - self.exponent;
        if power == 0.0 { area.exp() } else { (area * power + 1.0).max(0.0).powf(1.0 / power) }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_pcg::Pcg64Mcg;

    use super::*;

    /// Compares drawn ranks with exact probabilities by a chi-squared test. Rare ranks are combined.
    fn check(ranks: u64, exponent: f64) {
        const DRAWS: usize = 400_000;
        let zipf = Zipf::new(ranks, exponent).unwrap();
        let mut random = Pcg64Mcg::seed_from_u64(7);
        let mut counts = vec![0u32; ranks as usize];
        for _ in 0..DRAWS {
            counts[zipf.draw(&mut random) as usize] += 1;
        }
        let weights: Vec<_> = (1..=ranks).map(|rank| (rank as f64).powf(-exponent)).collect();
        let total: f64 = weights.iter().sum();
        let (mut squares, mut classes, mut expected, mut found) = (0.0, 0, 0.0, 0.0);
        for (count, weight) in counts.iter().zip(&weights) {
            expected += weight / total * DRAWS as f64;
            found += f64::from(*count);
            if expected >= 20.0 {
                squares += (found - expected) * (found - expected) / expected;
                classes += 1;
                (expected, found) = (0.0, 0.0);
            }
        }
        let degrees = f64::from(classes - 1).max(1.0);
        let deviation = (squares - degrees) / (2.0 * degrees).sqrt();
        assert!(deviation.abs() < 4.0, "{ranks} ranks, {exponent}: {deviation} from the mean");
    }

    #[test]
    fn ranks_have_their_probabilities() {
        for exponent in [0.0, 0.5, 0.99, 1.0, 1.5] {
            for ranks in [2, 10, 1000, 100_000] {
                check(ranks, exponent);
            }
        }
    }

    #[test]
    fn one_rank_is_always_drawn() {
        let zipf = Zipf::new(1, 0.99).unwrap();
        let mut random = Pcg64Mcg::seed_from_u64(1);
        assert!((0..100).all(|_| zipf.draw(&mut random) == 0));
    }

    #[test]
    fn the_largest_distributions_stay_in_range() {
        let mut random = Pcg64Mcg::seed_from_u64(3);
        for exponent in [0.0, 0.99, 1.0, 4.0, 100.0] {
            let zipf = Zipf::new(1 << 48, exponent).unwrap();
            assert!((0..1000).all(|_| zipf.draw(&mut random) < zipf.ranks()));
        }
    }

    #[test]
    fn any_other_distribution_is_refused() {
        assert_eq!(Zipf::new(0, 1.0).unwrap_err(), ZipfError::Ranks(0));
        assert!(Zipf::new((1 << 48) + 1, 1.0).is_err());
        for exponent in [-0.1, f64::NAN, f64::INFINITY] {
            assert!(matches!(Zipf::new(5, exponent), Err(ZipfError::Exponent(_))));
        }
    }
}
