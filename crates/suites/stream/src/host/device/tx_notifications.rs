//! What the NIC is asked for by TX notifications: to send, and to be configured.

use std::cell::Cell;

use super::{BATCH, CompletionTarget, NicClosed, Shared};
use crate::host::ConfigError;
use crate::host::answer;
use crate::nic::configuration::Configuration;
use crate::nic::layout::{FLIT, MAX_TRANSFER, Queue, Register};
use crate::nic::memory::Memory;
use crate::nic::notification::TxNotification;

/// TX notifications under way.
pub(super) struct TxNotificationState {
    /// The oldest.
    head: Cell<u32>,
    /// Where the next goes.
    tail: Cell<u32>,
    /// Whom each of them is for.
    owners: Box<[Cell<CompletionTarget>]>,
}

impl TxNotificationState {
    pub(super) fn new(notifications: u32) -> Self {
        let owners = (0..notifications).map(|_| Cell::new(CompletionTarget::Nobody)).collect();
        Self { head: Cell::new(0), tail: Cell::new(0), owners }
    }
}

impl Shared {
    /// Asks the NIC to send flits of a ring of this device: one at least.
    #[inline(always)]
    pub(in crate::host) fn send(
        &self,
        ring: &Memory,
        start: u32,
        flits: u32,
        owner: CompletionTarget,
    ) -> Result<(), NicClosed> {
        let mut at = start as usize * FLIT;
        let mut left = flits as usize * FLIT;
        loop {
            // As the card has no use for a ring that is mapped twice, no part goes beyond its end.
            let part = left.min(MAX_TRANSFER).min(self.sizes.ring - at);
            let last = part == left;
            let slot = self.slot()?;
            self.tx(slot).ask_to_send(ring.bus() + at as u64, part as u64);
            self.put(slot, if last { owner } else { CompletionTarget::Nobody });
            if last {
                break;
            }
            left -= part;
            at = (at + part) % self.sizes.ring;
        }
        self.ring();
        Ok(())
    }

    /// Changes the NIC's configuration, and waits until it is done.
    pub(super) fn configure(&self, configuration: Configuration) -> Result<(), ConfigError> {
        let slot = self.slot()?;
        let notification = self.tx(slot);
        notification.ask_to_configure(configuration.words());
        self.put(slot, CompletionTarget::Nobody);
        self.ring();
        self.wait(|| notification.is_done())?;
        answer(configuration, notification)
    }

    /// Takes note of what was sent, and gives its room back.
    #[inline(always)]
    pub(in crate::host) fn complete(&self) {
        let tx_notifications = &self.tx_notifications;
        let tail = tx_notifications.tail.get();
        let mut head = tx_notifications.head.get();
        for _ in 0..BATCH {
            if head == tail || !self.tx(head).is_done() {
                break;
            }
            self.give_back(tx_notifications.owners[head as usize].get());
            head = (head + 1) & self.mask;
        }
        tx_notifications.head.set(head);
    }

    /// Takes note of completions until something holds.
    #[cold]
    pub(in crate::host) fn wait(&self, holds: impl Fn() -> bool) -> Result<(), NicClosed> {
        loop {
            self.complete();
            if holds() {
                return Ok(());
            }
            if self.port.is_closed() {
                return Err(NicClosed);
            }
            std::hint::spin_loop();
        }
    }

    /// Waits until nothing is under way.
    pub(in crate::host) fn wait_until_sent(&self) -> Result<(), NicClosed> {
        self.wait(|| self.tx_notifications.head.get() == self.tx_notifications.tail.get())
    }

    /// The next free TX notification. Waits where all are under way.
    #[inline(always)]
    fn slot(&self) -> Result<u32, NicClosed> {
        let slot = self.tx_notifications.tail.get();
        if (slot + 1) & self.mask == self.tx_notifications.head.get() {
            // The NIC may not know of the first parts of what is being sent.
            self.ring();
            self.wait(|| (slot + 1) & self.mask != self.tx_notifications.head.get())?;
        }
        Ok(slot)
    }

    /// The notification in the next slot is there.
    #[inline(always)]
    fn put(&self, slot: u32, owner: CompletionTarget) {
        self.tx_notifications.owners[slot as usize].set(owner);
        self.tx_notifications.tail.set((slot + 1) & self.mask);
    }

    /// Tells the NIC how many TX notifications there are.
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
        // SAFETY: the buffers hold so many notifications of each kind, at whole flits, and the index is masked;
        // all fields are atomic.
        unsafe { &*self.buffers.pointer().cast::<TxNotification>().wrapping_add(index) }
    }
}
