//! The plan of an experiment: which items a round measures, in which random order, and how long it takes.

use std::time::Duration;

use crate::experiment::Experiment;
use crate::point::Point;
use crate::sample::Item;
use crate::statistics;
use crate::suite::{self, Suite};

/// Returns the items that an experiment measures in each round.
pub fn items(experiment: &Experiment) -> Vec<Item> {
    let item = |twin| move |point: &Point| Item { point: point.clone(), twin };
    let once = experiment.points.iter().map(item(false));
    once.chain(experiment.twins.iter().map(item(true))).collect()
}

/// Returns the order of the items in one round, as indices.
pub fn order(experiment: &Experiment, items: usize, round: u32, seed: u64) -> Vec<usize> {
    statistics::order::of_round(items, round as usize, seed_of(&experiment.id(), seed))
}

/// Derives a seed for a name from the run's seed.
pub fn seed_of(name: &str, seed: u64) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes()).update(name.as_bytes());
    u64::from_le_bytes(std::array::from_fn(|i| hasher.finalize().as_bytes()[i]))
}

/// Estimates the maximum time of all rounds of an experiment.
pub fn expected(experiment: &Experiment, suite: &Suite) -> Duration {
    let budget = experiment.effort.budget;
    let method = suite::method(suite, &experiment.method);
    let one = |point| method.as_ref().map_or(budget, |method| method.expected(point, budget));
    let one_round = items(experiment)
        .iter()
        .map(|item| one(&item.point))
        .fold(Duration::ZERO, Duration::saturating_add);
    one_round.saturating_mul(experiment.effort.rounds)
}
