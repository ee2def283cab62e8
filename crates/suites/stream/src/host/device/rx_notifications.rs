//! Receive notifications.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use super::{MERGED, NotificationBatch, Shared};
use crate::nic::layout::{PIPES, Queue, Register};
use crate::nic::notification::RxNotification;

/// Receive-notification state of one device.
pub(super) struct RxNotificationState {
    /// Slot of the next notification.
    head: Cell<u32>,
    /// Tail of each pipe of the NIC, up to which packets were received, in flits.
    tails: Box<[Cell<u32>]>,
    /// Index of each pipe of the NIC within this device.
    indices: Box<[Cell<u32>]>,
    /// Number of pipes created on this device.
    pipes: Cell<u32>,
    batch: NotificationBatch,
    /// Pipes of notifications that [`Device::next`](super::Device::next) has not returned yet, in order. If notifications
    /// are merged, each pipe is in it only once.
    ready: RefCell<VecDeque<u32>>,
    /// Whether each pipe of the NIC was added to `ready` since it was last returned.
    is_ready: Box<[Cell<bool>]>,
}

impl RxNotificationState {
    pub(super) fn new(batch: NotificationBatch) -> Self {
        let cells = || (0..PIPES).map(|_| Cell::new(0)).collect();
        Self {
            head: Cell::new(0),
            tails: cells(),
            indices: cells(),
            pipes: Cell::new(0),
            batch,
            ready: RefCell::new(VecDeque::with_capacity(MERGED as usize)),
            is_ready: (0..PIPES).map(|_| Cell::new(false)).collect(),
        }
    }

    /// Adds a new pipe, without notifications.
    pub(super) fn add(&self, pipe: u32) {
        self.indices[pipe as usize].set(self.pipes.get());
        self.pipes.set(self.pipes.get() + 1);
        self.tails[pipe as usize].set(0);
    }
}

impl Shared {
    /// Returns the tail of a pipe, up to which packets were received, in flits.
    #[inline(always)]
    pub(in crate::host) fn tail(&self, pipe: u32) -> u32 {
        self.rx_notifications.tails[pipe as usize].get()
    }

    /// Returns the index of the next pipe with a notification.
    #[inline(always)]
    pub(super) fn next(&self) -> Option<usize> {
        let pipe = self.next_id()?;
        Some(self.rx_notifications.indices[pipe as usize].get() as usize)
    }

    /// Returns the index of the pipe that [`next`](Self::next) returns next, if its notification is already taken.
    #[inline(always)]
    pub(super) fn upcoming(&self) -> Option<usize> {
        let pipe = *self.rx_notifications.ready.borrow().front()?;
        Some(self.rx_notifications.indices[pipe as usize].get() as usize)
    }

    /// Returns the ID of the next pipe with a notification.
    #[inline(always)]
    pub(super) fn next_id(&self) -> Option<u32> {
        let rx_notifications = &self.rx_notifications;
        let mut ready = rx_notifications.ready.borrow_mut();
        if ready.is_empty() {
            self.complete();
            let merges = self.rx_notifications.batch == NotificationBatch::Merged;
            self.take_notifications(&mut ready, merges);
        }
        let pipe = ready.pop_front()?;
        rx_notifications.is_ready[pipe as usize].set(false);
        Some(pipe)
    }

    /// Takes notifications without returning their pipes, which stay ready. Notifications of a pipe that is ready are
    /// merged, so that a program that only polls needs no more memory.
    #[inline(always)]
    pub(in crate::host) fn poll(&self) {
        self.complete();
        self.take_notifications(&mut self.rx_notifications.ready.borrow_mut(), true);
    }

    /// Takes up to one batch of notifications. With `merges`, a pipe that is ready is not added again. Returns the number
    /// of notifications.
    #[inline(always)]
    fn take_notifications(&self, ready: &mut VecDeque<u32>, merges: bool) -> u32 {
        let rx_notifications = &self.rx_notifications;
        let max = rx_notifications.batch.max();
        let mut head = rx_notifications.head.get();
        let mut taken = 0;
        while taken < max {
            let Some((pipe, tail)) = self.rx(head).take() else { break };
            let pipe = pipe % PIPES;
            rx_notifications.tails[pipe as usize].set(tail);
            let was_ready = rx_notifications.is_ready[pipe as usize].replace(true);
            if !(merges && was_ready) {
                ready.push_back(pipe);
            }
            head = (head + 1) & self.mask;
            taken += 1;
        }
        if taken > 0 {
            rx_notifications.head.set(head);
            // The doorbell also orders the cleared signals before the NIC's next lap.
            self.doorbells.write(Register::RxHead.of(Queue::Buffers(self.pair)), head);
        }
        taken
    }

    /// Discards notifications of a removed pipe, so that the next pipe with its ID does not get them.
    pub(in crate::host) fn discard(&self, pipe: u32) {
        let rx_notifications = &self.rx_notifications;
        let mut ready = rx_notifications.ready.borrow_mut();
        while self.take_notifications(&mut ready, true) > 0 {}
        ready.retain(|other| *other != pipe);
        rx_notifications.is_ready[pipe as usize].set(false);
        rx_notifications.tails[pipe as usize].set(0);
    }

    #[inline(always)]
    fn rx(&self, index: u32) -> &RxNotification {
        // SAFETY: the buffers contain `mask + 1` notifications of each kind, aligned to flits, and the index is masked;
        // all fields that both sides use are atomic.
        unsafe { &*self.buffers.pointer().cast::<RxNotification>().wrapping_add(index as usize) }
    }
}
