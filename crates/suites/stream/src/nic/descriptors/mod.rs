//! The engine for descriptors: each packet has a separate buffer and a descriptor in a ring that points to it.
//!
//! The host fills a receive ring with descriptors of empty buffers; the NIC writes each packet to the next buffer and
//! reports it in the descriptor. To send, the host fills a transmit ring with descriptors of packets. This is the
//! interface between NICs and the drivers of DPDK and the kernel, with which pipes are compared.

mod queue;
mod receive;
mod registers;
mod transmit;

use std::collections::VecDeque;

use super::descriptor::{PER_LINE, RxDescriptor};
use super::doorbells::DoorbellReceiver;
use super::engine::{Engine, EngineContext, PairDoorbells};
use super::interface_config::InterfaceConfig;
use super::placement::{Placement, RxPlacement};
use super::region::{ClientId, Region};
use super::register_writes::Registers;
use super::thread::ticks;
use crate::wire::vector::Vector;
use crate::wire::{BufferCursor, Wire};
use queue::{DescriptorRing, Queue, Window};
use receive::Report;
use transmit::TxBatch;

/// The engine for descriptors, with those of `D` to receive into.
pub struct Descriptors<D> {
    /// Size of each receive ring, a power of two, minus 1.
    rx_mask: u32,
    /// Size of each transmit ring, a power of two, minus 1.
    tx_mask: u32,
    pairs: Vec<Option<DoorbellReceiver>>,
    queues: Vec<Queue<D>>,
    /// Queues whose packets are to be reported at the end of the iteration.
    due: Vec<u32>,
    /// Delayed reports, if transfers are modelled.
    pending: VecDeque<Report>,
    /// Queues with descriptors to send.
    sending: Vec<u32>,
    /// `None` while in use.
    placement: Option<Placement<BufferCursor>>,
    tx_batch: TxBatch,
}

// SAFETY: the pointers refer to registered memory, which only the thread of the engine uses.
unsafe impl<D> Send for Descriptors<D> {}

impl<D: RxDescriptor> Descriptors<D> {
    /// Creates an engine without queues, for receive rings of `rx` and transmit rings of `tx` descriptors: powers of
    /// two, at least one cache line.
    pub fn new(rx: u32, tx: u32) -> Self {
        let is_valid = |size: u32| size.is_power_of_two() && size >= PER_LINE as u32;
        assert!(is_valid(rx) && is_valid(tx), "powers of two, at least 4");
        Self {
            rx_mask: rx - 1,
            tx_mask: tx - 1,
            pairs: Vec::new(),
            queues: Vec::new(),
            due: Vec::new(),
            pending: VecDeque::new(),
            sending: Vec::new(),
            placement: Some(Placement::scattered()),
            tx_batch: TxBatch::default(),
        }
    }
}

impl<D: RxDescriptor> Engine for Descriptors<D> {
    fn config(&self) -> InterfaceConfig {
        InterfaceConfig::Descriptors { rx: self.rx_mask + 1, tx: self.tx_mask + 1, size: D::SIZE }
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
                self.reset_receive(id);
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
        // SAFETY: the buffers are registered, aligned to a flit, longer than any packet, and belong to the NIC until
        // their descriptors report the packets; the caller has checked that the CPU supports `V`.
        unsafe { self.take_packets::<V, W>(now, nic, wire) };
        self.report::<V>(now, nic);
    }
}
