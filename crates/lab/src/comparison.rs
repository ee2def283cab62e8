//! Which points of an experiment are compared with each other: by claims and promises, by headlines, and as alternatives.
//!
//! A round measures such points near each other. Whether a busy SMT sibling shares the core changes within
//! milliseconds to seconds, and only values of one state are paired.

use std::collections::BTreeMap;

use crate::claim::Claim;
use crate::experiment::Experiment;
use crate::headline::Headline;
use crate::point::Point;

/// Sets the [compared](Experiment::compared) points of experiments, after their points were selected.
pub fn set(experiments: &mut [Experiment], claims: &[Claim], headlines: &[Headline]) {
    for experiment in experiments {
        experiment.compared = compared(experiment, claims, headlines);
    }
}

/// Returns disjoint sets of the points of an experiment. Two points are in one set if they are compared with each other,
/// or both with a third one.
fn compared(experiment: &Experiment, claims: &[Claim], headlines: &[Headline]) -> Vec<Vec<Point>> {
    let id = experiment.id();
    let mut sets = DisjointSets::new(&experiment.points);
    if let Some(factor) = &experiment.alternatives {
        sets.join_equal(|point| Some(point.without([factor.as_str()])));
    }
    for claim in claims.iter().filter(|claim| claim.experiment == id) {
        sets.join_equal(|point| claim.comparison_of(point));
    }
    for pair in headlines.iter().flat_map(|headline| headline.compared(experiment)) {
        sets.join_equal(|point| pair.contains(point).then(Point::default));
    }
    sets.of_several()
}

/// Disjoint sets of points (union-find).
struct DisjointSets<'a> {
    points: &'a [Point],
    /// Index of another point of the set for each point, which leads to the first one; its own index for the first.
    parents: Vec<usize>,
}

impl<'a> DisjointSets<'a> {
    fn new(points: &'a [Point]) -> Self {
        Self { points, parents: (0..points.len()).collect() }
    }

    /// Joins the sets of all points with equal keys; a point without a key stays in its set.
    fn join_equal(&mut self, key: impl Fn(&Point) -> Option<Point>) {
        let mut firsts: BTreeMap<Point, usize> = BTreeMap::new();
        for (index, point) in self.points.iter().enumerate() {
            let Some(key) = key(point) else { continue };
            let first = *firsts.entry(key).or_insert(index);
            let (one, other) = (self.first_of(first), self.first_of(index));
            self.parents[one.max(other)] = one.min(other);
        }
    }

    /// Returns the index of the first point of a point's set.
    fn first_of(&mut self, mut index: usize) -> usize {
        while self.parents[index] != index {
            self.parents[index] = self.parents[self.parents[index]];
            index = self.parents[index];
        }
        index
    }

    /// Returns the sets of two points or more.
    fn of_several(mut self) -> Vec<Vec<Point>> {
        let mut sets: BTreeMap<usize, Vec<Point>> = BTreeMap::new();
        for (index, point) in self.points.iter().enumerate() {
            sets.entry(self.first_of(index)).or_default().push(point.clone());
        }
        sets.into_values().filter(|set| set.len() > 1).collect()
    }
}
