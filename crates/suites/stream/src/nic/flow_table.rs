//! The flow table: which pipe a packet goes to.
//!
//! As in the hardware, there are four tables of 2048 entries, each with a hash of its own, so that a rule has
//! four places. Where all four are taken, rules move to other places of theirs until one is free; the
//! published hardware only counts such a collision and loses the rule, and nobody hears of it. It also leaves
//! the protocol out of what it compares, though its interface names five fields; here all five are compared.

use std::collections::VecDeque;
use std::net::Ipv4Addr;

use crate::wire::Flow;
use crate::wire::frame::{TCP, UDP};

#[cfg(test)]
mod tests;

/// Rules that the table has places for. It is full before: a few places in a hundred cannot be reached.
pub const CAPACITY: usize = 8192;

/// Tables, each with one place for a rule.
const TABLES: usize = 4;

/// Places of one table.
const PLACES: usize = CAPACITY / TABLES;

/// No arrangement of the rules has a place for this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the flow table has no place for a rule to {}:{} among {rules} of {CAPACITY}: bind fewer flows",
    flow.destination,
    flow.destination_port
)]
pub struct FlowTableFull {
    /// The rule that was refused.
    pub flow: Flow,
    /// Rules that the table holds.
    pub rules: usize,
}

/// What the NIC looks up for a packet.
///
/// The source is taken for 0 in UDP, and in TCP with SYN set; other protocols are looked up by their
/// destination's address alone. So a rule for UDP, or for new connections, must name source 0 and port 0;
/// one for an open connection must name all five fields, and one for another protocol nothing but the
/// destination: all else, the protocol too, is 0. A rule that names more is never matched.
pub fn looked_up(flow: &Flow, syn: bool) -> Flow {
    let anyone = Flow { source: Ipv4Addr::UNSPECIFIED, source_port: 0, ..*flow };
    match flow.protocol {
        TCP if !syn => *flow,
        TCP | UDP => anyone,
        _ => Flow { destination_port: 0, protocol: 0, ..anyone },
    }
}

/// A rule: packets that are looked up as this flow go to this pipe.
#[derive(Debug, Clone, Copy)]
struct Rule {
    flow: Flow,
    pipe: u32,
}

/// The rules.
#[derive(Debug, Clone)]
pub struct FlowTable {
    /// The four tables, one behind the other.
    places: Vec<Option<Rule>>,
    rules: usize,
    epoch: u64,
}

impl Default for FlowTable {
    fn default() -> Self {
        Self { places: vec![None; CAPACITY], rules: 0, epoch: 0 }
    }
}

impl FlowTable {
    /// Sends packets that are looked up as this flow to a pipe, from now on if they went to another.
    ///
    /// # Errors
    /// Where there is no place for it, however the others move; nothing is changed then.
    pub fn insert(&mut self, flow: Flow, pipe: u32) -> Result<(), FlowTableFull> {
        if let Some(place) = self.place(&flow) {
            if self.places[place].replace(Rule { flow, pipe }).is_none_or(|old| old.pipe != pipe) {
                self.epoch += 1;
            }
            return Ok(());
        }
        let way = self.way_to_free(&flow).ok_or(FlowTableFull { flow, rules: self.rules })?;
        // From the free place back: each rule moves one step, and the last place left is the new rule's.
        for step in way.windows(2) {
            self.places[step[0]] = self.places[step[1]];
        }
        if let Some(first) = way.last() {
            self.places[*first] = Some(Rule { flow, pipe });
        }
        self.rules += 1;
        self.epoch += 1;
        Ok(())
    }

    /// Takes a rule away: the pipe that it named, if there was one.
    pub fn remove(&mut self, flow: &Flow) -> Option<u32> {
        let place = self.place(flow)?;
        let rule = self.places[place].take()?;
        self.rules -= 1;
        self.epoch += 1;
        Some(rule.pipe)
    }

    /// Takes all rules of a pipe away: how many they were.
    pub fn remove_all_of(&mut self, pipe: u32) -> usize {
        self.remove_where(|other| other == pipe)
    }

    /// Takes all rules of some pipes away: how many they were.
    pub fn remove_where(&mut self, goes: impl Fn(u32) -> bool) -> usize {
        let before = self.rules;
        for place in &mut self.places {
            self.rules -= usize::from(place.take_if(|rule| goes(rule.pipe)).is_some());
        }
        let removed = before - self.rules;
        self.epoch += u64::from(removed > 0);
        removed
    }

    /// The pipe of the rule for exactly these fields. For a packet see [`steer`](Self::steer).
    pub fn find(&self, flow: &Flow) -> Option<u32> {
        self.places[self.place(flow)?].map(|rule| rule.pipe)
    }

    /// The pipe that a packet goes to; none where no rule matches it.
    pub fn steer(&self, flow: &Flow, syn: bool) -> Option<u32> {
        self.find(&looked_up(flow, syn))
    }

    /// How many rules there are.
    pub fn len(&self) -> usize {
        self.rules
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rules == 0
    }

    /// It grows whenever a packet might go elsewhere than before, so what was found at an epoch holds in it.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Where the rule for a flow lies.
    fn place(&self, flow: &Flow) -> Option<usize> {
        places_of(flow)
            .into_iter()
            .find(|at| self.places[*at].is_some_and(|rule| rule.flow == *flow))
    }

    /// The shortest way from a free place back to one of the flow's: each place's rule can move to the one
    /// before it. It is looked for in the whole table, so where there is none no arrangement exists.
    fn way_to_free(&self, flow: &Flow) -> Option<Vec<usize>> {
        /// How a place was reached.
        #[derive(Clone, Copy, PartialEq)]
        enum Reached {
            Not,
            First,
            From(usize),
        }
        let mut reached = vec![Reached::Not; CAPACITY];
        let mut next = VecDeque::new();
        for place in places_of(flow) {
            reached[place] = Reached::First;
            next.push_back(place);
        }
        while let Some(place) = next.pop_front() {
            let Some(rule) = &self.places[place] else {
                let back = |at: &usize| match reached[*at] {
                    Reached::From(from) => Some(from),
                    Reached::First | Reached::Not => None,
                };
                return Some(std::iter::successors(Some(place), back).collect());
            };
            for other in places_of(&rule.flow) {
                if reached[other] == Reached::Not {
                    reached[other] = Reached::From(place);
                    next.push_back(other);
                }
            }
        }
        None
    }
}

/// The places that a rule may lie in: one in each table.
fn places_of(flow: &Flow) -> [usize; TABLES] {
    std::array::from_fn(|table| table * PLACES + hash(flow, table as u32) as usize % PLACES)
}

/// The last mix of Bob Jenkins's lookup3, which is in the public domain and which the hardware uses too,
/// over three words of a flow; the table, and the protocol, are in the words that it begins with.
fn hash(flow: &Flow, table: u32) -> u32 {
    let begin = 0xdead_beef + 12 + (u32::from(flow.protocol) << 8) + table;
    let ports = u32::from(flow.source_port) << 16 | u32::from(flow.destination_port);
    let mut a = begin.wrapping_add(flow.destination.to_bits());
    let mut b = begin.wrapping_add(ports);
    let mut c = begin.wrapping_add(flow.source.to_bits());
    c = (c ^ b).wrapping_sub(b.rotate_left(14));
    a = (a ^ c).wrapping_sub(c.rotate_left(11));
    b = (b ^ a).wrapping_sub(a.rotate_left(25));
    c = (c ^ b).wrapping_sub(b.rotate_left(16));
    a = (a ^ c).wrapping_sub(c.rotate_left(4));
    b = (b ^ a).wrapping_sub(a.rotate_left(14));
    (c ^ b).wrapping_sub(b.rotate_left(24))
}
