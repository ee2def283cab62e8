//! Which pipe a packet goes to.

use std::collections::BTreeMap;

use crate::wire::traffic::Packet;
use crate::wire::{List, packet};

use super::fallback::{Fallback, Policy};
use super::flow_table::FlowTable;

/// No pipe.
pub(crate) const NONE: u32 = u32::MAX;
/// To be asked anew for every packet.
const ASK: u32 = u32::MAX - 1;
/// Packets that one run has at most.
const MAX_RUN: u32 = 1 << 16;

/// Where packets go, from one of them on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Route {
    /// The pipe, or [`NONE`].
    pub(crate) pipe: u32,
    /// Flits of each packet.
    pub(crate) flits: u32,
    /// Packets, one after the other, that go there and have as many flits.
    pub(crate) run: u32,
}

/// All packets of the wire that go to one pipe, where they have as many flits each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group {
    pub(crate) pipe: u32,
    pub(crate) flits: u32,
    pub(crate) list: List,
}

impl Group {
    /// Of so many packets of the wire, from an index on: those that go there, as a place in the list and a
    /// count.
    #[inline(always)]
    pub(crate) fn among(&self, order: &[u32], first: u32, count: u32, all: u32) -> (u32, u32) {
        let list = self.list.of(order);
        let before = |index: u32| match list {
            [one] => u32::from(*one < index),
            list => list.partition_point(|other| *other < index) as u32,
        };
        let (rounds, rest) = (count / all, count % all);
        let (at, end) = (before(first), first + rest);
        let in_rest =
            if end <= all { before(end) - at } else { self.list.len - at + before(end - all) };
        (at, rounds * self.list.len + in_rest)
    }
}

/// The flow table and the fallback, with what they said of each packet of the wire.
///
/// The hardware looks every packet up at no cost to the host. Here a packet that is sent again and again is
/// looked up once for each state of the table.
#[derive(Default)]
pub(crate) struct Steering {
    pub(crate) table: FlowTable,
    pub(crate) fallback: Fallback,
    changes: u64,
    known: Option<(u64, u64)>,
    routes: Vec<Route>,
    groups: Vec<Group>,
    /// All packets in order, and then those of each group.
    order: Vec<u32>,
}

impl Steering {
    /// Table or fallback have changed.
    pub(crate) fn changed(&mut self) {
        self.changes += 1;
    }

    /// Looks the wire's packets, whose number this is, up anew where anything has changed; to be called
    /// for a burst, so that thousands of rules that are set before it cost one look.
    #[inline(always)]
    pub(crate) fn refresh(&mut self, epoch: u64, packets: &[Packet]) {
        if self.known != Some((self.changes, epoch)) {
            self.look_up(packets);
            self.known = Some((self.changes, epoch));
        }
    }

    #[cold]
    fn look_up(&mut self, packets: &[Packet]) {
        let Self { table, fallback, routes, groups, order, .. } = self;
        routes.clear();
        routes.extend(packets.iter().map(|packet| Route {
            pipe: match table.steer(&packet.flow, packet.syn) {
                Some(pipe) => pipe,
                None if fallback.policy() == Policy::RoundRobin => ASK,
                None => fallback.pipe(&packet.flow).unwrap_or(NONE),
            },
            flits: packet::flits(usize::from(packet.length)) as u32,
            run: 1,
        }));
        count_runs(routes);
        order.clear();
        order.extend(0..packets.len() as u32);
        *groups = group(routes, order).unwrap_or_default();
    }

    /// All packets of the wire, a group for each pipe; none where that is not known beforehand.
    #[inline(always)]
    pub(crate) fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// What the lists of groups are of; it begins with all packets in order.
    #[inline(always)]
    pub(crate) fn order(&self) -> &[u32] {
        &self.order
    }

    /// Where the wire's packets go from this index on.
    #[inline(always)]
    pub(crate) fn route(&mut self, index: u32, packets: &[Packet]) -> Route {
        let route = self.routes[index as usize];
        if route.pipe == ASK {
            let flow = &packets[index as usize].flow;
            return Route { pipe: self.fallback.pipe(flow).unwrap_or(NONE), ..route };
        }
        route
    }
}

/// Groups packets by their pipes, and adds their lists to the order; none where a pipe gets packets of
/// different flits, or where it is not known which it is.
fn group(routes: &[Route], order: &mut Vec<u32>) -> Option<Vec<Group>> {
    let mut by_pipe: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (route, index) in routes.iter().zip(0..) {
        by_pipe.entry(route.pipe).or_default().push(index);
    }
    let mut groups = Vec::new();
    for (pipe, indices) in by_pipe {
        let flits = routes[indices[0] as usize].flits;
        if pipe == ASK || indices.iter().any(|index| routes[*index as usize].flits != flits) {
            return None;
        }
        let list = List { start: order.len() as u32, len: indices.len() as u32 };
        order.extend(indices);
        groups.push(Group { pipe, flits, list });
    }
    Some(groups)
}

/// Counts how many packets follow each that go to the same place, the first after the last.
fn count_runs(routes: &mut [Route]) {
    // Twice round, so that the last know of the first.
    for index in (0..2 * routes.len()).rev() {
        let (this, next) = (index % routes.len(), (index + 1) % routes.len());
        let Route { pipe, flits, run } = routes[next];
        let alike = routes[this].pipe == pipe && routes[this].flits == flits && pipe != ASK;
        routes[this].run = if alike { (run + 1).min(MAX_RUN) } else { 1 };
    }
    if routes.iter().all(|route| route.run > 1) {
        // All alike, and so without end.
        routes.iter_mut().for_each(|route| route.run = MAX_RUN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_run_ends_where_a_packet_goes_elsewhere(pipes in proptest::collection::vec(0u32..3, 1..20)) {
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
        fn groups_take_each_packet_of_a_burst_once_and_in_order(
            pipes in proptest::collection::vec(0u32..4, 1..20), first in 0u32..20, count in 1u32..90,
        ) {
            let all = pipes.len() as u32;
            let first = first % all;
            let routes: Vec<_> =
                pipes.iter().map(|pipe| Route { pipe: *pipe, flits: 1, run: 1 }).collect();
            let mut order: Vec<u32> = (0..all).collect();
            for group in group(&routes, &mut order).unwrap() {
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
