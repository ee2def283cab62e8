//! Sampling with geometric distances: instead of one random decision per update, one random number per sampled update.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::sketch::ROWS;

/// Selects rows of packets, each with the same probability and independently.
#[derive(Debug, Clone)]
pub struct Sampler {
    random: Pcg64Mcg,
    /// Reciprocal of the logarithm of the probability that a row is not selected; 0 if each row is.
    scale: f64,
    /// Number of rows before the next selected one, counted from the first row of the next packet.
    before_next: u64,
}

impl Sampler {
    /// Creates a sampler that selects one in `one_in` rows.
    pub fn new(one_in: u32, seed: u64) -> Self {
        let scale = if one_in > 1 { (-1.0 / f64::from(one_in)).ln_1p().recip() } else { 0.0 };
        let mut sampler = Self { random: Pcg64Mcg::seed_from_u64(seed), scale, before_next: 0 };
        sampler.before_next = sampler.skip();
        sampler
    }

    /// Returns whether any row of the next packet is selected; passes over the packet if not.
    #[inline(always)]
    pub fn selects(&mut self) -> bool {
        if self.before_next < ROWS as u64 {
            return true;
        }
        self.before_next -= ROWS as u64;
        false
    }

    /// Passes the selected rows of the packet to `each`, then passes over the packet.
    #[inline(always)]
    pub fn rows(&mut self, mut each: impl FnMut(usize)) {
        while self.before_next < ROWS as u64 {
            each(self.before_next as usize);
            self.before_next += 1 + self.skip();
        }
        self.before_next -= ROWS as u64;
    }

    /// Draws the number of rows that are not selected before one that is.
    #[inline(always)]
    fn skip(&mut self) -> u64 {
        // In (0, 1]; the logarithm of the largest number below 1 in f64 limits the result to 37 means.
        let uniform = 1.0 - self.random.random::<f64>();
        (uniform.ln() * self.scale) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_selected_with_equal_probability_and_independently() {
        const PACKETS: u64 = 2_000_000;
        let mut sampler = Sampler::new(100, 5);
        let (mut rows, mut pairs, mut packets) = ([0u32; ROWS], 0u32, 0u32);
        for _ in 0..PACKETS {
            if sampler.selects() {
                let mut of_packet = 0;
                sampler.rows(|row| {
                    rows[row] += 1;
                    of_packet += 1;
                });
                packets += 1;
                pairs += of_packet * (of_packet - 1) / 2;
            }
        }
        // 20,000 per row with a standard deviation of 141; 10 pairs of rows of 1/10,000 each give 2,000, deviation 45.
        assert!(rows.iter().all(|row| (19_300..20_700).contains(row)), "{rows:?}");
        assert!((1_750..2_250).contains(&pairs), "{pairs}");
        // 1 - 0.99^5 of the packets.
        assert!((97_000..99_000).contains(&packets), "{packets}");
    }

    #[test]
    fn distances_are_geometric() {
        let mut sampler = Sampler::new(4, 1);
        let mut counts = [0u32; 8];
        for _ in 0..100_000 {
            let skip = sampler.skip() as usize;
            if skip < counts.len() {
                counts[skip] += 1;
            }
        }
        for (skip, count) in counts.iter().enumerate() {
            let expected = 25_000.0 * 0.75f64.powi(skip as i32);
            let difference = (f64::from(*count) - expected).abs();
            assert!(difference < 5.0 * expected.sqrt(), "{skip}: {count}, not {expected}");
        }
    }

    #[test]
    fn every_row_is_selected_without_sampling() {
        let mut sampler = Sampler::new(1, 1);
        for _ in 0..100 {
            let mut rows = vec![];
            assert!(sampler.selects());
            sampler.rows(|row| rows.push(row));
            assert_eq!(rows, [0, 1, 2, 3, 4]);
        }
    }
}
