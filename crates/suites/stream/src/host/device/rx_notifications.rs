//! What the NIC tells of pipes, by RX notifications.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use super::{BATCH, Shared};
use crate::nic::layout::{PIPES, Queue, Register};
use crate::nic::notification::RxNotification;

/// What was told of the NIC's pipes.
pub(super) struct RxNotificationState {
    /// The next notification.
    head: Cell<u32>,
    /// Up to where each pipe of the NIC is known to hold packets, flits.
    tails: Box<[Cell<u32>]>,
    /// The place that each pipe of the NIC has among this device's.
    places: Box<[Cell<u32>]>,
    /// How many pipes this device has had.
    pipes: Cell<u32>,
    /// Pipes of which the NIC told and that [`Device::next`](super::Device::next) has not given yet.
    ready: RefCell<VecDeque<u32>>,
    /// Whether each pipe of the NIC is among them: several notifications of one make it ready but once.
    is_ready: Box<[Cell<bool>]>,
}

impl RxNotificationState {
    pub(super) fn new() -> Self {
        let cells = || (0..PIPES).map(|_| Cell::new(0)).collect();
        Self {
            head: Cell::new(0),
            tails: cells(),
            places: cells(),
            pipes: Cell::new(0),
            ready: RefCell::new(VecDeque::with_capacity(BATCH as usize)),
            is_ready: (0..PIPES).map(|_| Cell::new(false)).collect(),
        }
    }

    /// A new pipe gets its place among this device's; nothing was told of it.
    pub(super) fn place(&self, pipe: u32) {
        self.places[pipe as usize].set(self.pipes.get());
        self.pipes.set(self.pipes.get() + 1);
        self.tails[pipe as usize].set(0);
    }
}

impl Shared {
    /// Up to where a pipe is known to hold packets, flits.
    #[inline(always)]
    pub(in crate::host) fn tail(&self, pipe: u32) -> u32 {
        self.rx_notifications.tails[pipe as usize].get()
    }

    /// The place of the next pipe that has received something.
    #[inline(always)]
    pub(super) fn next(&self) -> Option<usize> {
        let rx_notifications = &self.rx_notifications;
        let mut ready = rx_notifications.ready.borrow_mut();
        if ready.is_empty() {
            self.complete();
            self.take_notifications(&mut ready);
        }
        let pipe = ready.pop_front()?;
        rx_notifications.is_ready[pipe as usize].set(false);
        Some(rx_notifications.places[pipe as usize].get() as usize)
    }

    /// Takes notifications, a batch at most; how many.
    #[inline(always)]
    fn take_notifications(&self, ready: &mut VecDeque<u32>) -> u32 {
        let rx_notifications = &self.rx_notifications;
        let mut head = rx_notifications.head.get();
        let mut taken = 0;
        while taken < BATCH {
            let Some((pipe, tail)) = self.rx(head).take() else { break };
            let pipe = pipe % PIPES;
            rx_notifications.tails[pipe as usize].set(tail);
            if !rx_notifications.is_ready[pipe as usize].replace(true) {
                ready.push_back(pipe);
            }
            head = (head + 1) & self.mask;
            taken += 1;
        }
        if taken > 0 {
            rx_notifications.head.set(head);
            // The doorbell also orders the signals, which are 0 now, before the NIC's next lap.
            self.doorbells.write(Register::RxHead.of(Queue::Buffers(self.pair)), head);
        }
        taken
    }

    /// Notifications of a pipe that goes are of no use to the next that gets its number.
    pub(in crate::host) fn forget(&self, pipe: u32) {
        let rx_notifications = &self.rx_notifications;
        let mut ready = rx_notifications.ready.borrow_mut();
        while self.take_notifications(&mut ready) > 0 {}
        ready.retain(|other| *other != pipe);
        rx_notifications.is_ready[pipe as usize].set(false);
        rx_notifications.tails[pipe as usize].set(0);
    }

    #[inline(always)]
    fn rx(&self, index: u32) -> &RxNotification {
        // SAFETY: the buffers hold so many notifications of each kind, at whole flits, and the index is masked;
        // all fields that both sides use are atomic.
        unsafe { &*self.buffers.pointer().cast::<RxNotification>().wrapping_add(index as usize) }
    }
}
