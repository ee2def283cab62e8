//! Randomised orders of points, and random halves of rounds.
//!
//! Orders of points are balanced over blocks of as many rounds as there are points. A block is a
//! Williams design (1949) with its points and rows shuffled: each point has each position exactly
//! once. With an even number of points each follows each other exactly once in a block, which
//! balances carry-over effects. With an odd number no single square can do that, so every second
//! block is the reverse of the block before it, and the balance is over the two.

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::StatisticsError;
use super::estimate::{median_of_sorted, sorted};
use crate::metric::Better;

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

/// Number of random splits of the rounds over which choices are averaged, so that no single split decides.
const SPLITS: u64 = 32;

/// One split of the rounds into two halves, and the best candidate of each half.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// For each round whether it belongs to the second half.
    is_second: Vec<bool>,
    /// Candidates with the best median over the rounds of the first and of the second half.
    best: [usize; 2],
}

impl Split {
    /// Returns the candidate that a round judges: the best one of the half that does not contain the round.
    pub fn judged_in(&self, round: usize) -> usize {
        self.best[usize::from(!self.is_second[round])]
    }
}

/// Chooses the candidate with the best median over each half of the rounds, for several random splits; the first of
/// equals. A round may judge only a candidate that other rounds chose, because the best of many looks better than it is
/// on the rounds that chose it (the winner's curse). `candidates` are the values of each candidate by round, `None`
/// without a value.
///
/// # Errors
/// Returns an error if a candidate has no value in one of the halves, a value is not finite, or the metric has no
/// direction.
pub fn choices(
    candidates: &[Vec<Option<f64>>],
    better: Better,
    seed: u64,
) -> Result<Vec<Split>, StatisticsError> {
    let rounds = candidates.iter().map(Vec::len).max().unwrap_or(0);
    let split = |index| {
        let is_second = halves(rounds, seed, index);
        let best = |half| best_of_half(candidates, &is_second, half, better);
        let best = [best(false)?, best(true)?];
        Ok(Split { is_second, best })
    };
    (0..SPLITS).map(split).collect()
}

/// Returns the candidate with the best median over one half of the rounds.
fn best_of_half(
    candidates: &[Vec<Option<f64>>],
    is_second: &[bool],
    half: bool,
    better: Better,
) -> Result<usize, StatisticsError> {
    let mut best: Option<(usize, f64)> = None;
    for (index, values) in candidates.iter().enumerate() {
        let of_half = values.iter().zip(is_second).filter(|(_, second)| **second == half);
        let median =
            median_of_sorted(&sorted(&of_half.filter_map(|(v, _)| *v).collect::<Vec<_>>())?);
        let improves = match better {
            Better::Higher => best.is_none_or(|(_, best)| median > best),
            Better::Lower => best.is_none_or(|(_, best)| median < best),
            Better::Neither => return Err(StatisticsError::NoDirection),
        };
        if improves {
            best = Some((index, median));
        }
    }
    best.map(|(index, _)| index).ok_or(StatisticsError::Empty)
}

/// Returns for each round whether it belongs to the second half. Of two successive rounds a random one does, so that
/// drift affects both halves equally. A last odd round belongs to the first.
fn halves(rounds: usize, seed: u64, split: u64) -> Vec<bool> {
    let mut random = generator(seed, "choice", split);
    let mut is_second = vec![false; rounds];
    for pair in is_second.chunks_exact_mut(2) {
        pair[usize::from(random.random::<bool>())] = true;
    }
    is_second
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
