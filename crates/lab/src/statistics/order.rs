//! The order of the points in each round: random, and balanced over rounds.
//!
//! Rounds come in blocks of as many rounds as there are points. A block is a Williams design (1949)
//! with its points and its rows shuffled: each point takes each position exactly once. It also
//! balances what a point inherits from the one before it: with an even number of points each
//! follows each other exactly once in a block. With an odd number no single square can do that, so
//! every second block runs the square of the block before it backwards, and it holds over the two.
//! Over the same rounds each point goes before each other as often as after it.

use rand::seq::SliceRandom;

use super::chance::generator;

/// The points (0 to `points - 1`) in the order in which `round` measures them. It depends on these
/// three numbers alone and takes time in proportion to `points`.
pub fn of_round(points: usize, round: usize, seed: u64) -> Vec<usize> {
    if points == 0 {
        return Vec::new();
    }
    let (block, place) = (round / points, round % points);
    let (square, backwards) =
        if points.is_multiple_of(2) { (block, false) } else { (block / 2, block % 2 == 1) };
    let row = shuffled(points, seed, "order of rows", block)[place];
    let names = shuffled(points, seed, "order of points", square);
    let mut order: Vec<usize> =
        (0..points).map(|position| names[(zigzag(points, position) + row) % points]).collect();
    if backwards {
        order.reverse();
    }
    order
}

/// The first row of a Williams design: 0, 1, n - 1, 2, n - 2 and so on. Its steps are all
/// different, which is what balances the neighbours.
fn zigzag(points: usize, position: usize) -> usize {
    if position % 2 == 1 { position.div_ceil(2) } else { (points - position / 2) % points }
}

/// The numbers below `points` in a random order, one for each seed, purpose and index.
fn shuffled(points: usize, seed: u64, purpose: &str, index: usize) -> Vec<usize> {
    let mut numbers: Vec<usize> = (0..points).collect();
    numbers.shuffle(&mut generator(seed, purpose, index as u64));
    numbers
}
