//! The plan of an experiment: which items a round measures, in which random order, and how long it takes.

use std::time::Duration;

use crate::experiment::Experiment;
use crate::point::Point;
use crate::sample::Item;
use crate::side;
use crate::statistics;
use crate::suite::{self, Suite};

/// Returns the items that an experiment measures in each round.
pub fn items(experiment: &Experiment) -> Vec<Item> {
    let item = |twin| move |point: &Point| Item { point: point.clone(), twin };
    let once = experiment.points.iter().map(item(false));
    once.chain(experiment.twins.iter().map(item(true))).collect()
}

/// Returns the order of the items in one round, as indices. In a comparison of sides, the items of a point follow each
/// other.
pub fn order(experiment: &Experiment, items: usize, round: u32, seed: u64) -> Vec<usize> {
    let of_round =
        |items, name: &str| statistics::order::of_round(items, round as usize, seed_of(name, seed));
    let id = experiment.id();
    if !side::is_crossed(experiment) {
        return of_round(items, &id);
    }
    let points = points_of_sides(experiment);
    let of_point = |point: usize| {
        let items = &points[point];
        of_round(items.len(), &format!("{id} {point}")).into_iter().map(|at| items[at])
    };
    of_round(points.len(), &id).into_iter().flat_map(of_point).collect()
}

/// Returns the indices of the items of each point: those of both sides, and of their twins. Twins are as close to each
/// other as sides are, so that the noise floor includes as much drift as a comparison.
fn points_of_sides(experiment: &Experiment) -> Vec<Vec<usize>> {
    let (sides, items) = (side::LEVELS.len(), experiment.points.len());
    let mut points: Vec<Vec<usize>> =
        (0..items / sides).map(|point| (sides * point..sides * (point + 1)).collect()).collect();
    for (twin, point) in experiment.twins.iter().enumerate() {
        if let Some(at) = experiment.points.iter().position(|one| one == point) {
            points[at / sides].push(items + twin);
        }
    }
    points
}

/// Derives a seed for a name from the run's seed.
pub fn seed_of(name: &str, seed: u64) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes()).update(name.as_bytes());
    u64::from_le_bytes(std::array::from_fn(|i| hasher.finalize().as_bytes()[i]))
}

/// Estimates the time of all rounds of an experiment, without starts of processes. Points that this machine cannot
/// measure take no time.
pub fn expected(experiment: &Experiment, suite: &Suite) -> Duration {
    let budget = experiment.effort.budget;
    let method = suite::method(suite, &experiment.method);
    let one = |point| {
        let Ok(method) = &method else { return budget };
        method.available(point).map_or(Duration::ZERO, |()| method.expected(point, budget))
    };
    let one_round = items(experiment)
        .iter()
        .map(|item| one(&item.point))
        .fold(Duration::ZERO, Duration::saturating_add);
    one_round.saturating_mul(experiment.effort.rounds)
}
