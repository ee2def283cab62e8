//! A pair of notification buffers, and the notifications to be written to it.

use std::collections::VecDeque;

use super::super::doorbells::DoorbellReceiver;
use super::super::engine::EngineContext;
use super::super::layout::MAX_TRANSFER;
use super::super::notification::{RxNotification, SEND, TxNotification};
use super::super::pcie::{MAX_ANNOUNCED, Read};
use super::super::register_writes::DelayedTail;
use super::partial_packet::PartialPacket;

/// A core's pair of notification buffers, with its registers.
pub(super) struct Pair {
    pub(super) doorbells: DoorbellReceiver,
    /// Null until the host sets the address.
    pub(super) rx: *mut RxNotification,
    pub(super) rx_low: u32,
    pub(super) rx_head: u32,
    pub(super) rx_tail: u32,
    /// Null until the host sets the address.
    pub(super) tx: *mut TxNotification,
    pub(super) tx_low: u32,
    pub(super) tx_head: u32,
    pub(super) tx_tail: DelayedTail,
    /// The start of a packet that continues in the next transmit request.
    pub(super) partial: PartialPacket,
}

impl Pair {
    pub(super) fn new(doorbells: DoorbellReceiver) -> Self {
        Self {
            doorbells,
            rx: std::ptr::null_mut(),
            rx_low: 0,
            rx_head: 0,
            rx_tail: 0,
            tx: std::ptr::null_mut(),
            tx_low: 0,
            tx_head: 0,
            tx_tail: DelayedTail::default(),
            partial: PartialPacket::default(),
        }
    }

    /// Reads the transmit notifications up to a tail, and what they send.
    #[inline(always)]
    pub(super) fn announce(&self, tail: u32, mask: u32, nic: &mut EngineContext) {
        let from = self.tx_tail.latest();
        let count = tail.wrapping_sub(from) & mask;
        nic.read(u64::from(count) * size_of::<TxNotification>() as u64);
        if nic.link.is_some() && !self.tx.is_null() {
            for at in 0..count.min(MAX_ANNOUNCED) {
                let slot = self.tx.wrapping_add((from.wrapping_add(at) & mask) as usize);
                // SAFETY: the buffer is registered and has `mask + 1` notifications; all fields are atomic.
                let notification = unsafe { &*slot };
                if notification.request() == SEND {
                    let (_, bytes) = notification.bytes();
                    nic.read_ahead(Read::of(bytes.min(MAX_TRANSFER as u64)));
                }
            }
        }
    }

    /// Allocates up to `max` slots for notifications. Returns the first slot and their number, 0 if there is no buffer.
    #[inline(always)]
    pub(super) fn slots(&mut self, max: u32, mask: u32) -> (u32, u32) {
        let free = self.rx_head.wrapping_sub(self.rx_tail).wrapping_sub(1) & mask;
        let (first, count) = (self.rx_tail, if self.rx.is_null() { 0 } else { max.min(free) });
        self.rx_tail = (first + count) & mask;
        (first, count)
    }
}

/// Delayed notifications, if transfers are modelled.
#[derive(Default)]
pub(super) struct PendingNotifications(VecDeque<Notifications>);

/// Consecutive notifications of one pipe, each of which reports further growth.
#[derive(Clone, Copy)]
pub(crate) struct Notifications {
    /// When they arrive, in ticks; set when they are written.
    pub(super) arrives: u64,
    pub(super) pair: u32,
    /// The buffer, of `mask + 1` notifications.
    pub(super) buffer: *const RxNotification,
    pub(super) mask: u32,
    /// Slot of the first notification.
    pub(super) first: u32,
    pub(super) count: u32,
    pub(super) pipe: u32,
    /// Tail in the first notification, in flits.
    pub(super) tail: u32,
    /// Growth from one notification to the next, in flits.
    pub(super) step: u32,
    /// Size of the pipe's ring in flits, minus 1.
    pub(super) ring_mask: u32,
}

impl Notifications {
    pub(super) const NONE: Self = Self {
        arrives: 0,
        pair: super::NO_PAIR,
        buffer: std::ptr::null(),
        mask: 0,
        first: 0,
        count: 0,
        pipe: 0,
        tail: 0,
        step: 0,
        ring_mask: 0,
    };

    /// Removes the first notification, which is written to another slot.
    #[inline(always)]
    pub(super) fn take_one(&mut self, slot: u32) -> Self {
        let one = Self { first: slot, count: 1, ..*self };
        self.count -= 1;
        self.tail = (self.tail + self.step) & self.ring_mask;
        one
    }

    /// Returns the slot after the last notification.
    #[inline(always)]
    pub(super) fn after(&self) -> u32 {
        (self.first + self.count) & self.mask
    }

    /// Writes the notifications to memory and counts them.
    #[inline(always)]
    fn write(&self, nic: &mut EngineContext) {
        nic.counters.notifications += u64::from(self.count);
        let mut tail = self.tail;
        for at in 0..self.count {
            let slot = self.buffer.wrapping_add(((self.first + at) & self.mask) as usize);
            // SAFETY: the slot is in the buffer of an attached pair: the engine removes notifications of removed pairs
            // and memory. All fields are atomic.
            unsafe { &*slot }.notify(self.pipe, tail);
            tail = (tail + self.step) & self.ring_mask;
        }
    }
}

impl PendingNotifications {
    /// Writes notifications, or queues them if transfers are modelled.
    #[inline(always)]
    pub(super) fn write(&mut self, mut notifications: Notifications, nic: &mut EngineContext) {
        nic.write(notifications.count.into(), size_of::<RxNotification>() as u64);
        if nic.is_delayed() {
            notifications.arrives = nic.arrival();
            self.0.push_back(notifications);
        } else {
            notifications.write(nic);
        }
    }

    /// Writes the notifications that are due.
    #[inline(always)]
    pub(super) fn write_due(&mut self, now: u64, nic: &mut EngineContext) {
        while self.0.front().is_some_and(|first| first.arrives <= now) {
            if let Some(first) = self.0.pop_front() {
                first.write(nic);
            }
        }
    }

    /// Writes all notifications of a pair now, because one of its pipes is removed and its ID may be reused.
    pub(super) fn flush(&mut self, pair: u32, nic: &mut EngineContext) {
        self.0.retain(|notifications| {
            if notifications.pair == pair {
                notifications.write(nic);
            }
            notifications.pair != pair
        });
    }

    pub(super) fn remove_where(&mut self, matches: impl Fn(&Notifications) -> bool) {
        self.0.retain(|notifications| !matches(notifications));
    }
}
