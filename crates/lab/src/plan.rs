//! The plan of an experiment: which items a round measures, in which random order, and how long it takes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
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

/// The order of the items of an experiment in its rounds. The points that are [compared](Experiment::compared) with each
/// other, and their twins, form a group, so that they are measured within a short time. Two *tracks* of groups alternate, so
/// that no item follows one of its own group: an item may slow the next one.
#[derive(Debug)]
pub struct RoundOrder {
    id: String,
    couples: Vec<Couple>,
}

/// Indices of the items of a group.
type Group = Vec<usize>;

/// Two tracks whose items alternate: the second has about as many items as the first, if there are enough.
type Couple = [Vec<Group>; 2];

impl RoundOrder {
    /// Forms the groups. A twin is in the group of its point, so that the noise floor includes as much drift as a
    /// comparison.
    pub fn new(experiment: &Experiment) -> Self {
        let groups = groups(experiment);
        // Both sides of a comparison measure the same point, and slow the next one alike.
        let couples = match side::is_crossed(experiment) {
            true => groups.into_iter().map(|group| [vec![group], Vec::new()]).collect(),
            false => coupled(groups),
        };
        Self { id: experiment.id(), couples }
    }

    /// Returns the items of all couples that have one of some items, as indices. Together they are ordered as in a whole
    /// round.
    pub fn with_couples(&self, is_wanted: impl Fn(usize) -> bool) -> BTreeSet<usize> {
        let items = |couple: &Couple| couple.iter().flatten().flatten().copied().collect();
        let couples = self.couples.iter().map(items);
        let has_some = |items: &Vec<usize>| items.iter().any(|item| is_wanted(*item));
        couples.filter(has_some).flatten().collect()
    }

    /// Returns the order of the items in one round, as indices.
    pub fn of_round(&self, round: u32, seed: u64) -> Vec<usize> {
        let shuffled = |count, name: &str| {
            statistics::order::of_round(count, round as usize, seed_of(name, seed))
        };
        let of_group = |group: &Group| {
            let order = shuffled(group.len(), &format!("{} {}", self.id, group[0]));
            order.into_iter().map(|at| group[at]).collect::<Vec<_>>()
        };
        let of_couple = |at: usize| {
            let name = |what| format!("{} {what} {at}", self.id);
            let track = |track: usize| -> Vec<usize> {
                let groups = &self.couples[at][track];
                let order = shuffled(groups.len(), &name(track));
                order.into_iter().flat_map(|group| of_group(&groups[group])).collect()
            };
            let first = shuffled(2, &name(2))[0];
            alternated([track(first), track(1 - first)])
        };
        shuffled(self.couples.len(), &self.id).into_iter().flat_map(of_couple).collect()
    }
}

/// Returns the groups of an experiment: compared points and their twins, and every other point with its own.
fn groups(experiment: &Experiment) -> Vec<Group> {
    let Experiment { points, twins, compared, .. } = experiment;
    let indices: BTreeMap<&Point, usize> = points.iter().zip(0..).collect();
    let of_set = |set: &Vec<Point>| -> Group {
        set.iter().filter_map(|point| indices.get(point).copied()).collect()
    };
    let mut groups: Vec<Group> = compared.iter().map(of_set).collect();
    let in_sets: BTreeSet<usize> = groups.iter().flatten().copied().collect();
    groups.extend((0..points.len()).filter(|index| !in_sets.contains(index)).map(|it| vec![it]));
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
    groups
}

/// Couples each group, the largest first, with the next ones in size, until these have as many items.
fn coupled(mut groups: Vec<Group>) -> Vec<Couple> {
    groups.sort_by_key(|group| (Reverse(group.len()), group[0]));
    let mut rest = VecDeque::from(groups);
    let mut couples = Vec::new();
    while let Some(largest) = rest.pop_front() {
        let (mut others, mut items) = (Vec::new(), 0);
        while items < largest.len()
            && let Some(next) = rest.pop_front()
        {
            items += next.len();
            others.push(next);
        }
        couples.push([vec![largest], others]);
    }
    couples
}

/// Mixes two tracks evenly.
fn alternated(tracks: [Vec<usize>; 2]) -> Vec<usize> {
    let spread = |track: &Vec<usize>| {
        let count = track.len() as f64;
        let places = track.iter().enumerate();
        places.map(|(at, item)| ((at as f64 + 0.5) / count, *item)).collect::<Vec<_>>()
    };
    let mut items: Vec<_> = tracks.iter().flat_map(spread).collect();
    // Of two items at one place, that of the first track is first.
    items.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    items.into_iter().map(|(_, item)| item).collect()
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
        let order = RoundOrder::new(&experiment());
        let ten: Group = (30..40).chain([42]).collect();
        // 2 and 20 with the twin of 2, 1 with its own, and single points.
        let others =
            [vec![2, 20, 41], vec![1, 40], vec![0], vec![3], vec![4], vec![5], vec![6], vec![7]];
        assert_eq!(order.couples[0], [vec![ten], others[..8].to_vec()]);
        let mut all: Vec<_> = order.couples.iter().flatten().flatten().flatten().copied().collect();
        all.sort_unstable();
        assert_eq!(all, (0..43).collect::<Vec<_>>());
    }

    #[test]
    fn the_items_of_a_group_are_near_each_other_and_do_not_follow_each_other() {
        let order = RoundOrder::new(&experiment());
        let ten: Group = (30..40).chain([42]).collect();
        let mut firsts = BTreeMap::new();
        for round in 0..22 {
            let order = order.of_round(round, 3);
            for group in [&ten[..], &[2, 20, 41], &[1, 40]] {
                let places =
                    group.iter().map(|item| order.iter().position(|it| it == item).unwrap());
                let mut places: Vec<_> = places.collect();
                places.sort_unstable();
                let gaps: Vec<_> = places.windows(2).map(|pair| pair[1] - pair[0]).collect();
                assert!(gaps.iter().all(|gap| *gap == 2), "{order:?}: {places:?}");
            }
            *firsts.entry(*order.iter().find(|item| ten.contains(item)).unwrap()).or_insert(0) += 1;
        }
        assert!(
            firsts.len() == ten.len() && firsts.values().all(|times| *times == 2),
            "{firsts:?}"
        );
    }

    #[test]
    fn items_are_measured_again_with_all_that_are_next_to_them() {
        let order = RoundOrder::new(&experiment());
        let all: Vec<usize> = order.couples[0].iter().flatten().flatten().copied().collect();
        // An item of the first track, and one of the second.
        for wanted in [35, 20] {
            let items = order.with_couples(|item| item == wanted);
            assert_eq!(items, all.iter().copied().collect(), "{wanted}");
        }
        assert_eq!(order.with_couples(|_| true), (0..43).collect());
        assert_eq!(order.with_couples(|_| false), BTreeSet::new());
    }

    #[test]
    fn every_round_has_every_item_and_couples_are_balanced() {
        let order = RoundOrder::new(&experiment());
        let first_couple = |round| {
            let order_of_round = order.of_round(round, 3);
            let mut all = order_of_round.clone();
            all.sort_unstable();
            assert_eq!(all, (0..43).collect::<Vec<_>>());
            let has_first = |couple: &Couple| {
                couple.iter().flatten().flatten().any(|item| *item == order_of_round[0])
            };
            order.couples.iter().position(has_first)
        };
        let firsts: BTreeSet<_> = (0..order.couples.len() as u32).map(first_couple).collect();
        assert_eq!(firsts.len(), order.couples.len());
        assert_eq!(order.of_round(5, 3), order.of_round(5, 3));
        assert_ne!(order.of_round(5, 3), order.of_round(5, 4));
    }

    #[test]
    fn tracks_of_different_length_are_mixed_evenly() {
        assert_eq!(alternated([vec![1, 2, 3], vec![4, 5, 6]]), [1, 4, 2, 5, 3, 6]);
        assert_eq!(alternated([vec![1, 2, 3, 4], vec![5, 6]]), [1, 5, 2, 3, 6, 4]);
        assert_eq!(alternated([vec![1, 2], Vec::new()]), [1, 2]);
    }

    #[test]
    fn few_items_have_an_order() {
        let mut few = experiment();
        few.keep(|point| point.text("length") == "3");
        assert_eq!(RoundOrder::new(&few).of_round(0, 1), [0]);
        few.keep(|_| false);
        assert_eq!(RoundOrder::new(&few).of_round(0, 1), [0_usize; 0]);
    }
}
