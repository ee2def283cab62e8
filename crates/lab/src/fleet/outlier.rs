//! Which nodes are outliers at a point, and how probable that is by chance.

use std::collections::BTreeMap;

use statrs::distribution::{ContinuousCDF, Normal};

use crate::statistics::{CONFIDENCE, Robust};

/// Minimum number of nodes with a value of a point, for a verdict on any of them.
pub const MIN_NODES: usize = Robust::MIN_VALUES + 1;
/// Number of nodes up to which each is compared with all others. Of more nodes, one hardly changes centre and scale.
const LEAVE_ONE_OUT: usize = 48;
/// Minimum standard deviation, as a share: no clock and no method is better.
const MIN_DEVIATION: f64 = 0.001;
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

/// Selects the tests that are rejected if the probability that any true hypothesis is rejected is at most 5% in total, by
/// Holm's method. Only p-values that may be rejected are stored.
#[derive(Debug, Default)]
pub(super) struct Selection {
    /// p-value, node and point of each candidate.
    candidates: Vec<(f64, u32, u32)>,
    tests: usize,
}

impl Selection {
    /// Adds a test of a node at a point; returns whether it may be rejected.
    pub(super) fn add(&mut self, p_value: f64, node: u32, point: u32) -> bool {
        self.tests += 1;
        let is_candidate = p_value <= 1.0 - CONFIDENCE;
        if is_candidate {
            self.candidates.push((p_value, node, point));
        }
        is_candidate
    }

    /// Returns the number of tests.
    pub(super) fn tests(&self) -> usize {
        self.tests
    }

    /// Returns the points and p-values of each node with a rejected test.
    pub(super) fn rejected(mut self) -> BTreeMap<u32, Vec<(u32, f64)>> {
        self.candidates.sort_by(|a, b| a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2))));
        let mut rejected: BTreeMap<u32, Vec<(u32, f64)>> = BTreeMap::new();
        for (smaller, (p_value, node, point)) in self.candidates.into_iter().enumerate() {
            if p_value > (1.0 - CONFIDENCE) / (self.tests - smaller) as f64 {
                break;
            }
            rejected.entry(node).or_default().push((point, p_value));
        }
        rejected
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::holm;

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
        let p_values = [0.9, 0.004, 0.0002, 0.3, 0.011, 0.02, 0.049, 1.0];
        let mut selection = Selection::default();
        for (at, p_value) in (0..).zip(p_values) {
            selection.add(p_value, at, 0);
        }
        assert_eq!(selection.tests(), p_values.len());
        let rejected = selection.rejected();
        for (at, expected) in (0..).zip(holm(&p_values, 0.05)) {
            assert_eq!(rejected.contains_key(&at), expected, "{at}");
        }
    }
}
