//! The plan: rounds of points in a balanced random order, from a recorded seed.

use std::time::Duration;

use crate::experiment::Experiment;
use crate::point::Point;
use crate::statistics;
use crate::suite::{self, Suite};

/// One thing to measure in each round: a point, or its twin.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Item {
    /// One level for every factor.
    pub point: Point,
    /// The second sample of the same point.
    pub twin: bool,
}

/// What is measured in every round of an experiment.
pub fn items(experiment: &Experiment) -> Vec<Item> {
    let item = |twin| move |point: &Point| Item { point: point.clone(), twin };
    let once = experiment.points.iter().map(item(false));
    once.chain(experiment.twins.iter().map(item(true))).collect()
}

/// The order of one round: indices into the items.
pub fn order(experiment: &Experiment, items: usize, round: u32, seed: u64) -> Vec<usize> {
    statistics::order::of_round(items, round as usize, seed_of(&experiment.id(), seed))
}

/// A seed for one name under the run's seed.
pub fn seed_of(name: &str, seed: u64) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes()).update(name.as_bytes());
    u64::from_le_bytes(std::array::from_fn(|i| hasher.finalize().as_bytes()[i]))
}

/// Estimates the longest time of all rounds of an experiment, as its method knows it.
pub fn expected(experiment: &Experiment, suite: &dyn Suite) -> Duration {
    let budget = experiment.effort.budget;
    let method = suite::method(suite, &experiment.method);
    let one = |point| method.as_ref().map_or(budget, |method| method.expected(point, budget));
    let one_round = items(experiment)
        .iter()
        .map(|item| one(&item.point))
        .fold(Duration::ZERO, Duration::saturating_add);
    one_round.saturating_mul(experiment.effort.rounds)
}
