//! Transmitting: from buffers to the wire.

use std::sync::atomic::Ordering;

use super::super::configuration::Configuration;
use super::super::descriptor::{
    CONFIGURE, DONE, Descriptor, END, KIND, NOTHING, REPORT, RxDescriptor, SEND, sent_bytes,
};
use super::super::engine::{ConfigRefused, EngineContext};
use super::super::layout::FLIT;
use super::super::notification::{TAKEN, TxNotification};
use super::super::pcie::{MAX_ANNOUNCED, Read};
use super::Descriptors;
use super::queue::{DescriptorRing, Queue, Window};
use crate::wire::packet::{self, MAX_LENGTH, MIN_LENGTH};
use crate::wire::{PacketRef, Wire};

/// Maximum number of descriptors per queue and iteration. Long bursts keep the two cores apart.
const TRANSMISSIONS: u32 = 1024;
/// The same if the rate is limited, which bounds how many are sent too early.
const LIMITED: u32 = 32;

/// The descriptors of one burst to send.
pub(super) struct TxBatch {
    /// The packets, in an array of fixed size, as for received ones.
    refs: Box<[PacketRef]>,
    /// Number of packets.
    packets: usize,
    /// Number of their flits.
    flits: u64,
    /// Reads of the packets.
    reads: Read,
    /// Slots of descriptors to report as done.
    reports: Vec<u32>,
    /// Kind and address of descriptors that are not packets.
    others: Vec<(u64, u64)>,
}

impl DescriptorRing<Descriptor> {
    /// Reads the descriptors of packets to send up to a tail, and the packets.
    #[inline(always)]
    pub(super) fn announce(&self, tail: u32, mask: u32, nic: &mut EngineContext) {
        let from = self.tail.latest();
        let count = tail.wrapping_sub(from) & mask;
        nic.read(u64::from(count) * size_of::<Descriptor>() as u64);
        if nic.link.is_some() {
            for index in 0..count.min(MAX_ANNOUNCED) {
                // SAFETY: the ring exists, because its tail is written, and has `mask + 1` descriptors.
                let descriptor = unsafe { self.at(from.wrapping_add(index) & mask) };
                let bytes = sent_bytes(descriptor.word.load(Ordering::Relaxed));
                nic.read_ahead(Read::of_flits(packet::flits(bytes as usize) as u64));
            }
        }
    }
}

impl Default for TxBatch {
    fn default() -> Self {
        let none = PacketRef { start: std::ptr::null(), bytes: 0 };
        let refs = vec![none; TRANSMISSIONS as usize].into();
        Self {
            refs,
            packets: 0,
            flits: 0,
            reads: Read::default(),
            reports: Vec::new(),
            others: Vec::new(),
        }
    }
}

impl TxBatch {
    /// Reads descriptors from `slot` on, up to the first that is not a packet or whose buffer is outside the window.
    /// Returns their number.
    #[inline(always)]
    fn read(&mut self, run: &[Descriptor], slot: u32, window: Window) -> usize {
        let refs = &mut self.refs[self.packets..];
        let (mut read, mut flits, mut reads) = (0, 0, self.reads);
        for ((descriptor, entry), slot) in run.iter().zip(refs).zip(slot..) {
            let word = descriptor.word.load(Ordering::Relaxed);
            let buffer = window.buffer(descriptor.address.load(Ordering::Relaxed));
            let Some(start) = buffer.filter(|_| is_frame(word)) else { break };
            let bytes = sent_bytes(word);
            *entry = PacketRef { start, bytes };
            let its_flits = packet::flits(bytes as usize);
            flits += its_flits;
            reads.add(Read::of_flits(its_flits as u64));
            read += 1;
            if word & REPORT != 0 {
                self.reports.push(slot);
            }
        }
        self.packets += read;
        self.flits += flits as u64;
        self.reads = reads;
        read
    }

    /// Returns whether a descriptor waits for the next iteration: only one configuration request is executed per
    /// iteration, and none if the NIC is busy with one.
    #[cold]
    fn must_wait(&self, descriptor: &Descriptor, now: u64, nic: &EngineContext) -> bool {
        let kind = descriptor.word.load(Ordering::Relaxed) & KIND;
        let configures = self.others.iter().any(|(kind, _)| *kind == CONFIGURE);
        kind == CONFIGURE && (configures || nic.is_busy(now))
    }

    /// Reads a single descriptor of any kind.
    #[cold]
    fn read_other(
        &mut self,
        descriptor: &Descriptor,
        slot: u32,
        queue: &mut Queue<impl RxDescriptor>,
        nic: &EngineContext,
    ) {
        let word = descriptor.word.load(Ordering::Relaxed);
        let address = descriptor.address.load(Ordering::Relaxed);
        if word & REPORT != 0 {
            self.reports.push(slot);
        }
        let bytes = sent_bytes(word);
        let start = queue.window.find(queue.pair, address, bytes as usize, nic);
        let Some(start) = start.filter(|_| is_frame(word)) else {
            self.others.push((word & KIND, address));
            return;
        };
        self.refs[self.packets] = PacketRef { start, bytes };
        self.packets += 1;
        let flits = packet::flits(bytes as usize);
        self.flits += flits as u64;
        self.reads.add(Read::of_flits(flits as u64));
    }
}

/// Returns whether a descriptor is a whole frame to send.
#[inline(always)]
fn is_frame(word: u64) -> bool {
    let length = MIN_LENGTH..=MAX_LENGTH;
    word & (KIND | END) == SEND | END && length.contains(&(sent_bytes(word) as usize))
}

impl<D: RxDescriptor> Descriptors<D> {
    /// Serves all queues with descriptors to send.
    #[inline(always)]
    pub(super) fn serve_all<W: Wire>(&mut self, now: u64, nic: &mut EngineContext, wire: &mut W) {
        let mut index = 0;
        while let Some(id) = self.sending.get(index).copied() {
            let queue = &mut self.queues[id as usize];
            if queue.pair.is_some_and(|pair| nic.is_throttled(pair, now)) {
                index += 1;
                continue;
            }
            self.serve(id, now, nic, wire);
            let queue = &mut self.queues[id as usize];
            if queue.tx.tail.is_settled() && queue.tx.head == queue.tx.tail.known(now) {
                queue.sends = false;
                self.sending.swap_remove(index);
            } else {
                index += 1;
            }
        }
    }

    /// Serves descriptors of one queue.
    #[inline(always)]
    fn serve<W: Wire>(&mut self, id: u32, now: u64, nic: &mut EngineContext, wire: &mut W) {
        let queue = &mut self.queues[id as usize];
        let waiting = queue.tx.tail.known(now).wrapping_sub(queue.tx.head) & self.tx_mask;
        let is_limited = queue.pair.is_some_and(|pair| nic.is_limited(pair));
        let count = waiting.min(if is_limited { LIMITED } else { TRANSMISSIONS });
        let batch = &mut self.tx_batch;
        let (mut left, mut waits) = (count, 0);
        while left > 0 {
            // SAFETY: the ring exists, because it has descriptors to send.
            let run = unsafe { queue.tx.run(left, self.tx_mask) };
            let mut read = batch.read(run, queue.tx.head, queue.window);
            if let Some(other) = run.get(read) {
                if batch.must_wait(other, now, nic) {
                    waits = left - read as u32;
                } else {
                    batch.read_other(other, queue.tx.head + read as u32, queue, nic);
                    read += 1;
                }
            }
            queue.tx.head = (queue.tx.head + read as u32) & self.tx_mask;
            left -= read as u32 + waits;
        }
        let count = count - waits;
        let refs = &batch.refs[..batch.packets];
        // SAFETY: registered memory of valid frame lengths, which belongs to the NIC until a descriptor is reported as
        // done.
        unsafe { wire.on_transmit_scattered(refs) };
        nic.counters.out_packets += refs.len() as u64;
        nic.counters.flits_read += batch.flits;
        nic.counters.count_read(std::mem::take(&mut batch.reads));
        nic.counters.transmissions += u64::from(count);
        if let Some(pair) = queue.pair {
            nic.count_sent(pair, batch.flits, now);
        }
        (batch.packets, batch.flits) = (0, 0);
        for (kind, address) in std::mem::take(&mut batch.others) {
            self.execute(id, kind, address, now, nic);
        }
        let queue = &self.queues[id as usize];
        nic.write(self.tx_batch.reports.len() as u64, size_of::<Descriptor>() as u64);
        for slot in self.tx_batch.reports.drain(..) {
            // SAFETY: the slot belongs to the NIC until its descriptor is reported as done.
            unsafe { queue.tx.at(slot) }.word.store(DONE, Ordering::Release);
        }
    }

    /// Executes a descriptor that is not a packet.
    #[cold]
    fn execute(&mut self, id: u32, kind: u64, address: u64, now: u64, nic: &mut EngineContext) {
        if kind == NOTHING {
            return;
        }
        let Some(pair) = self.queues[id as usize].pair else { return };
        let request = (kind == CONFIGURE && address.is_multiple_of(FLIT as u64))
            .then(|| nic.resolve_dma(pair, address, FLIT))
            .flatten()
            // SAFETY: registered memory, aligned to a flit; all fields are atomic.
            .map(|start| unsafe { &*start.cast::<TxNotification>() });
        let configuration = request.and_then(|request| Configuration::of(request.get_words()));
        let done = match configuration.filter(Configuration::is_possible) {
            Some(Configuration::Bind { flow, pipe })
                if self.queues.get(pipe as usize).is_some_and(|queue| queue.pair == Some(pair)) =>
            {
                nic.bind(pair, flow, pipe, now)
            }
            Some(other) => nic.configure(pair, other),
            None => {
                nic.counters.refused += 1;
                Ok(())
            }
        };
        let Some(request) = request else { return };
        match done {
            Ok(()) => {}
            Err(ConfigRefused::TableFull(rules)) => request.refuse(rules),
            Err(ConfigRefused::Taken) => request.refuse(TAKEN),
        }
    }
}
