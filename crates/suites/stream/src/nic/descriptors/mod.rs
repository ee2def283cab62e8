//! Descriptors: each packet has a buffer of its own, and a descriptor in a ring that says where it lies.
//!
//! The program fills a ring of descriptors with empty buffers; the NIC writes each packet to the next and says
//! so in the descriptor. To send, the program fills another ring with descriptors of packets. This is what
//! DPDK's drivers and the kernel's have of a NIC, and what pipes are compared with.

mod queue;
mod receive;
mod registers;
mod transmit;

use std::collections::VecDeque;

use super::descriptor::PER_LINE;
use super::doorbells::DoorbellReceiver;
use super::engine::{Engine, EngineContext, PairDoorbells};
use super::interface_config::InterfaceConfig;
use super::region::{ClientId, Region};
use super::register_writes::Registers;
use super::thread::ticks;
use crate::wire::Wire;
use crate::wire::vector::Vector;
use queue::{DescriptorRing, Queue, Window};
use receive::{Places, Written};
use transmit::Leaving;

/// The NIC's side of descriptors.
pub struct Descriptors {
    /// Descriptors of each RX ring, a power of two, less one.
    rx_mask: u32,
    /// Descriptors of each TX ring, a power of two, less one.
    tx_mask: u32,
    pairs: Vec<Option<DoorbellReceiver>>,
    queues: Vec<Queue>,
    /// Queues of whose packets the program is to be told at the end of the turn.
    due: Vec<u32>,
    /// What programs are told of packets, on its way, where transfers are modelled.
    under_way: VecDeque<Written>,
    /// Queues with something to send.
    sending: Vec<u32>,
    /// None while it is in use.
    places: Option<Places>,
    leaving: Leaving,
}

// SAFETY: the pointers lead into registered memory, which only the thread that has the engine uses.
unsafe impl Send for Descriptors {}

impl Descriptors {
    /// No queue yet. Each will have so many descriptors in its RX ring and in its TX ring, both powers of two
    /// of at least a line.
    pub fn new(rx: u32, tx: u32) -> Self {
        let sound = |size: u32| size.is_power_of_two() && size >= PER_LINE as u32;
        assert!(sound(rx) && sound(tx), "powers of two, 4 at least");
        Self {
            rx_mask: rx - 1,
            tx_mask: tx - 1,
            pairs: Vec::new(),
            queues: Vec::new(),
            due: Vec::new(),
            under_way: VecDeque::new(),
            sending: Vec::new(),
            places: Some(Places::default()),
            leaving: Leaving::default(),
        }
    }
}

impl Engine for Descriptors {
    fn config(&self) -> InterfaceConfig {
        InterfaceConfig::Descriptors { rx: self.rx_mask + 1, tx: self.tx_mask + 1 }
    }

    fn attach(&mut self, pair: u32, doorbells: PairDoorbells) {
        let index = pair as usize;
        if self.pairs.len() <= index {
            self.pairs.resize_with(index + 1, || None);
        }
        self.pairs[index] = Some(doorbells.0);
    }

    fn detach(&mut self, pair: u32, nic: &mut EngineContext) {
        self.drain_pair(pair as usize, ticks(), nic);
        for id in 0..self.queues.len() as u32 {
            if self.queues[id as usize].pair == Some(pair) {
                self.close(id, nic);
            }
        }
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
        let Some(queue) = self.queues.get(id as usize) else { return };
        if let Some(pair) = queue.pair {
            self.drain_pair(pair as usize, now, nic);
        }
        self.close(id, nic);
    }

    fn remove_region(&mut self, region: &Region, nic: &mut EngineContext) {
        for id in 0..self.queues.len() as u32 {
            let queue = &mut self.queues[id as usize];
            queue.window = Window::default();
            if region.has(queue.tx.descriptors) {
                queue.tx = DescriptorRing::default();
            }
            if region.has(queue.rx.descriptors) {
                queue.rx = DescriptorRing::default();
                self.forget_packets(id);
                nic.unbind(id);
            }
        }
    }

    #[inline(always)]
    fn transmit<W: Wire>(&mut self, now: u64, nic: &mut EngineContext, wire: &mut W) {
        self.serve_all(now, nic, wire);
    }

    #[inline(always)]
    fn receive<V: Vector, W: Wire>(&mut self, now: u64, nic: &mut EngineContext, wire: &mut W) {
        self.take_packets::<V, W>(now, nic, wire);
        self.tell::<V>(now, nic);
    }
}
