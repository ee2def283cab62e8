//! Transmitting: from memory to the wire.

use super::super::configuration::Configuration;
use super::super::engine::{ConfigRefused, EngineContext, Owned};
use super::super::layout::{FLIT, MAX_TRANSFER};
use super::super::notification::{CONFIGURE, SEND, TAKEN, TxNotification};
use super::super::pcie::Read;
use super::Pipes;
use super::pair::Pair;
use super::timestamp::Timestamp;
use crate::wire::{TxCount, Wire};

/// Maximum number of transmit requests per pair and iteration.
const TRANSMISSIONS: usize = 32;

impl Pipes {
    /// Serves the transmit requests of a pair.
    #[inline(always)]
    pub(super) fn serve<W: Wire>(
        &mut self,
        pair: usize,
        now: u64,
        nic: &mut EngineContext,
        wire: &mut W,
    ) {
        for _ in 0..TRANSMISSIONS {
            let Some(one) = self.pairs[pair].as_mut() else { return };
            if one.tx_head == one.tx_tail.known(now) || one.tx.is_null() {
                return;
            }
            if nic.is_throttled(pair as u32, now) {
                return;
            }
            // SAFETY: the buffer is registered and has as many notifications; all fields are atomic.
            let notification = unsafe { &*one.tx.wrapping_add(one.tx_head as usize) };
            let request = notification.request();
            if request != SEND && nic.is_busy(now) {
                return;
            }
            one.tx_head = (one.tx_head + 1) & self.notifications_mask;
            match request {
                SEND => self.send(pair, notification, now, nic, wire),
                CONFIGURE => self.configure(pair as u32, notification, now, nic),
                _ => nic.counters.refused += 1,
            }
            notification.finish();
            nic.write(1, size_of::<TxNotification>() as u64);
            nic.counters.transmissions += 1;
        }
    }

    /// Sends the packets of a request.
    #[inline(always)]
    fn send<W: Wire>(
        &mut self,
        pair: usize,
        notification: &TxNotification,
        now: u64,
        nic: &mut EngineContext,
        wire: &mut W,
    ) {
        let (bus, length) = notification.bytes();
        let length = length as usize;
        let is_valid = length <= MAX_TRANSFER && length.is_multiple_of(FLIT);
        let Some(start) = nic
            .resolve_dma(pair as u32, bus, length)
            .filter(|_| is_valid && bus.is_multiple_of(FLIT as u64))
        else {
            nic.counters.refused += 1;
            return;
        };
        let Some(Pair { partial, .. }) = self.pairs[pair].as_mut() else { return };
        let mut timestamp = Owned::of_mut(&mut self.timestamp, nic.client(pair as u32));
        let (mut at, mut packets) = (0, 0);
        if !partial.is_none() {
            // SAFETY: registered memory of whole flits, which belongs to the NIC until the request is finished; the
            // completed packet has the returned address and size.
            unsafe {
                let (taken, whole) = partial.append(start, length);
                at = taken;
                if let Some((packet, all)) = whole {
                    packets = transmit(packet, all, timestamp.as_deref_mut(), wire).packets;
                }
            }
        }
        // SAFETY: registered memory of whole flits, which belongs to the NIC until the request is finished.
        let sent = unsafe { transmit(start.wrapping_add(at), length - at, timestamp, wire) };
        at += sent.bytes;
        if at < length {
            // SAFETY: registered memory of whole flits; the last packet is longer than this request.
            let is_partial = unsafe { partial.begin(start.wrapping_add(at), length - at) };
            if is_partial {
                at = length;
            } else {
                // Not a valid packet: ignored.
                nic.counters.refused += 1;
            }
        }
        let flits = (at / FLIT) as u64;
        nic.counters.out_packets += packets + sent.packets;
        nic.counters.flits_read += flits;
        nic.counters.count_read(Read::of(at as u64));
        nic.count_sent(pair as u32, flits, now);
    }

    #[cold]
    fn configure(
        &mut self,
        pair: u32,
        notification: &TxNotification,
        now: u64,
        nic: &mut EngineContext,
    ) {
        let configuration = Configuration::of(notification.get_words());
        let done = match configuration.filter(Configuration::is_possible) {
            Some(Configuration::Bind { flow, pipe }) if self.pipes[pipe as usize].pair == pair => {
                nic.bind(pair, flow, pipe, now)
            }
            Some(Configuration::Timestamp { offset, enable }) => {
                let timestamp = enable.then(|| Timestamp::new(offset, nic.ticks_per_second));
                let set = Owned::set(&mut self.timestamp, nic.client(pair), timestamp);
                nic.counters.refused += u64::from(set.is_err());
                set
            }
            Some(other) => nic.configure(pair, other),
            None => {
                nic.counters.refused += 1;
                Ok(())
            }
        };
        match done {
            Ok(()) => {}
            Err(ConfigRefused::TableFull(rules)) => notification.refuse(rules),
            Err(ConfigRefused::Taken) => notification.refuse(TAKEN),
        }
    }
}

/// Sends packets, with the current time in timestamp mode.
///
/// # Safety
/// The requirements of [`Wire::on_transmit`] apply, with at most [`MAX_TRANSFER`] bytes.
#[inline(always)]
unsafe fn transmit<W: Wire>(
    start: *const u8,
    bytes: usize,
    timestamp: Option<&mut Timestamp>,
    wire: &mut W,
) -> TxCount {
    // SAFETY: the caller guarantees the same.
    unsafe {
        match timestamp {
            None => wire.on_transmit(start, bytes),
            Some(timestamp) => timestamp.transmit(start, bytes, wire),
        }
    }
}
