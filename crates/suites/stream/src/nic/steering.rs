//! Which pipe a packet goes to.

use crate::wire::traffic::Packet;
use crate::wire::{Coming, Wire};

use super::fallback::{Fallback, Policy};
use super::flow_table::FlowTable;

/// No pipe.
pub(crate) const NONE: u32 = u32::MAX;
/// To be asked anew for every packet.
const ASK: u32 = u32::MAX - 1;

/// The flow table and the fallback, with what they said of each packet of the wire.
///
/// The hardware looks every packet up at no cost to the host. Here a packet that is sent again and again is
/// looked up once for each state of the table.
pub(crate) struct Steering {
    pub(crate) table: FlowTable,
    pub(crate) fallback: Fallback,
    changes: u64,
    known: (u64, u64),
    pipes: Vec<u32>,
}

impl Steering {
    pub(crate) fn new() -> Self {
        Self {
            table: FlowTable::default(),
            fallback: Fallback::default(),
            changes: 0,
            known: (u64::MAX, u64::MAX),
            pipes: Vec::new(),
        }
    }

    /// Table or fallback have changed.
    pub(crate) fn changed(&mut self) {
        self.changes += 1;
    }

    /// Looks up anew where anything has changed; to be called before a burst.
    #[inline(always)]
    pub(crate) fn refresh<W: Wire>(&mut self, wire: &W) {
        let (epoch, packets) = wire.packets();
        if self.known != (self.changes, epoch) {
            self.look_up(packets);
            self.known = (self.changes, epoch);
        }
    }

    #[cold]
    fn look_up(&mut self, packets: &[Packet]) {
        let Self { table, fallback, pipes, .. } = self;
        pipes.clear();
        pipes.extend(packets.iter().map(|packet| match table.steer(&packet.flow, packet.syn) {
            Some(pipe) => pipe,
            None if fallback.policy() == Policy::RoundRobin => ASK,
            None => fallback.pipe(&packet.flow).unwrap_or(NONE),
        }));
    }

    /// The pipe of a packet of the wire.
    #[inline(always)]
    pub(crate) fn pipe(&mut self, index: u32, coming: &impl Coming) -> u32 {
        match self.pipes.get(index as usize) {
            Some(&ASK) => {
                let packet = &coming.packets()[index as usize];
                self.fallback.pipe(&packet.flow).unwrap_or(NONE)
            }
            Some(&pipe) => pipe,
            None => NONE,
        }
    }
}
