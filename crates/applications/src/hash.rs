//! Hashes of flows and keys: products of 64 bits whose halves are combined, as in wyhash and foldhash. They are fixed, so
//! that all balancers in front of the same backends agree, and so that results can be repeated; an opponent can find
//! collisions.

use crate::packet::Flow;

/// Digits of pi, as multipliers without structure.
const PI: [u64; 3] = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344, 0xa409_3822_299f_31d0];

/// Returns the high half of the product combined with the low one.
#[inline(always)]
pub fn fold_multiply(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// Returns the hash of a flow.
#[inline(always)]
pub fn of_flow(flow: Flow) -> u64 {
    fold_multiply(fold_multiply(flow.addresses ^ PI[0], PI[1] | 1) ^ flow.ports, PI[2] | 1)
}

/// Returns the hash of a number with a seed, both of which may be small.
#[inline(always)]
pub fn of_number(number: u64, seed: u64) -> u64 {
    fold_multiply(fold_multiply(number ^ PI[1], seed ^ PI[0]) ^ PI[2], PI[0] | 1)
}

/// Returns a number below `count` that is uniform if the hash is: its high 32 bits times `count`, without a division.
#[inline(always)]
pub fn scale(hash: u64, count: u32) -> u32 {
    (((hash >> 32) * u64::from(count)) >> 32) as u32
}

/// A one-to-one mixture of the bits of a number: the finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
#[inline(always)]
pub fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns chi-squared of `counts` against equal expectations, in standard deviations from its mean.
    fn deviation(counts: &[u32]) -> f64 {
        let total: u32 = counts.iter().sum();
        let expected = f64::from(total) / counts.len() as f64;
        let squares: f64 =
            counts.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum();
        let degrees = (counts.len() - 1) as f64;
        (squares - degrees) / (2.0 * degrees).sqrt()
    }

    /// Counts hashes by their high bits and by their low bits.
    fn check_uniform(name: &str, hashes: impl Iterator<Item = u64>) {
        let (mut high, mut low) = (vec![0; 1000], vec![0; 1024]);
        for hash in hashes {
            high[scale(hash, 1000) as usize] += 1;
            low[(hash & 1023) as usize] += 1;
        }
        // Inputs are fixed, so the result is too. Sequential inputs may be distributed better than random.
        assert!(deviation(&high) < 5.0, "{name}, high bits: {}", deviation(&high));
        assert!(deviation(&low) < 5.0, "{name}, low bits: {}", deviation(&low));
    }

    #[test]
    fn similar_flows_have_uniform_hashes() {
        let flow = |addresses: [u8; 8], ports: [u8; 4]| Flow {
            addresses: u64::from_ne_bytes(addresses),
            ports: u64::from(u32::from_ne_bytes(ports)) | 17 << 32,
        };
        let number = |n: u32| n.to_be_bytes();
        check_uniform(
            "destinations",
            (0..100_000).map(|n| {
                let [a, b, c, d] = number(0x0a00_0000 + n);
                of_flow(flow([10, 0, 0, 1, a, b, c, d], [3, 232, 7, 208]))
            }),
        );
        check_uniform(
            "ports",
            (0..100_000).map(|n| {
                let [_, a, b, c] = number(n);
                of_flow(flow([10, 0, 0, 1, 10, 0, 0, 2], [a, b, c, 80]))
            }),
        );
    }

    #[test]
    fn small_numbers_and_seeds_have_uniform_hashes() {
        check_uniform("numbers", (0..100_000).map(|n| of_number(n, 0)));
        check_uniform("seeds", (0..100_000).map(|n| of_number(1, n)));
        check_uniform("mixed", (0..100_000).map(mix));
    }

    #[test]
    fn scaling_covers_the_range() {
        assert_eq!((scale(0, 7), scale(u64::MAX, 7), scale(1 << 63, 7)), (0, 6, 3));
    }
}
