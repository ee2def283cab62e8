//! From buffers to the wire.

use std::sync::atomic::Ordering;

use super::super::configuration::Configuration;
use super::super::engine::Common;
use super::super::layout::FLIT;
use super::super::limit::Limit;
use super::super::notification::TxNotification;
use super::Descriptors;
use super::layout::{CONFIGURE, DONE, END, KIND, NOTHING, REPORT, SEND, sent_bytes};
use crate::wire::packet::{self, LONGEST, SHORTEST};
use crate::wire::{Span, Wire};

/// Descriptors of a queue served in one turn: long bursts keep the two cores apart.
const TRANSMISSIONS: u32 = 1024;
/// The same where the rate is limited: what leaves too early at most.
const LIMITED: u32 = 32;

impl Descriptors {
    /// Serves the queues that have something to send.
    #[inline(always)]
    pub(super) fn serve_all<W: Wire>(&mut self, now: u64, nic: &mut Common, wire: &mut W) {
        let mut place = 0;
        while let Some(id) = self.sending.get(place).copied() {
            if self.limit.as_ref().is_some_and(|limit| limit.holds(now)) {
                return;
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
    fn serve<W: Wire>(&mut self, id: u32, now: u64, nic: &mut Common, wire: &mut W) {
        let (mut spans, mut reports) = std::mem::take(&mut self.leaving);
        let queue = &mut self.queues[id as usize];
        let waiting = queue.tx.tail.known(now).wrapping_sub(queue.tx.head) & self.tx_mask;
        let count = waiting.min(if self.limit.is_some() { LIMITED } else { TRANSMISSIONS });
        let mut flits = 0;
        let mut others = Vec::new();
        for _ in 0..count {
            let slot = queue.tx.head;
            queue.tx.head = (slot + 1) & self.tx_mask;
            // SAFETY: the ring is there, for it has descriptors, and the head within it.
            let descriptor = unsafe { queue.tx.at(slot) };
            let address = descriptor.address.load(Ordering::Relaxed);
            let word = descriptor.word.load(Ordering::Relaxed);
            if word & REPORT != 0 {
                reports.push(slot);
            }
            let bytes = sent_bytes(word);
            let is_frame = word & (KIND | END) == SEND | END
                && (SHORTEST..=LONGEST).contains(&(bytes as usize));
            match queue.window.reach(queue.pair, address, bytes as usize, nic).filter(|_| is_frame)
            {
                Some(start) => {
                    spans.push(Span { start, bytes });
                    flits += packet::flits(bytes as usize) as u64;
                }
                None => {
                    std::hint::cold_path();
                    others.push((word & KIND, address));
                }
            }
        }
        // SAFETY: registered memory of as many bytes as frames may have, which the program leaves to the NIC
        // until a descriptor says that it is done.
        unsafe { wire.leave_apart(&spans) };
        nic.counters.out_packets += spans.len() as u64;
        nic.counters.flits_read += flits;
        nic.counters.transmissions += u64::from(count);
        if let Some(limit) = &mut self.limit {
            limit.leave(flits, now);
        }
        spans.clear();
        for (kind, address) in others {
            self.obey(id, kind, address, nic);
        }
        let queue = &self.queues[id as usize];
        for slot in reports.drain(..) {
            // SAFETY: as above.
            unsafe { queue.tx.at(slot) }.word.store(DONE, Ordering::Release);
        }
        self.leaving = (spans, reports);
    }

    /// Does what a descriptor says that sends no packet.
    #[cold]
    fn obey(&mut self, id: u32, kind: u64, address: u64, nic: &mut Common) {
        if kind == NOTHING {
            return;
        }
        let Some(pair) = self.queues[id as usize].pair else { return };
        let words = (kind == CONFIGURE && address.is_multiple_of(FLIT as u64))
            .then(|| nic.reach(pair, address, FLIT))
            .flatten()
            // SAFETY: registered memory, aligned as it must be; all its fields are atomic.
            .map(|place| unsafe { &*place.cast::<TxNotification>() }.get_words());
        match words.and_then(Configuration::of).filter(Configuration::is_possible) {
            Some(Configuration::Bind { flow, pipe })
                if self.queues.get(pipe as usize).is_some_and(|queue| queue.pair == Some(pair)) =>
            {
                nic.bind(flow, pipe);
            }
            Some(Configuration::Fallback { pipes, round_robin }) => {
                nic.fall_back(pipes, round_robin)
            }
            Some(Configuration::RateLimit { numerator, denominator, enable }) => {
                self.limit = enable.then(|| Limit::new(numerator, denominator, nic.ticks_a_second));
            }
            Some(Configuration::Bind { .. } | Configuration::Timestamp { .. }) | None => {
                nic.counters.refused += 1
            }
        }
    }
}
