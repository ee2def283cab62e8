//! Randomised orders of points, balanced over blocks of as many rounds as there are points. A block is a
//! Williams design (1949) with its points and rows shuffled: each point has each position exactly
//! once. With an even number of points each follows each other exactly once in a block, which
//! balances carry-over effects. With an odd number no single square can do that, so every second
//! block is the reverse of the block before it, and the balance is over the two.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

/// Returns the points (0 to `points - 1`) in the order in which `round` measures them, in linear
/// time.
pub fn of_round(points: usize, round: usize, seed: u64) -> Vec<usize> {
    if points == 0 {
        return Vec::new();
    }
    let (block, row) = (round / points, round % points);
    let (square, backwards) =
        if points.is_multiple_of(2) { (block, false) } else { (block / 2, block % 2 == 1) };
    let row = shuffled(points, seed, "order of rows", block)[row];
    let labels = shuffled(points, seed, "order of points", square);
    let mut order: Vec<usize> =
        (0..points).map(|position| labels[(zigzag(points, position) + row) % points]).collect();
    if backwards {
        order.reverse();
    }
    order
}

/// Returns an element of the first row of a Williams design: 0, 1, n - 1, 2, n - 2 and so on. Its
/// differences are distinct, which balances the neighbours.
fn zigzag(points: usize, position: usize) -> usize {
    if position % 2 == 1 { position.div_ceil(2) } else { (points - position / 2) % points }
}

/// Returns the numbers below `points` in the random order of a seed, purpose and index.
fn shuffled(points: usize, seed: u64, purpose: &str, index: usize) -> Vec<usize> {
    let mut numbers: Vec<usize> = (0..points).collect();
    numbers.shuffle(&mut generator(seed, purpose, index as u64));
    numbers
}

/// Returns the random number generator of a purpose and an index under a seed. Generators are
/// independent of each other, and of the machine.
pub(super) fn generator(seed: u64, purpose: &str, index: u64) -> Pcg64Mcg {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    hasher.update(&index.to_le_bytes());
    hasher.update(purpose.as_bytes());
    let mut state = [0; 16];
    hasher.finalize_xof().fill(&mut state);
    Pcg64Mcg::from_seed(state)
}
