//! The plan of an experiment: which items a round measures, in which random order, and how long it takes.

use std::collections::{BTreeMap, BTreeSet};
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

/// Minimum number of items of a group. In a group of two, a side of a ratio would follow the other one in every second
/// round, so that a point which slows the next one would bias it.
const MIN_GROUP: usize = 8;

/// The order of the items of an experiment in its rounds. Items form groups: the points that are
/// [compared](Experiment::compared) with each other, and their twins; small groups are joined. The items of a group
/// follow each other. The groups of a round are in random order, and so are the items of a group.
#[derive(Debug)]
pub struct Order {
    id: String,
    /// Indices of the items of each group.
    groups: Vec<Vec<usize>>,
}

impl Order {
    /// Forms the groups. A twin is in the group of its point, so that the noise floor includes as much drift as a
    /// comparison.
    pub fn new(experiment: &Experiment) -> Self {
        let Experiment { points, twins, compared, .. } = experiment;
        let indices: BTreeMap<&Point, usize> = points.iter().zip(0..).collect();
        let of_set = |set: &Vec<Point>| -> Vec<usize> {
            set.iter().filter_map(|point| indices.get(point).copied()).collect()
        };
        let mut groups: Vec<Vec<usize>> = compared.iter().map(of_set).collect();
        let in_sets: BTreeSet<usize> = groups.iter().flatten().copied().collect();
        groups
            .extend((0..points.len()).filter(|index| !in_sets.contains(index)).map(|it| vec![it]));
        let mut group_of = vec![0; points.len()];
        for (at, group) in groups.iter().enumerate() {
            group.iter().for_each(|index| group_of[*index] = at);
        }
        for (point, item) in twins.iter().zip(points.len()..) {
            match indices.get(point) {
                Some(index) => groups[group_of[*index]].push(item),
                None => groups.push(vec![item]),
            }
        }
        groups.retain(|group| !group.is_empty());
        // Both sides of a comparison measure the same point, and slow the next one alike.
        if !side::is_crossed(experiment) {
            groups = joined(groups);
        }
        Self { id: experiment.id(), groups }
    }

    /// Returns the order of the items in one round, as indices.
    pub fn of_round(&self, round: u32, seed: u64) -> Vec<usize> {
        let shuffled = |count, name: &str| {
            statistics::order::of_round(count, round as usize, seed_of(name, seed))
        };
        let of_group = |group: usize| {
            let items = &self.groups[group];
            let order = shuffled(items.len(), &format!("{} {group}", self.id));
            order.into_iter().map(|at| items[at])
        };
        shuffled(self.groups.len(), &self.id).into_iter().flat_map(of_group).collect()
    }
}

/// Joins groups of fewer than [`MIN_GROUP`] items with those declared next, whose items take a similar time.
fn joined(groups: Vec<Vec<usize>>) -> Vec<Vec<usize>> {
    let is_large = |group: &Vec<usize>| group.len() >= MIN_GROUP;
    let (mut large, mut small): (Vec<_>, Vec<_>) = groups.into_iter().partition(is_large);
    small.sort_unstable();
    let mut joined: Vec<Vec<usize>> = Vec::new();
    for group in small {
        match joined.last_mut() {
            Some(last) if !is_large(last) => last.extend(group),
            _ => joined.push(group),
        }
    }
    large.append(&mut joined);
    // The last one may remain small.
    if let Some(rest) = large.pop_if(|last| !is_large(last)) {
        match large.last_mut() {
            Some(last) => last.extend(rest),
            None => large.push(rest),
        }
    }
    large
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use super::*;
    use crate::experiment::Profile;

    fn at(level: &str) -> Point {
        Point::from([("length", level)])
    }

    /// Returns an experiment of 40 points. Ten are compared with each other, and so are `2` and `20`; `1`, `2` and the
    /// first of the ten have twins.
    fn experiment() -> Experiment {
        let all: Vec<Point> = (0..40).map(|level| at(&level.to_string())).collect();
        Experiment {
            suite: "toy".into(),
            name: "one".into(),
            method: "loop".into(),
            about: String::new(),
            metric: "time".into(),
            baseline: at("0"),
            defaults: Point::default(),
            sweeps: Vec::new(),
            twins: [1, 2, 30].map(|level| all[level].clone()).to_vec(),
            // A point that is not measured.
            compared: vec![all[30..].to_vec(), vec![at("2"), at("20"), at("99")]],
            points: all,
            skipped: Vec::new(),
            roles: Vec::new(),
            blocking: Vec::new(),
            alternatives: None,
            batch: 1,
            limit: None,
            effort: Profile::Quick.effort(),
        }
    }

    #[test]
    fn compared_points_and_their_twins_are_in_one_group() {
        let order = Order::new(&experiment());
        let ten: Vec<_> = (30..40).chain([42]).collect();
        // Small groups are joined: 0, 1 with its twin, 2 and 20 with theirs, and so on.
        assert_eq!(order.groups[..2], [ten, vec![0, 1, 40, 2, 20, 41, 3, 4]]);
        assert!(order.groups.iter().all(|group| group.len() >= MIN_GROUP), "{:?}", order.groups);
        let mut all = order.groups.concat();
        all.sort_unstable();
        assert_eq!(all, (0..43).collect::<Vec<_>>());
    }

    #[test]
    fn the_items_of_a_group_follow_each_other_and_each_is_first_in_turn() {
        let order = Order::new(&experiment());
        for group in &order.groups {
            let mut firsts = BTreeMap::new();
            for round in 0..group.len() as u32 {
                let order = order.of_round(round, 3);
                let start = order.iter().position(|item| group.contains(item)).unwrap();
                let items = &order[start..start + group.len()];
                assert!(items.iter().all(|item| group.contains(item)), "{order:?}");
                *firsts.entry(items[0]).or_insert(0) += 1;
            }
            assert!(firsts.len() == group.len() && firsts.values().all(|times| *times == 1));
        }
    }

    #[test]
    fn every_round_has_every_item_and_groups_are_balanced() {
        let order = Order::new(&experiment());
        let first_group = |round| {
            let order_of_round = order.of_round(round, 3);
            let mut all = order_of_round.clone();
            all.sort_unstable();
            assert_eq!(all, (0..43).collect::<Vec<_>>());
            order.groups.iter().position(|group| group.contains(&order_of_round[0]))
        };
        let firsts: BTreeSet<_> = (0..order.groups.len() as u32).map(first_group).collect();
        assert_eq!(firsts.len(), order.groups.len());
        assert_eq!(order.of_round(5, 3), order.of_round(5, 3));
        assert_ne!(order.of_round(5, 3), order.of_round(5, 4));
    }

    #[test]
    fn few_items_are_one_group() {
        let mut few = experiment();
        few.keep(|point| point.text("length").len() == 1);
        assert_eq!(Order::new(&few).groups.concat().len(), 12);
        few.keep(|point| point.text("length") == "3");
        assert_eq!(Order::new(&few).groups, [[0]]);
        few.keep(|_| false);
        assert_eq!(Order::new(&few).of_round(0, 1), [0_usize; 0]);
    }
}
