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
use serde::Serialize;

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

/// A chosen candidate, and the rounds that may judge it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// Index of the chosen candidate.
    pub index: usize,
    /// Rounds of the judging half in which it has a value, ascending.
    pub judged_rounds: Vec<usize>,
}

/// Chooses the candidate with the best median over a random half of the rounds; the first of
/// equals. The other half judges, because the best of many looks better than it is on the rounds
/// that chose it (the winner's curse). `candidates` are the values of each candidate by round,
/// `None` without a value; a candidate needs one in the choosing half.
///
/// # Errors
/// Returns an error if no candidate has a value in the choosing half, a value is not finite, or the
/// metric has no direction.
pub fn choose_and_judge(
    candidates: &[Vec<Option<f64>>],
    better: Better,
    seed: u64,
) -> Result<Choice, StatisticsError> {
    let rounds = candidates.iter().map(Vec::len).max().unwrap_or(0);
    let chooses = choosing_half(rounds, seed);
    let mut best: Option<(usize, f64)> = None;
    for (index, values) in candidates.iter().enumerate() {
        let chosen_on = values.iter().zip(&chooses).filter(|(_, chooses)| **chooses);
        let chosen_on: Vec<f64> = chosen_on.filter_map(|(value, _)| *value).collect();
        let median = match sorted(&chosen_on) {
            Ok(sorted) => median_of_sorted(&sorted),
            Err(StatisticsError::Empty) => continue,
            Err(error) => return Err(error),
        };
        let improves = match better {
            Better::Higher => best.is_none_or(|(_, best)| median > best),
            Better::Lower => best.is_none_or(|(_, best)| median < best),
            Better::Neither => return Err(StatisticsError::NoDirection),
        };
        if improves {
            best = Some((index, median));
        }
    }
    let (index, _) = best.ok_or(StatisticsError::Empty)?;
    let has_value = |round: &usize| candidates[index].get(*round).is_some_and(Option::is_some);
    let judged_rounds = (0..rounds).filter(|&round| !chooses[round]).filter(has_value).collect();
    Ok(Choice { index, judged_rounds })
}

/// Returns for each round whether it chooses. Of two successive rounds a random one chooses and the
/// other judges, so that drift affects both halves equally. A last odd round judges.
fn choosing_half(rounds: usize, seed: u64) -> Vec<bool> {
    let mut random = generator(seed, "choice", 0);
    let mut chooses = vec![false; rounds];
    for pair in chooses.chunks_exact_mut(2) {
        pair[usize::from(random.random::<bool>())] = true;
    }
    chooses
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
