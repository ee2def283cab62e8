//! The flow table: rules that direct flows to pipes.
//!
//! As in the hardware there are four tables of 2048 entries with separate hashes, so each rule has four candidate
//! slots. If all four are taken, rules move to their other slots until one is free (cuckoo hashing). The published
//! hardware only counts such a collision and loses the rule without notice. It also omits the protocol from the
//! comparison, though its interface names five fields; here all five are compared.

use std::collections::VecDeque;
use std::net::Ipv4Addr;

use crate::wire::Flow;
use crate::wire::frame::{TCP, UDP};

#[cfg(test)]
mod tests;

/// Number of slots. A few percent of them cannot be filled.
pub const CAPACITY: usize = 8192;

/// Tables, each with one slot for a rule.
const TABLES: usize = 4;

/// Slots per table.
const SLOTS: usize = CAPACITY / TABLES;

/// The flow table has no space for a rule, however the others move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the flow table has no space for a rule to {}:{} besides {rules} of {CAPACITY}; bind fewer flows",
    flow.destination,
    flow.destination_port
)]
pub struct FlowTableFull {
    /// The rule that was refused.
    pub flow: Flow,
    /// Number of rules in the table.
    pub rules: usize,
}

/// Returns the fields that the NIC looks up for a packet.
///
/// The source counts as 0 in UDP, and in TCP with SYN set; other protocols are looked up by the destination address
/// only. So a rule for UDP, or for new connections, must have source address and port 0; a rule for an open connection
/// must have all five fields; and a rule for another protocol must have only the destination address, with all other
/// fields 0, including the protocol. A rule with more fields is never matched.
pub fn looked_up(flow: &Flow, syn: bool) -> Flow {
    let any_source = Flow { source: Ipv4Addr::UNSPECIFIED, source_port: 0, ..*flow };
    match flow.protocol {
        TCP if !syn => *flow,
        TCP | UDP => any_source,
        _ => Flow { destination_port: 0, protocol: 0, ..any_source },
    }
}

/// A rule: packets looked up as this flow go to this pipe.
#[derive(Debug, Clone, Copy)]
struct Rule {
    flow: Flow,
    pipe: u32,
}

/// A flow table.
#[derive(Debug, Clone)]
pub struct FlowTable {
    /// The four tables, concatenated.
    slots: Vec<Option<Rule>>,
    rules: usize,
    epoch: u64,
}

impl Default for FlowTable {
    fn default() -> Self {
        Self { slots: vec![None; CAPACITY], rules: 0, epoch: 0 }
    }
}

impl FlowTable {
    /// Directs packets looked up as `flow` to a pipe, replacing an earlier rule for the flow.
    ///
    /// # Errors
    /// Returns [`FlowTableFull`] if no arrangement of the rules has space for it; the table is unchanged.
    pub fn insert(&mut self, flow: Flow, pipe: u32) -> Result<(), FlowTableFull> {
        if let Some(slot) = self.slot(&flow) {
            if self.slots[slot].replace(Rule { flow, pipe }).is_none_or(|old| old.pipe != pipe) {
                self.epoch += 1;
            }
            return Ok(());
        }
        let path = self.path_to_free(&flow).ok_or(FlowTableFull { flow, rules: self.rules })?;
        // From the free slot back: each rule moves one step, which frees the last slot for the new rule.
        for step in path.windows(2) {
            self.slots[step[0]] = self.slots[step[1]];
        }
        if let Some(first) = path.last() {
            self.slots[*first] = Some(Rule { flow, pipe });
        }
        self.rules += 1;
        self.epoch += 1;
        Ok(())
    }

    /// Removes a rule. Returns its pipe, if there was one.
    pub fn remove(&mut self, flow: &Flow) -> Option<u32> {
        let slot = self.slot(flow)?;
        let rule = self.slots[slot].take()?;
        self.rules -= 1;
        self.epoch += 1;
        Some(rule.pipe)
    }

    /// Removes all rules of a pipe. Returns their number.
    pub fn remove_all_of(&mut self, pipe: u32) -> usize {
        self.remove_where(|other| other == pipe)
    }

    /// Removes all rules whose pipe matches. Returns their number.
    pub fn remove_where(&mut self, matches: impl Fn(u32) -> bool) -> usize {
        let before = self.rules;
        for slot in &mut self.slots {
            self.rules -= usize::from(slot.take_if(|rule| matches(rule.pipe)).is_some());
        }
        let removed = before - self.rules;
        self.epoch += u64::from(removed > 0);
        removed
    }

    /// Returns the pipe of the rule with exactly these fields. For a packet see [`steer`](Self::steer).
    pub fn find(&self, flow: &Flow) -> Option<u32> {
        self.slots[self.slot(flow)?].map(|rule| rule.pipe)
    }

    /// Returns the pipe of a packet, or `None` if no rule matches it.
    pub fn steer(&self, flow: &Flow, syn: bool) -> Option<u32> {
        self.find(&looked_up(flow, syn))
    }

    /// Returns the number of rules.
    pub fn len(&self) -> usize {
        self.rules
    }

    /// Returns whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules == 0
    }

    /// Returns a number that increases with every change of the rules, for caches of lookups.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the slot of the rule for a flow.
    fn slot(&self, flow: &Flow) -> Option<usize> {
        slots_of(flow)
            .into_iter()
            .find(|slot| self.slots[*slot].is_some_and(|rule| rule.flow == *flow))
    }

    /// Returns the shortest path from a free slot back to one of the flow's, on which each rule can move to the slot
    /// before its own. The search covers the whole table, so `None` means that no arrangement exists.
    fn path_to_free(&self, flow: &Flow) -> Option<Vec<usize>> {
        /// How the search reached a slot.
        #[derive(Clone, Copy, PartialEq)]
        enum Reached {
            Not,
            First,
            From(usize),
        }
        let mut reached = vec![Reached::Not; CAPACITY];
        let mut next = VecDeque::new();
        for slot in slots_of(flow) {
            reached[slot] = Reached::First;
            next.push_back(slot);
        }
        while let Some(slot) = next.pop_front() {
            let Some(rule) = &self.slots[slot] else {
                let back = |at: &usize| match reached[*at] {
                    Reached::From(from) => Some(from),
                    Reached::First | Reached::Not => None,
                };
                return Some(std::iter::successors(Some(slot), back).collect());
            };
            for other in slots_of(&rule.flow) {
                if reached[other] == Reached::Not {
                    reached[other] = Reached::From(slot);
                    next.push_back(other);
                }
            }
        }
        None
    }
}

/// Returns the candidate slots of a rule, one in each table.
fn slots_of(flow: &Flow) -> [usize; TABLES] {
    std::array::from_fn(|table| table * SLOTS + hash(flow, table as u32) as usize % SLOTS)
}

/// Hashes a flow with the final mix of Bob Jenkins's lookup3, which is in the public domain and which the hardware
/// uses too. The initial words depend on the table and the protocol.
fn hash(flow: &Flow, table: u32) -> u32 {
    let init = 0xdead_beef + 12 + (u32::from(flow.protocol) << 8) + table;
    let ports = u32::from(flow.source_port) << 16 | u32::from(flow.destination_port);
    let mut a = init.wrapping_add(flow.destination.to_bits());
    let mut b = init.wrapping_add(ports);
    let mut c = init.wrapping_add(flow.source.to_bits());
    c = (c ^ b).wrapping_sub(b.rotate_left(14));
    a = (a ^ c).wrapping_sub(c.rotate_left(11));
    b = (b ^ a).wrapping_sub(a.rotate_left(25));
    c = (c ^ b).wrapping_sub(b.rotate_left(16));
    a = (a ^ c).wrapping_sub(c.rotate_left(4));
    b = (b ^ a).wrapping_sub(a.rotate_left(14));
    (c ^ b).wrapping_sub(b.rotate_left(24))
}
