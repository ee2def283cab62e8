//! What the NIC is asked for by TX notifications: to send, and to be configured.

use std::cell::Cell;

use super::{BATCH, Gone, Owner, Shared};
use crate::host::NotConfigured;
use crate::host::not_configured::answer;
use crate::nic::configuration::Configuration;
use crate::nic::layout::{FLIT, LONGEST_TRANSFER, Queue, Register};
use crate::nic::memory::Memory;
use crate::nic::notification::TxNotification;

/// TX notifications under way.
pub(super) struct Asked {
    /// The oldest.
    head: Cell<u32>,
    /// Where the next goes.
    tail: Cell<u32>,
    /// Whom each of them is for.
    owners: Box<[Cell<Owner>]>,
}

impl Asked {
    pub(super) fn new(notifications: u32) -> Self {
        let owners = (0..notifications).map(|_| Cell::new(Owner::Nobody)).collect();
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
        owner: Owner,
    ) -> Result<(), Gone> {
        let mut at = start as usize * FLIT;
        let mut left = flits as usize * FLIT;
        loop {
            // As the card has no use for a ring that is mapped twice, no part goes beyond its end.
            let part = left.min(LONGEST_TRANSFER).min(self.sizes.ring - at);
            let last = part == left;
            let slot = self.slot()?;
            self.tx(slot).ask_to_send(ring.bus() + at as u64, part as u64);
            self.put(slot, if last { owner } else { Owner::Nobody });
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
    pub(super) fn configure(&self, configuration: Configuration) -> Result<(), NotConfigured> {
        let slot = self.slot()?;
        let notification = self.tx(slot);
        notification.ask_to_configure(configuration.words());
        self.put(slot, Owner::Nobody);
        self.ring();
        self.wait(|| notification.is_done())?;
        answer(configuration, notification)
    }

    /// Takes note of what was sent, and gives its room back.
    #[inline(always)]
    pub(in crate::host) fn complete(&self) {
        let asked = &self.asked;
        let tail = asked.tail.get();
        let mut head = asked.head.get();
        for _ in 0..BATCH {
            if head == tail || !self.tx(head).is_done() {
                break;
            }
            self.give_back(asked.owners[head as usize].get());
            head = (head + 1) & self.mask;
        }
        asked.head.set(head);
    }

    /// Takes note of completions until something holds.
    #[cold]
    pub(in crate::host) fn wait(&self, holds: impl Fn() -> bool) -> Result<(), Gone> {
        loop {
            self.complete();
            if holds() {
                return Ok(());
            }
            if self.port.gone() {
                return Err(Gone);
            }
            std::hint::spin_loop();
        }
    }

    /// Waits until nothing is under way.
    pub(in crate::host) fn wait_until_sent(&self) -> Result<(), Gone> {
        self.wait(|| self.asked.head.get() == self.asked.tail.get())
    }

    /// The next free TX notification. Waits where all are under way.
    #[inline(always)]
    fn slot(&self) -> Result<u32, Gone> {
        let slot = self.asked.tail.get();
        if (slot + 1) & self.mask == self.asked.head.get() {
            // The NIC may not know of the first parts of what is being sent.
            self.ring();
            self.wait(|| (slot + 1) & self.mask != self.asked.head.get())?;
        }
        Ok(slot)
    }

    /// The notification in the next slot is there.
    #[inline(always)]
    fn put(&self, slot: u32, owner: Owner) {
        self.asked.owners[slot as usize].set(owner);
        self.asked.tail.set((slot + 1) & self.mask);
    }

    /// Tells the NIC how many TX notifications there are.
    #[inline(always)]
    fn ring(&self) {
        self.doorbells.write(Register::TxTail.of(Queue::Buffers(self.pair)), self.asked.tail.get());
    }

    #[inline(always)]
    fn tx(&self, index: u32) -> &TxNotification {
        let index = (self.sizes.notifications + index) as usize;
        // SAFETY: the buffers hold so many notifications of each kind, at whole flits, and the index is masked;
        // all fields are atomic.
        unsafe { &*self.buffers.pointer().cast::<TxNotification>().wrapping_add(index) }
    }
}
