//! From memory to the wire.

use super::super::configuration::Configuration;
use super::super::engine::Common;
use super::super::layout::{FLIT, LONGEST_TRANSFER};
use super::super::limit::Limit;
use super::super::notification::{CONFIGURE, SEND, TxNotification};
use super::Pipes;
use super::pair::Pair;
use super::timestamp::Timestamp;
use crate::wire::{Left, Wire};

/// TX notifications of a core served in one turn.
const TRANSMISSIONS: usize = 32;

impl Pipes {
    /// Serves the TX notifications of a core.
    #[inline(always)]
    pub(super) fn serve<W: Wire>(&mut self, pair: usize, now: u64, nic: &mut Common, wire: &mut W) {
        for _ in 0..TRANSMISSIONS {
            let Some(one) = self.pairs[pair].as_mut() else { return };
            if one.tx_head == one.tx_tail.known(now) || one.tx.is_null() {
                return;
            }
            if self.limit.as_ref().is_some_and(|limit| limit.holds(now)) {
                return;
            }
            // SAFETY: the buffer is registered and has as many notifications; all fields are atomic.
            let notification = unsafe { &*one.tx.wrapping_add(one.tx_head as usize) };
            one.tx_head = (one.tx_head + 1) & self.notifications_mask;
            match notification.asked() {
                SEND => self.send(pair, notification, now, nic, wire),
                CONFIGURE => self.configure(pair as u32, notification, nic),
                _ => nic.counters.refused += 1,
            }
            notification.finish();
            nic.counters.transmissions += 1;
        }
    }

    /// Sends the packets that a notification points to.
    #[inline(always)]
    fn send<W: Wire>(
        &mut self,
        pair: usize,
        notification: &TxNotification,
        now: u64,
        nic: &mut Common,
        wire: &mut W,
    ) {
        let (bus, length) = notification.bytes();
        let length = length as usize;
        let whole = length <= LONGEST_TRANSFER && length.is_multiple_of(FLIT);
        let Some(start) = nic
            .reach(pair as u32, bus, length)
            .filter(|_| whole && bus.is_multiple_of(FLIT as u64))
        else {
            nic.counters.refused += 1;
            return;
        };
        let Some(Pair { cut, .. }) = self.pairs[pair].as_mut() else { return };
        let timestamp = &mut self.timestamp;
        let (mut at, mut packets) = (0, 0);
        if !cut.is_none() {
            // SAFETY: as below, and a whole packet lies where it says.
            unsafe {
                let (taken, whole) = cut.go_on(start, length);
                at = taken;
                packets =
                    whole.map_or(0, |(packet, all)| leave(packet, all, timestamp, wire).packets);
            }
        }
        // SAFETY: registered memory in whole flits, which the program leaves to the NIC until the
        // notification's signal is 0.
        let left = unsafe { leave(start.wrapping_add(at), length - at, timestamp, wire) };
        at += left.bytes;
        if at < length {
            // SAFETY: as above; the last packet says that it has more flits than these.
            let goes_on = unsafe { cut.begin(start.wrapping_add(at), length - at) };
            nic.counters.refused += u64::from(!goes_on);
        }
        let flits = (length / FLIT) as u64;
        nic.counters.out_packets += packets + left.packets;
        nic.counters.flits_read += flits;
        if let Some(limit) = &mut self.limit {
            limit.leave(flits, now);
        }
    }

    #[cold]
    fn configure(&mut self, pair: u32, notification: &TxNotification, nic: &mut Common) {
        let configuration = Configuration::of(notification.get_words());
        match configuration.filter(Configuration::is_possible) {
            Some(Configuration::Bind { flow, pipe }) if self.pipes[pipe as usize].pair == pair => {
                if let Some(full) = nic.bind(flow, pipe) {
                    notification.refuse(full.rules as u64);
                }
            }
            Some(Configuration::Bind { .. }) => nic.counters.refused += 1,
            Some(Configuration::Fallback { pipes, round_robin }) => {
                nic.fall_back(pipes, round_robin)
            }
            Some(Configuration::RateLimit { numerator, denominator, enable }) => {
                self.limit = enable.then(|| Limit::new(numerator, denominator, nic.ticks_a_second));
            }
            Some(Configuration::Timestamp { offset, enable }) => {
                self.timestamp = enable.then(|| Timestamp::new(offset, nic.ticks_a_second));
            }
            None => nic.counters.refused += 1,
        }
    }
}

/// Packets leave, with the time where that is asked for.
///
/// # Safety
/// As for [`Wire::leave`]; at most [`LONGEST_TRANSFER`] bytes.
#[inline(always)]
unsafe fn leave<W: Wire>(
    start: *const u8,
    bytes: usize,
    timestamp: &mut Option<Timestamp>,
    wire: &mut W,
) -> Left {
    // SAFETY: by the caller's word.
    unsafe {
        match timestamp {
            None => wire.leave(start, bytes),
            Some(timestamp) => timestamp.leave(start, bytes, wire),
        }
    }
}
