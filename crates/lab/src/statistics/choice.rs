//! Choosing the best of several points on one half of the rounds and judging it on the other.
//!
//! The best of many looks better than it is on the rounds that chose it (the winner's curse). The
//! other half knows nothing of the choice.

use rand::RngExt;
use serde::Serialize;

use super::StatisticsError;
use super::chance::generator;
use super::summary::{median_of_sorted, sorted};
use crate::metric::Better;

/// What was chosen, and on which rounds it may be judged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// The chosen candidate.
    pub index: usize,
    /// The rounds of the judging half in which it has a value, ascending.
    pub judged_rounds: Vec<usize>,
}

/// Chooses the candidate with the best median over a random half of the rounds. `candidates` holds
/// the values of each by round, `None` where a round gave none. The first of equals is taken; one
/// with no value in the choosing half cannot be chosen.
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
            Better::Higher => best.is_none_or(|(_, so_far)| median > so_far),
            Better::Lower => best.is_none_or(|(_, so_far)| median < so_far),
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

/// For each round whether it chooses. Of each two successive rounds one chooses and one judges, by
/// the toss of a coin, so that drift falls on both halves alike. A round left over judges.
fn choosing_half(rounds: usize, seed: u64) -> Vec<bool> {
    let mut random = generator(seed, "choice", 0);
    let mut chooses = vec![false; rounds];
    for pair in chooses.chunks_exact_mut(2) {
        pair[usize::from(random.random::<bool>())] = true;
    }
    chooses
}
