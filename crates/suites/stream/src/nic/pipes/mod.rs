//! The engine for pipes: packets are contiguous in a ring, and a notification reports the tail of the ring.
//!
//! A pipe has one bit of state: whether the host has been notified and has not answered. Packets for a pipe in that
//! state are only written. The host gets the next notification when it moves the pipe's head and the NIC sees that there
//! are more packets. So there are only as many notifications as the host can process.

mod pair;
mod partial_packet;
mod receive;
mod registers;
mod timestamp;
mod transmit;

use super::engine::{Engine, EngineContext, Owned, PairDoorbells};
use super::interface_config::InterfaceConfig;
pub use super::interface_config::Notify;
use super::layout::{FLIT, PIPES};
use super::placement::{Placement, RxPlacement};
use super::region::{ClientId, Region};
use super::register_writes::Registers;
use super::thread::ticks;
use crate::wire::vector::Vector;
use crate::wire::{RingCursor, Wire};
use pair::{Notifications, Pair, PendingNotifications};
use timestamp::Timestamp;

/// The state of one pipe.
#[derive(Debug, Clone, Copy)]
struct Pipe {
    /// Address of the ring; null if there is no such pipe.
    ring: *mut u8,
    /// Position up to which the host has read, in flits.
    head: u32,
    /// Position up to which packets are written, in flits.
    tail: u32,
    /// The pair to which the pipe belongs.
    pair: u32,
    /// Whether the host has been notified and has not answered.
    notified: bool,
    /// Whether a notification is to be written at the end of this iteration.
    due: bool,
    /// Lower half of the address, until the upper half is written.
    low: u32,
}

/// The pair of pipes that belong to none.
const NO_PAIR: u32 = u32::MAX;

const ABSENT: Pipe = Pipe {
    ring: std::ptr::null_mut(),
    head: 0,
    tail: 0,
    pair: NO_PAIR,
    notified: false,
    due: false,
    low: 0,
};

/// The engine for pipes.
pub struct Pipes {
    notify: Notify,
    /// Size of each ring in flits, a power of two, minus 1.
    mask: u32,
    pipes: Box<[Pipe]>,
    /// Capacity of each notification buffer, a power of two, minus 1.
    notifications_mask: u32,
    pairs: Vec<Option<Pair>>,
    /// Pipes with a notification to write at the end of the iteration.
    due: Vec<u32>,
    /// `None` while in use.
    placement: Option<Placement<RingCursor>>,
    /// Notifications of the packets of a burst, one entry per run, if each packet has one.
    per_packet: Vec<Notifications>,
    /// Next slot of each pair for notifications in the order in which packets arrived.
    next_slots: Vec<u32>,
    pending: PendingNotifications,
    timestamp: Option<Owned<Timestamp>>,
    /// Flits that the hosts have not freed, of all pipes.
    unread: u64,
}

// SAFETY: the pointers refer to registered memory, which only the thread of the engine uses.
unsafe impl Send for Pipes {}

impl Pipes {
    /// Creates an engine without pipes, for rings of `ring_flits` flits and buffers of `notifications`: powers of two.
    pub fn new(notify: Notify, ring_flits: u32, notifications: u32) -> Self {
        assert!(ring_flits.is_power_of_two() && notifications.is_power_of_two(), "powers of two");
        Self {
            notify,
            mask: ring_flits - 1,
            pipes: vec![ABSENT; PIPES as usize].into(),
            notifications_mask: notifications - 1,
            pairs: Vec::new(),
            due: Vec::new(),
            placement: Some(Placement::contiguous()),
            per_packet: Vec::new(),
            next_slots: Vec::new(),
            pending: PendingNotifications::default(),
            timestamp: None,
            unread: 0,
        }
    }
}

impl Pipe {
    /// Returns the flits that the host has not freed, in a ring of `mask + 1` flits.
    #[inline(always)]
    fn unread(&self, mask: u32) -> u64 {
        u64::from(self.tail.wrapping_sub(self.head) & mask)
    }
}

impl Pipes {
    /// Removes all matching pipes with their rules.
    fn remove_where(&mut self, matches: impl Fn(&Pipe) -> bool, nic: &mut EngineContext) {
        let Self { pipes, due, unread, mask, .. } = self;
        let gone: Vec<_> = pipes.iter().map(|pipe| !pipe.ring.is_null() && matches(pipe)).collect();
        if !gone.contains(&true) {
            return;
        }
        for (pipe, _) in pipes.iter_mut().zip(&gone).filter(|(_, gone)| **gone) {
            *unread -= pipe.unread(*mask);
            *pipe = ABSENT;
        }
        due.retain(|id| !gone[*id as usize]);
        nic.steering.table.remove_where(|id| gone.get(id as usize) == Some(&true));
        nic.steering.changed();
    }
}

impl Engine for Pipes {
    fn config(&self) -> InterfaceConfig {
        let ring = (self.mask as usize + 1) * FLIT;
        InterfaceConfig::Pipes {
            notify: self.notify,
            ring,
            notifications: self.notifications_mask + 1,
        }
    }

    fn attach(&mut self, pair: u32, doorbells: PairDoorbells) {
        let index = pair as usize;
        if self.pairs.len() <= index {
            self.pairs.resize_with(index + 1, || None);
        }
        self.pairs[index] = Some(Pair::new(doorbells.0));
    }

    fn detach(&mut self, pair: u32, nic: &mut EngineContext) {
        self.drain_pair(pair as usize, ticks(), nic);
        self.pending.remove_where(|notifications| notifications.pair == pair);
        self.remove_where(|pipe| pipe.pair == pair, nic);
        self.pairs[pair as usize] = None;
    }

    #[inline(always)]
    fn poll_doorbells(&mut self, now: u64, nic: &mut EngineContext) {
        self.process_writes(now, nic);
    }

    fn drain_doorbells(&mut self, client: ClientId, now: u64, nic: &mut EngineContext) {
        self.drain_client(client, now, nic);
    }

    fn remove_queue(&mut self, id: u32, now: u64, nic: &mut EngineContext) {
        if let Some(pipe) = self.pipes.get(id as usize).filter(|pipe| pipe.pair != NO_PAIR) {
            self.drain_pair(pipe.pair as usize, now, nic);
        }
        self.remove(id, nic);
    }

    #[inline(always)]
    fn unread(&self) -> Option<u64> {
        Some(self.unread)
    }

    fn client_gone(&mut self, client: ClientId) {
        self.timestamp.take_if(|of| of.client == client);
    }

    fn remove_region(&mut self, region: &Region, nic: &mut EngineContext) {
        self.remove_where(|pipe| region.has(pipe.ring), nic);
        self.pending.remove_where(|notifications| region.has(notifications.buffer));
        for pair in self.pairs.iter_mut().flatten() {
            if region.has(pair.rx) {
                pair.rx = std::ptr::null_mut();
            }
            if region.has(pair.tx) {
                pair.tx = std::ptr::null_mut();
            }
        }
    }

    #[inline(always)]
    fn transmit<W: Wire>(&mut self, now: u64, nic: &mut EngineContext, wire: &mut W) {
        for pair in 0..self.pairs.len() {
            self.serve(pair, now, nic, wire);
        }
    }

    #[inline(always)]
    fn receive<V: Vector, W: Wire>(&mut self, now: u64, nic: &mut EngineContext, wire: &mut W) {
        // SAFETY: the rings are mapped twice and registered, and the flits from their tails to their heads belong to the
        // NIC; the caller has checked that the CPU supports `V`.
        unsafe { self.take_packets::<V, W>(now, nic, wire) };
        self.notify_due(nic);
        self.pending.write_due(now, nic);
    }
}
