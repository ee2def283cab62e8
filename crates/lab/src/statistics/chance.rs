//! Seeded random numbers: the same seed gives the same numbers on every machine and run.

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

/// A generator of its own for each purpose and index under one seed, so that no two of them share
/// a stream and any index can be had without those before it.
pub(super) fn generator(seed: u64, purpose: &str, index: u64) -> Pcg64Mcg {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    hasher.update(&index.to_le_bytes());
    hasher.update(purpose.as_bytes());
    let mut state = [0; 16];
    hasher.finalize_xof().fill(&mut state);
    Pcg64Mcg::from_seed(state)
}
