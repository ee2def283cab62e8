//! Which nodes are outliers at a point, and how probable that is by chance.

use std::collections::{BTreeMap, BTreeSet};

use statrs::distribution::{ContinuousCDF, Normal};

use crate::statistics::{CONFIDENCE, Robust, holm, median};

/// Minimum number of nodes with a value of a point, for a verdict on any of them.
pub const MIN_NODES: usize = Robust::MIN_VALUES + 1;
/// Number of nodes up to which each is compared with all others. Of more nodes, one hardly changes centre and scale.
const LEAVE_ONE_OUT: usize = 48;
/// Minimum standard deviation, as a share: no clock and no method is better.
const MIN_DEVIATION: f64 = 0.001;
/// Part of the probability of a false alarm that the tests of whole nodes have. The tests of single points have the other:
/// they are many, so that of few nodes only the whole ones are improbable enough.
const WHOLE_NODES: f64 = 0.8;
/// Number of standard deviations from the centre of a 95% interval to its end.
const DEVIATIONS: f64 = 1.959_964;

/// Value of one node at a point, on the logarithmic scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct NodeValue {
    pub(super) value: f64,
    /// Distances to the ends of the 95% interval; infinite if an end is open.
    pub(super) below: f64,
    pub(super) above: f64,
    /// Noise floor; `None` without twins.
    pub(super) floor: Option<f64>,
}

/// One node next to the others at a point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Deviation {
    /// Its value, on the logarithmic scale.
    pub(super) value: f64,
    /// Its distance from the centre of the others.
    pub(super) distance: f64,
    /// Probability that an equal node is as far; `None` without a noise floor.
    pub(super) p_value: Option<f64>,
}

/// All nodes at a point.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Deviations {
    /// Robust centre and scale of all nodes.
    pub(super) all: Robust,
    /// In the order of the nodes.
    pub(super) nodes: Vec<Deviation>,
}

impl Deviations {
    /// Compares each node with the others; `None` with too few nodes.
    pub(super) fn of(nodes: &[NodeValue]) -> Option<Self> {
        if nodes.len() < MIN_NODES {
            return None;
        }
        let values: Vec<f64> = nodes.iter().map(|node| node.value).collect();
        let all = Robust::of(&values).ok()?;
        let deviation = |(at, node): (usize, &NodeValue)| {
            let others = match nodes.len() <= LEAVE_ONE_OUT {
                true => Robust::of(&without(&values, at)).ok()?,
                false => Robust { values: values.len() - 1, ..all },
            };
            Some(Deviation {
                value: node.value,
                distance: node.value - others.centre,
                p_value: node.floor.and_then(|floor| p_value(node, &others, floor)),
            })
        };
        let nodes: Option<Vec<_>> = nodes.iter().enumerate().map(deviation).collect();
        Some(Self { all, nodes: nodes? })
    }
}

fn without(values: &[f64], at: usize) -> Vec<f64> {
    [&values[..at], &values[at + 1..]].concat()
}

/// Returns the probability that a node like the others is as far from their centre, beyond its noise floor. The spread of
/// the others contains their noise; the node's own is added, because its interval may be wider than theirs.
fn p_value(node: &NodeValue, others: &Robust, floor: f64) -> Option<f64> {
    let distance = node.value - others.centre;
    let beyond = (distance.abs() - floor).max(0.0);
    let towards_centre = if distance > 0.0 { node.below } else { node.above };
    let own = towards_centre / DEVIATIONS;
    let deviation = others.scale.hypot(own).max(MIN_DEVIATION);
    // An open end: the true value may be any.
    if !deviation.is_finite() || !beyond.is_finite() {
        return Some(1.0);
    }
    let p = others.p_value(beyond / deviation)?;
    // Student's t of many nodes is nearly normal, and never narrower.
    Some(p.max(2.0 * Normal::standard().sf(beyond / deviation)))
}

/// A judged point of a node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct JudgedPoint {
    /// Number of the point.
    pub(super) point: u32,
    /// The node's value, on the logarithmic scale.
    pub(super) value: f64,
    /// Its distance from the centre of the other nodes.
    pub(super) distance: f64,
    pub(super) p_value: f64,
    /// Distances to the ends of the interval.
    pub(super) below: f32,
    pub(super) above: f32,
    pub(super) floor: f32,
    /// Whether higher values are better.
    pub(super) is_higher_better: bool,
}

impl JudgedPoint {
    /// Returns how much worse the node is than the others, on the logarithmic scale.
    pub(super) fn worse(&self) -> f64 {
        if self.is_higher_better { -self.distance } else { self.distance }
    }
}

/// Returns how much worse a node is as a whole: the median over its points. `None` without points.
///
/// Its interval and its floor are those of its points: they are not reduced, because the errors of points may be those of
/// the node.
fn whole(points: &[JudgedPoint]) -> Option<NodeValue> {
    let median = |of: &dyn Fn(&JudgedPoint) -> f64| {
        // An open end is far, but finite.
        let values: Vec<f64> = points.iter().map(|one| of(one).min(f64::from(f32::MAX))).collect();
        median(&values)
    };
    let ends = |one: &JudgedPoint| match one.is_higher_better {
        true => (one.above, one.below),
        false => (one.below, one.above),
    };
    Some(NodeValue {
        value: median(&JudgedPoint::worse)?,
        below: median(&|one| ends(one).0.into())?,
        above: median(&|one| ends(one).1.into())?,
        floor: median(&|one| one.floor.into()),
    })
}

/// Returns a p-value for each node with at least half of the points of the node with most, and how much worse it is: whether
/// it differs as a whole from the other nodes. Empty with too few such nodes.
///
/// A node that is slow at all points is found by it among fewer nodes than at any of the points, because there is one test
/// per node. A difference counts only if it is larger than the floor, which is not subtracted: the spread of the nodes contains
/// the noise, here of several points.
pub(super) fn whole_nodes(judged: &[Vec<JudgedPoint>]) -> Vec<WholeNode> {
    let most = judged.iter().map(Vec::len).max().unwrap_or_default();
    let of_node = |(node, points): (u32, &Vec<JudgedPoint>)| {
        (2 * points.len() >= most).then(|| whole(points))?.map(|value| (node, value))
    };
    let (nodes, values): (Vec<u32>, Vec<NodeValue>) = (0..).zip(judged).filter_map(of_node).unzip();
    let without_floors: Vec<NodeValue> =
        values.iter().map(|one| NodeValue { floor: Some(0.0), ..*one }).collect();
    let Some(deviations) = Deviations::of(&without_floors) else { return Vec::new() };
    let test = |((node, value), deviation): ((u32, &NodeValue), Deviation)| {
        let is_beyond = value.floor.is_some_and(|floor| deviation.distance.abs() > floor);
        let p_value = if is_beyond { deviation.p_value? } else { 1.0 };
        Some(WholeNode { node, worse: deviation.value, p_value })
    };
    nodes.into_iter().zip(&values).zip(deviations.nodes).filter_map(test).collect()
}

/// Test of a node as a whole.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct WholeNode {
    pub(super) node: u32,
    /// The median over its points of how much worse it is than the others.
    pub(super) worse: f64,
    pub(super) p_value: f64,
}

/// Returns those of the tests of whole nodes that are rejected, so that with those of [`Selection`] any true hypothesis is
/// rejected with a probability of at most 5%.
pub(super) fn rejected_nodes(tests: &[WholeNode]) -> Vec<WholeNode> {
    let p_values: Vec<f64> = tests.iter().map(|one| one.p_value).collect();
    let rejected = holm(&p_values, WHOLE_NODES * (1.0 - CONFIDENCE));
    tests.iter().zip(rejected).filter_map(|(one, rejected)| rejected.then_some(*one)).collect()
}

/// Selects the tests of points that are rejected if the probability that any true hypothesis is rejected is at most the part of 5%
/// that [`WHOLE_NODES`] leaves, by Holm's method. Only p-values that may be rejected are stored.
#[derive(Debug, Default)]
pub(super) struct Selection {
    /// p-value, node and point of each candidate.
    candidates: Vec<(f64, u32, u32)>,
    tests: usize,
}

impl Selection {
    /// Probability of a false alarm.
    const LEVEL: f64 = (1.0 - WHOLE_NODES) * (1.0 - CONFIDENCE);

    /// Adds a test of a node at a point.
    pub(super) fn add(&mut self, p_value: f64, node: u32, point: u32) {
        self.tests += 1;
        if p_value <= Self::LEVEL {
            self.candidates.push((p_value, node, point));
        }
    }

    /// Returns the number of tests.
    pub(super) fn tests(&self) -> usize {
        self.tests
    }

    /// Returns the points of each node with a rejected test.
    pub(super) fn rejected(mut self) -> BTreeMap<u32, BTreeSet<u32>> {
        self.candidates.sort_by(|a, b| a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2))));
        let mut rejected: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for (smaller, (p_value, node, point)) in self.candidates.into_iter().enumerate() {
            if p_value > Self::LEVEL / (self.tests - smaller) as f64 {
                break;
            }
            rejected.entry(node).or_default().insert(point);
        }
        rejected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(values: &[f64], half_width: f64, floor: Option<f64>) -> Vec<NodeValue> {
        let node =
            |value: &f64| NodeValue { value: *value, below: half_width, above: half_width, floor };
        values.iter().map(node).collect()
    }

    /// Nodes within 1% of each other, and one that is 10% higher.
    fn planted(count: usize) -> Vec<f64> {
        let value = |at: usize| (at * 7 % 11) as f64 / 1000.0 - 0.005;
        (1..count).map(value).chain([0.1]).collect()
    }

    #[test]
    fn a_planted_node_is_improbable() {
        for count in [12, 100] {
            let all = Deviations::of(&nodes(&planted(count), 0.01, Some(0.01))).unwrap();
            let (last, others) = all.nodes.split_last().unwrap();
            assert!(last.p_value.unwrap() < 1e-4, "{count}: {last:?}");
            assert!((last.distance - 0.1).abs() < 0.01);
            assert!(others.iter().all(|one| one.p_value.unwrap() > 0.1), "{count}: {others:?}");
        }
    }

    #[test]
    fn floors_and_intervals_hide_a_difference() {
        let p_value = |half_width, floor| {
            let all = Deviations::of(&nodes(&planted(12), half_width, floor)).unwrap();
            all.nodes.last().unwrap().p_value
        };
        assert!(p_value(0.01, Some(0.01)).unwrap() < 1e-4);
        assert_eq!(p_value(0.01, Some(0.2)), Some(1.0), "within the floor");
        assert!(p_value(0.2, Some(0.01)).unwrap() > 0.1, "within the interval");
        assert_eq!(p_value(f64::INFINITY, Some(0.01)), Some(1.0), "an open end");
        assert_eq!(p_value(0.01, None), None, "no floor, no verdict");
        assert_eq!(Deviations::of(&nodes(&planted(MIN_NODES - 1), 0.0, None)), None);
    }

    #[test]
    fn equal_values_need_a_difference_above_every_clock() {
        let values = |last: f64| [vec![0.0; 20], vec![last]].concat();
        let p_value = |last: f64| {
            let all = Deviations::of(&nodes(&values(last), 0.0, Some(0.0))).unwrap();
            all.nodes.last().unwrap().p_value.unwrap()
        };
        assert!(p_value(0.001) > 0.05 && p_value(0.02) < 1e-6);
    }

    #[test]
    fn the_selection_is_that_of_holm() {
        let p_values = [0.9, 0.0013, 0.0002, 0.3, 0.0016, 0.004, 0.009, 1.0];
        let mut selection = Selection::default();
        for (at, p_value) in (0..).zip(p_values) {
            selection.add(p_value, at, 0);
        }
        assert_eq!(selection.tests(), p_values.len());
        let rejected = selection.rejected();
        let expected = holm(&p_values, 0.01);
        assert_eq!(expected.iter().filter(|rejected| **rejected).count(), 3);
        for (at, expected) in (0..).zip(expected) {
            assert_eq!(rejected.contains_key(&at), expected, "{at}");
        }
    }

    /// A point at which a node is at a distance from the others.
    fn point(point: u32, distance: f64, is_higher_better: bool) -> JudgedPoint {
        JudgedPoint {
            point,
            value: distance,
            distance,
            p_value: 0.01,
            below: 0.01,
            above: 0.02,
            floor: 0.01,
            is_higher_better,
        }
    }

    #[test]
    fn a_node_that_is_worse_in_every_metric_differs_as_a_whole() {
        let points = |worse: f64| vec![point(0, worse, false), point(1, -worse, true)];
        let mut judged: Vec<_> = planted(12).into_iter().map(points).collect();
        // Too few points for a verdict on the whole node, and none.
        judged.extend([vec![point(0, 0.5, false)], Vec::new()]);
        let most = [points(0.0), vec![point(2, 0.0, false)]].concat();
        judged[0] = most;
        let tests = whole_nodes(&judged);
        assert_eq!(tests.len(), 12);
        let [rejected] = &rejected_nodes(&tests)[..] else { panic!("{tests:?}") };
        assert_eq!(rejected.node, 11);
        assert!((rejected.worse - 0.1).abs() < 1e-9);
        assert!(whole_nodes(&judged[5..12]).is_empty(), "of 7 nodes");
    }

    #[test]
    fn a_whole_node_within_its_floor_does_not_differ() {
        let with = |floor: f32| {
            let of_node = |worse: f64| vec![JudgedPoint { floor, ..point(0, worse, false) }];
            let judged: Vec<_> = planted(12).into_iter().map(of_node).collect();
            whole_nodes(&judged).last().unwrap().p_value
        };
        assert!(with(0.09) < 1e-4);
        assert_eq!(with(0.2), 1.0);
    }

    #[test]
    fn the_ends_of_a_whole_node_are_those_towards_worse_and_better() {
        let open = JudgedPoint { below: f32::INFINITY, ..point(0, 0.1, false) };
        let value = whole(&[open, open]).unwrap();
        assert!(value.below > 1e30 && (value.above - 0.02).abs() < 1e-6);
        let value = whole(&[point(0, -0.1, true)]).unwrap();
        assert!((value.value - 0.1).abs() < 1e-9 && (value.below - 0.02).abs() < 1e-6);
        assert_eq!(whole(&[]), None);
    }
}
