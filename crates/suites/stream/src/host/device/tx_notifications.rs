//! Transmit notifications: requests to the NIC to send or to change its configuration.

use std::cell::Cell;

use super::{CompletionTarget, NicClosed, Shared};
use crate::host::{ConfigError, config_result};
use crate::nic::Memory;
use crate::nic::configuration::Configuration;
use crate::nic::layout::{FLIT, MAX_TRANSFER, Queue, Register};
use crate::nic::notification::TxNotification;

/// Transmit-notification state of one device.
pub(super) struct TxNotificationState {
    /// Slot of the oldest request in flight.
    head: Cell<u32>,
    /// Slot of the next request.
    tail: Cell<u32>,
    /// Recipient of the space that each request releases.
    targets: Box<[Cell<CompletionTarget>]>,
}

impl TxNotificationState {
    pub(super) fn new(notifications: u32) -> Self {
        let targets = (0..notifications).map(|_| Cell::new(CompletionTarget::None)).collect();
        Self { head: Cell::new(0), tail: Cell::new(0), targets }
    }
}

impl Shared {
    /// Requests that the NIC send at least one flit of a ring of this device. Returns the slot of the last request, for
    /// [`free_after`](Self::free_after).
    #[inline(always)]
    pub(in crate::host) fn send(
        &self,
        ring: &Memory,
        start: u32,
        flits: u32,
        target: CompletionTarget,
    ) -> Result<u32, NicClosed> {
        let mut at = start as usize * FLIT;
        let mut remaining = flits as usize * FLIT;
        loop {
            // No part exceeds the end of the ring: the card does not see the mirrored mapping.
            let part = remaining.min(MAX_TRANSFER).min(self.sizes.ring - at);
            let last = part == remaining;
            let slot = self.slot()?;
            self.tx(slot).request_send(ring.bus() + at as u64, part as u64);
            self.put(slot, if last { target } else { CompletionTarget::None });
            if last {
                self.ring();
                return Ok(slot);
            }
            remaining -= part;
            at = (at + part) % self.sizes.ring;
        }
    }

    /// Frees flits of a pipe that follow those of its last transmission, whose last request was in `slot`: once that is
    /// complete, which may be now.
    #[inline(always)]
    pub(in crate::host) fn free_after(&self, slot: u32, pipe: u32, flits: u32) {
        let TxNotificationState { head, tail, targets } = &self.tx_notifications;
        let since_head = |slot: u32| slot.wrapping_sub(head.get()) & self.mask;
        let is_in_flight = since_head(slot) < since_head(tail.get());
        // If the slot is used again, then for another pipe: this one's last transmission would be in another slot.
        match targets[slot as usize].get() {
            CompletionTarget::Pipe(of, sent) if of == pipe && is_in_flight => {
                targets[slot as usize].set(CompletionTarget::Pipe(pipe, sent + flits));
            }
            _ => self.free(pipe, flits),
        }
    }

    /// Changes the NIC's configuration and waits until it is done.
    pub(super) fn configure(&self, configuration: Configuration) -> Result<(), ConfigError> {
        let slot = self.slot()?;
        let notification = self.tx(slot);
        notification.request_configure(configuration.words());
        self.put(slot, CompletionTarget::None);
        self.ring();
        self.wait(|| notification.is_done())?;
        config_result(configuration, notification)
    }

    /// Processes completions and releases their space.
    #[inline(always)]
    pub(in crate::host) fn complete(&self) {
        let tx_notifications = &self.tx_notifications;
        let tail = tx_notifications.tail.get();
        let mut head = tx_notifications.head.get();
        for _ in 0..self.sizes.batch.max() {
            if head == tail || !self.tx(head).is_done() {
                break;
            }
            self.release(tx_notifications.targets[head as usize].get());
            head = (head + 1) & self.mask;
        }
        tx_notifications.head.set(head);
    }

    /// Processes completions until `done` returns true.
    #[cold]
    pub(in crate::host) fn wait(&self, done: impl Fn() -> bool) -> Result<(), NicClosed> {
        loop {
            self.complete();
            if done() {
                return Ok(());
            }
            if self.port.is_closed() {
                return Err(NicClosed);
            }
            std::hint::spin_loop();
        }
    }

    /// Waits until no request is in flight.
    pub(in crate::host) fn wait_until_sent(&self) -> Result<(), NicClosed> {
        self.wait(|| self.tx_notifications.head.get() == self.tx_notifications.tail.get())
    }

    /// Returns the number of requests in flight.
    pub(super) fn in_flight(&self) -> u32 {
        let Self { mask, tx_notifications: TxNotificationState { head, tail, .. }, .. } = self;
        tail.get().wrapping_sub(head.get()) & mask
    }

    /// Returns the next free slot. Waits while all are in flight.
    #[inline(always)]
    fn slot(&self) -> Result<u32, NicClosed> {
        let slot = self.tx_notifications.tail.get();
        if (slot + 1) & self.mask == self.tx_notifications.head.get() {
            // The NIC may not have been notified of the first parts of the current transmission.
            self.ring();
            self.wait(|| (slot + 1) & self.mask != self.tx_notifications.head.get())?;
        }
        Ok(slot)
    }

    /// Adds the request in the next slot.
    #[inline(always)]
    fn put(&self, slot: u32, target: CompletionTarget) {
        self.tx_notifications.targets[slot as usize].set(target);
        self.tx_notifications.tail.set((slot + 1) & self.mask);
    }

    /// Notifies the NIC of new requests.
    #[inline(always)]
    fn ring(&self) {
        self.doorbells.write(
            Register::TxTail.of(Queue::Buffers(self.pair)),
            self.tx_notifications.tail.get(),
        );
    }

    #[inline(always)]
    fn tx(&self, index: u32) -> &TxNotification {
        let index = (self.sizes.notifications + index) as usize;
        // SAFETY: the buffers contain `notifications` notifications of each kind, aligned to flits, and the index is
        // masked; all fields are atomic.
        unsafe { &*self.buffers.pointer().cast::<TxNotification>().wrapping_add(index) }
    }
}
