//! Pipes: packets lie one behind the other in a ring, and a notification says how far the ring has grown.
//!
//! A pipe has one bit of state, whether the program has been notified of it and has not answered. Packets
//! for a pipe in that state are only written: the program learns of them when it moves the head of the pipe
//! and the NIC sees that there is more. So there are as many notifications as the program can take.

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
use super::region::{ClientId, Region};
use super::register_writes::Registers;
use super::thread::ticks;
use crate::wire::Wire;
use crate::wire::vector::Vector;
use pair::{Pair, UnderWay};
use receive::Places;
use timestamp::Timestamp;

/// The state of one pipe.
#[derive(Debug, Clone, Copy)]
struct Pipe {
    /// Where its ring lies; null where there is no such pipe.
    ring: *mut u8,
    /// Up to where the program has read, flits.
    head: u32,
    /// Up to where packets have been written, flits.
    tail: u32,
    /// The notification buffers of the core that has it.
    pair: u32,
    /// Whether the program has been notified and has not answered.
    notified: bool,
    /// Whether a notification will be written at the end of this turn.
    due: bool,
    /// The lower half of its address, until the upper one comes.
    low: u32,
}

/// No core has it.
const NOBODY: u32 = u32::MAX;

const ABSENT: Pipe = Pipe {
    ring: std::ptr::null_mut(),
    head: 0,
    tail: 0,
    pair: NOBODY,
    notified: false,
    due: false,
    low: 0,
};

/// The NIC's side of pipes.
pub struct Pipes {
    notify: Notify,
    /// Flits of each ring, a power of two, less one.
    mask: u32,
    pipes: Box<[Pipe]>,
    /// Notifications of each buffer, a power of two, less one.
    notifications_mask: u32,
    pairs: Vec<Option<Pair>>,
    /// Pipes of which a program is to be notified at the end of the turn.
    due: Vec<u32>,
    places: Places,
    under_way: UnderWay,
    timestamp: Option<Owned<Timestamp>>,
}

// SAFETY: the pointers lead into registered memory, which only the thread that has the engine uses.
unsafe impl Send for Pipes {}

impl Pipes {
    /// No pipe yet. Rings of so many flits and buffers of so many notifications, both powers of two.
    pub fn new(notify: Notify, ring_flits: u32, notifications: u32) -> Self {
        assert!(ring_flits.is_power_of_two() && notifications.is_power_of_two(), "powers of two");
        Self {
            notify,
            mask: ring_flits - 1,
            pipes: vec![ABSENT; PIPES as usize].into(),
            notifications_mask: notifications - 1,
            pairs: Vec::new(),
            due: Vec::new(),
            places: Places::default(),
            under_way: UnderWay::default(),
            timestamp: None,
        }
    }
}

impl Pipes {
    /// Some pipes go, with all rules of theirs.
    fn remove_where(&mut self, goes: impl Fn(&Pipe) -> bool, nic: &mut EngineContext) {
        let Self { pipes, due, .. } = self;
        let gone: Vec<_> = pipes.iter().map(|pipe| !pipe.ring.is_null() && goes(pipe)).collect();
        if !gone.contains(&true) {
            return;
        }
        for (pipe, _) in pipes.iter_mut().zip(&gone).filter(|(_, gone)| **gone) {
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
        self.under_way.forget_where(|notifications| notifications.pair == pair);
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
        if let Some(pipe) = self.pipes.get(id as usize).filter(|pipe| pipe.pair != NOBODY) {
            self.drain_pair(pipe.pair as usize, now, nic);
        }
        self.remove(id, nic);
    }

    fn client_gone(&mut self, client: ClientId) {
        self.timestamp.take_if(|of| of.client == client);
    }

    fn remove_region(&mut self, region: &Region, nic: &mut EngineContext) {
        self.remove_where(|pipe| region.has(pipe.ring), nic);
        self.under_way.forget_where(|notifications| region.has(notifications.buffer));
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
        self.take_packets::<V, W>(now, nic, wire);
        self.notify_due(now, nic);
        self.under_way.arrive(now, nic);
    }
}
