//! From buffers to the wire.

use std::sync::atomic::Ordering;

use super::super::configuration::Configuration;
use super::super::descriptor::{
    CONFIGURE, DONE, Descriptor, END, KIND, NOTHING, REPORT, SEND, sent_bytes,
};
use super::super::engine::{ConfigRefused, EngineContext};
use super::super::layout::FLIT;
use super::super::notification::{TAKEN, TxNotification};
use super::Descriptors;
use super::queue::{Queue, Window};
use crate::wire::packet::{self, MAX_LENGTH, MIN_LENGTH};
use crate::wire::{PacketRef, Wire};

/// Descriptors of a queue served in one turn: long bursts keep the two cores apart.
const TRANSMISSIONS: u32 = 1024;
/// The same where the rate is limited: what leaves too early at most.
const LIMITED: u32 = 32;

/// What leaves together.
pub(super) struct Leaving {
    /// Where packets lie, in an array that is never longer or shorter, as for those that come.
    spans: Box<[PacketRef]>,
    /// How many they are.
    packets: usize,
    /// Their flits.
    flits: u64,
    /// Descriptors that are to say that they are done.
    reports: Vec<u32>,
    /// What is in descriptors that send no packet: their kind and address.
    others: Vec<(u64, u64)>,
}

impl Default for Leaving {
    fn default() -> Self {
        let none = PacketRef { start: std::ptr::null(), bytes: 0 };
        let spans = vec![none; TRANSMISSIONS as usize].into();
        Self { spans, packets: 0, flits: 0, reports: Vec::new(), others: Vec::new() }
    }
}

impl Leaving {
    /// Reads descriptors, the first of which is at this place, up to one that is no packet's or whose buffer lies
    /// elsewhere than the last did; how many.
    #[inline(always)]
    fn read(&mut self, run: &[Descriptor], slot: u32, window: Window) -> usize {
        let spans = &mut self.spans[self.packets..];
        let (mut read, mut flits) = (0, 0);
        for ((descriptor, span), slot) in run.iter().zip(spans).zip(slot..) {
            let word = descriptor.word.load(Ordering::Relaxed);
            let buffer = window.buffer(descriptor.address.load(Ordering::Relaxed));
            let Some(start) = buffer.filter(|_| is_frame(word)) else { break };
            let bytes = sent_bytes(word);
            *span = PacketRef { start, bytes };
            flits += packet::flits(bytes as usize);
            read += 1;
            if word & REPORT != 0 {
                self.reports.push(slot);
            }
        }
        self.packets += read;
        self.flits += flits as u64;
        read
    }

    /// Whether a descriptor that is no packet's waits for the next turn: one that configures comes after those
    /// before it, and not where the NIC is busy with such.
    #[cold]
    fn is_to_wait(&self, descriptor: &Descriptor, now: u64, nic: &EngineContext) -> bool {
        let kind = descriptor.word.load(Ordering::Relaxed) & KIND;
        let configures = self.others.iter().any(|(kind, _)| *kind == CONFIGURE);
        kind == CONFIGURE && (configures || nic.is_busy(now))
    }

    /// Reads one that was not read with others.
    #[cold]
    fn read_other(
        &mut self,
        descriptor: &Descriptor,
        slot: u32,
        queue: &mut Queue,
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
        self.spans[self.packets] = PacketRef { start, bytes };
        self.packets += 1;
        self.flits += packet::flits(bytes as usize) as u64;
    }
}

/// Whether a descriptor is of a whole frame to send.
#[inline(always)]
fn is_frame(word: u64) -> bool {
    let length = MIN_LENGTH..=MAX_LENGTH;
    word & (KIND | END) == SEND | END && length.contains(&(sent_bytes(word) as usize))
}

impl Descriptors {
    /// Serves the queues that have something to send.
    #[inline(always)]
    pub(super) fn serve_all<W: Wire>(&mut self, now: u64, nic: &mut EngineContext, wire: &mut W) {
        let mut place = 0;
        while let Some(id) = self.sending.get(place).copied() {
            let queue = &mut self.queues[id as usize];
            if queue.pair.is_some_and(|pair| nic.is_throttled(pair, now)) {
                place += 1;
                continue;
            }
            self.serve(id, now, nic, wire);
            let queue = &mut self.queues[id as usize];
            if queue.tx.tail.is_settled() && queue.tx.head == queue.tx.tail.known(now) {
                queue.sends = false;
                self.sending.swap_remove(place);
            } else {
                place += 1;
            }
        }
    }

    /// Serves descriptors of a queue.
    #[inline(always)]
    fn serve<W: Wire>(&mut self, id: u32, now: u64, nic: &mut EngineContext, wire: &mut W) {
        let queue = &mut self.queues[id as usize];
        let waiting = queue.tx.tail.known(now).wrapping_sub(queue.tx.head) & self.tx_mask;
        let is_limited = queue.pair.is_some_and(|pair| nic.is_limited(pair));
        let count = waiting.min(if is_limited { LIMITED } else { TRANSMISSIONS });
        let leaving = &mut self.leaving;
        let (mut left, mut waits) = (count, 0);
        while left > 0 {
            // SAFETY: the ring is there, for it has descriptors.
            let run = unsafe { queue.tx.run(left, self.tx_mask) };
            let mut read = leaving.read(run, queue.tx.head, queue.window);
            if let Some(other) = run.get(read) {
                if leaving.is_to_wait(other, now, nic) {
                    waits = left - read as u32;
                } else {
                    leaving.read_other(other, queue.tx.head + read as u32, queue, nic);
                    read += 1;
                }
            }
            queue.tx.head = (queue.tx.head + read as u32) & self.tx_mask;
            left -= read as u32 + waits;
        }
        let count = count - waits;
        let spans = &leaving.spans[..leaving.packets];
        // SAFETY: registered memory of as many bytes as frames may have, which the program leaves to the NIC
        // until a descriptor says that it is done.
        unsafe { wire.on_transmit_scattered(spans) };
        nic.counters.out_packets += spans.len() as u64;
        nic.counters.flits_read += leaving.flits;
        nic.counters.transmissions += u64::from(count);
        if let Some(pair) = queue.pair {
            nic.count_sent(pair, leaving.flits, now);
        }
        (leaving.packets, leaving.flits) = (0, 0);
        for (kind, address) in std::mem::take(&mut leaving.others) {
            self.execute(id, kind, address, now, nic);
        }
        let queue = &self.queues[id as usize];
        for slot in self.leaving.reports.drain(..) {
            // SAFETY: as above.
            unsafe { queue.tx.at(slot) }.word.store(DONE, Ordering::Release);
        }
    }

    /// Does what a descriptor says that sends no packet.
    #[cold]
    fn execute(&mut self, id: u32, kind: u64, address: u64, now: u64, nic: &mut EngineContext) {
        if kind == NOTHING {
            return;
        }
        let Some(pair) = self.queues[id as usize].pair else { return };
        let asked = (kind == CONFIGURE && address.is_multiple_of(FLIT as u64))
            .then(|| nic.resolve_dma(pair, address, FLIT))
            .flatten()
            // SAFETY: registered memory, aligned as it must be; all its fields are atomic.
            .map(|place| unsafe { &*place.cast::<TxNotification>() });
        let configuration = asked.and_then(|asked| Configuration::of(asked.get_words()));
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
        let Some(asked) = asked else { return };
        match done {
            Ok(()) => {}
            Err(ConfigRefused::TableFull(rules)) => asked.refuse(rules),
            Err(ConfigRefused::Taken) => asked.refuse(TAKEN),
        }
    }
}
