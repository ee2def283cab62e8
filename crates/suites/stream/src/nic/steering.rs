//! Steering: the pipe of each packet.

use std::collections::BTreeMap;

use crate::wire::traffic::Packet;
use crate::wire::{List, packet};

use super::fallback::{Fallback, Policy};
use super::flow_table::FlowTable;

/// The pipe of packets to drop.
pub(crate) const NONE: u32 = u32::MAX;
/// The pipe of packets that are routed one by one.
const PER_PACKET: u32 = u32::MAX - 1;
/// Maximum length of a run, in packets.
const MAX_RUN: u32 = 1 << 16;

/// The route of a packet and of those that follow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Route {
    /// The pipe, or [`NONE`].
    pub(crate) pipe: u32,
    /// Flits of each packet.
    pub(crate) flits: u32,
    /// Number of consecutive packets with the same pipe and number of flits.
    pub(crate) run: u32,
}

/// All packets of the traffic that go to one pipe, if they have the same number of flits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group {
    pub(crate) pipe: u32,
    pub(crate) flits: u32,
    pub(crate) list: List,
}

impl Group {
    /// Returns which of `count` packets, starting at packet `first` of `all`, belong to the group: an index into its
    /// list and a number.
    #[inline(always)]
    pub(crate) fn among(&self, order: &[u32], first: u32, count: u32, all: u32) -> (u32, u32) {
        let list = self.list.of(order);
        let before = |index: u32| match list {
            [one] => u32::from(*one < index),
            list => list.partition_point(|other| *other < index) as u32,
        };
        let (rounds, remainder) = (count / all, count % all);
        let (at, end) = (before(first), first + remainder);
        let in_remainder =
            if end <= all { before(end) - at } else { self.list.len - at + before(end - all) };
        (at, rounds * self.list.len + in_remainder)
    }
}

/// The flow table and the fallback, with the routes of all packets of the traffic.
///
/// The hardware looks up every packet at no cost to the host. Here packets are replayed, and each is looked up once per
/// state of the table.
#[derive(Default)]
pub(crate) struct Steering {
    pub(crate) table: FlowTable,
    pub(crate) fallback: Fallback,
    changes: u64,
    known: Option<(u64, u64)>,
    routes: Vec<Route>,
    groups: Vec<Group>,
    /// Index of each packet's group, if there are groups.
    group_of: Vec<u32>,
    /// All packets in order, followed by the lists of all groups.
    order: Vec<u32>,
}

impl Steering {
    /// Invalidates the routes after a change of table or fallback.
    pub(crate) fn changed(&mut self) {
        self.changes += 1;
    }

    /// Updates the routes if the traffic (identified by `epoch`) or the rules have changed. Called once per burst, so
    /// that setting thousands of rules costs one update.
    #[inline(always)]
    pub(crate) fn refresh(&mut self, epoch: u64, packets: &[Packet]) {
        if self.known != Some((self.changes, epoch)) {
            self.route_all(packets);
            self.known = Some((self.changes, epoch));
        }
    }

    #[cold]
    fn route_all(&mut self, packets: &[Packet]) {
        let Self { table, fallback, routes, groups, group_of, order, .. } = self;
        routes.clear();
        routes.extend(packets.iter().map(|packet| Route {
            pipe: match table.steer(&packet.flow, packet.syn) {
                Some(pipe) => pipe,
                None if fallback.policy() == Policy::RoundRobin => PER_PACKET,
                None => fallback.pipe(&packet.flow).unwrap_or(NONE),
            },
            flits: packet::flits(usize::from(packet.length)) as u32,
            run: 1,
        }));
        count_runs(routes);
        order.clear();
        order.extend(0..packets.len() as u32);
        (*groups, *group_of) = group(routes, order).unwrap_or_default();
    }

    /// Returns the groups, or an empty slice if the traffic cannot be grouped.
    #[inline(always)]
    pub(crate) fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Returns the index of each packet's group, if there are groups.
    #[inline(always)]
    pub(crate) fn group_of(&self) -> &[u32] {
        &self.group_of
    }

    /// Returns the list of which group lists are parts; it starts with all packets in order.
    #[inline(always)]
    pub(crate) fn order(&self) -> &[u32] {
        &self.order
    }

    /// Returns the route of the packet at `index`.
    #[inline(always)]
    pub(crate) fn route(&mut self, index: u32, packets: &[Packet]) -> Route {
        let route = self.routes[index as usize];
        if route.pipe == PER_PACKET {
            let flow = &packets[index as usize].flow;
            return Route { pipe: self.fallback.pipe(flow).unwrap_or(NONE), ..route };
        }
        route
    }
}

/// Groups packets by pipe, and appends the groups' lists to `order`. Returns the groups and the index of each packet's
/// group, or `None` if packets of a pipe differ in their number of flits, or are routed one by one.
fn group(routes: &[Route], order: &mut Vec<u32>) -> Option<(Vec<Group>, Vec<u32>)> {
    let mut by_pipe: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (route, index) in routes.iter().zip(0..) {
        by_pipe.entry(route.pipe).or_default().push(index);
    }
    let (mut groups, mut group_of) = (Vec::new(), vec![0; routes.len()]);
    for (pipe, indices) in by_pipe {
        let flits = routes[indices[0] as usize].flits;
        if pipe == PER_PACKET || indices.iter().any(|index| routes[*index as usize].flits != flits)
        {
            return None;
        }
        let list = List { start: order.len() as u32, len: indices.len() as u32 };
        indices.iter().for_each(|index| group_of[*index as usize] = groups.len() as u32);
        order.extend(indices);
        groups.push(Group { pipe, flits, list });
    }
    Some((groups, group_of))
}

/// Sets the length of all runs; the first packet follows the last.
fn count_runs(routes: &mut [Route]) {
    // Twice round, so that runs continue past the end.
    for index in (0..2 * routes.len()).rev() {
        let (this, next) = (index % routes.len(), (index + 1) % routes.len());
        let Route { pipe, flits, run } = routes[next];
        let alike = routes[this].pipe == pipe && routes[this].flits == flits && pipe != PER_PACKET;
        routes[this].run = if alike { (run + 1).min(MAX_RUN) } else { 1 };
    }
    if routes.iter().all(|route| route.run > 1) {
        // All alike: the run is endless.
        routes.iter_mut().for_each(|route| route.run = MAX_RUN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_run_ends_at_a_packet_with_another_route(pipes in proptest::collection::vec(0u32..3, 1..20)) {
            let mut routes: Vec<_> =
                pipes.iter().map(|pipe| Route { pipe: *pipe, flits: 1, run: 0 }).collect();
            count_runs(&mut routes);
            let all = pipes.len();
            for (index, route) in routes.iter().enumerate() {
                let follow = (index..).take(100).take_while(|at| pipes[at % all] == pipes[index]).count();
                if follow == 100 {
                    prop_assert_eq!(route.run, MAX_RUN);
                } else {
                    prop_assert_eq!(route.run as usize, follow);
                }
            }
        }

        #[test]
        fn groups_contain_each_packet_of_a_burst_once_and_in_order(
            pipes in proptest::collection::vec(0u32..4, 1..20), first in 0u32..20, count in 1u32..90,
        ) {
            let all = pipes.len() as u32;
            let first = first % all;
            let routes: Vec<_> =
                pipes.iter().map(|pipe| Route { pipe: *pipe, flits: 1, run: 1 }).collect();
            let mut order: Vec<u32> = (0..all).collect();
            let (groups, group_of) = group(&routes, &mut order).unwrap();
            for (pipe, group) in pipes.iter().zip(&group_of) {
                prop_assert_eq!(groups[*group as usize].pipe, *pipe);
            }
            for group in groups {
                let (at, taken) = group.among(&order, first, count, all);
                let list = group.list.of(&order);
                let grouped = (at..at + taken).map(|place| list[place as usize % list.len()]);
                let burst = (first..first + count).map(|index| index % all);
                let expected = burst.filter(|index| pipes[*index as usize] == group.pipe);
                prop_assert_eq!(grouped.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
            }
        }
    }
}
