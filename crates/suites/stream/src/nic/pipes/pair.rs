//! The notification buffers of one core.

use std::collections::VecDeque;

use super::super::engine::Common;
use super::super::notification::{RxNotification, TxNotification};
use super::super::posted::Arrivals;
use super::super::tail::Tail;
use super::cut::Cut;

/// A core's pair of buffers, and its registers.
pub(super) struct Pair {
    pub(super) arrivals: Arrivals,
    /// Null until the program says where it lies.
    pub(super) rx: *mut RxNotification,
    pub(super) rx_low: u32,
    pub(super) rx_head: u32,
    pub(super) rx_tail: u32,
    /// Null until the program says where it lies.
    pub(super) tx: *mut TxNotification,
    pub(super) tx_low: u32,
    pub(super) tx_head: u32,
    pub(super) tx_tail: Tail,
    /// What the last TX notification has of a packet that goes on in the next.
    pub(super) cut: Cut,
}

impl Pair {
    pub(super) fn new(arrivals: Arrivals) -> Self {
        Self {
            arrivals,
            rx: std::ptr::null_mut(),
            rx_low: 0,
            rx_head: 0,
            rx_tail: 0,
            tx: std::ptr::null_mut(),
            tx_low: 0,
            tx_head: 0,
            tx_tail: Tail::default(),
            cut: Cut::default(),
        }
    }

    /// The slot of the next notification; none where the program has read too few, or has no buffer.
    #[inline(always)]
    pub(super) fn slot(&mut self, mask: u32) -> Option<*const RxNotification> {
        let next = (self.rx_tail + 1) & mask;
        if next == self.rx_head || self.rx.is_null() {
            return None;
        }
        let slot = self.rx.wrapping_add(self.rx_tail as usize);
        self.rx_tail = next;
        Some(slot)
    }
}

/// Notifications on their way to memory, where transfers are modelled.
#[derive(Default)]
pub(super) struct UnderWay(VecDeque<Notification>);

/// One of them.
pub(crate) struct Notification {
    pub(super) arrives: u64,
    pub(super) pair: u32,
    pub(super) slot: *const RxNotification,
    pub(super) pipe: u32,
    pub(super) tail: u32,
}

impl Notification {
    #[inline(always)]
    fn write(&self) {
        // SAFETY: the slot lies in the buffer of a core that is attached: the engine forgets the slots of
        // those that go, and of memory that goes. All its fields are atomic.
        let slot = unsafe { &*self.slot };
        slot.tell(self.pipe, self.tail);
    }
}

impl UnderWay {
    /// Writes a notification, or has it travel first where that is modelled.
    #[inline(always)]
    pub(super) fn notify(&mut self, notification: Notification, nic: &mut Common) {
        nic.counters.notifications += 1;
        if nic.transfer == 0 {
            notification.write();
        } else {
            self.0.push_back(notification);
        }
    }

    /// Those whose time has come arrive.
    #[inline(always)]
    pub(super) fn arrive(&mut self, now: u64) {
        while self.0.front().is_some_and(|first| first.arrives <= now) {
            if let Some(first) = self.0.pop_front() {
                first.write();
            }
        }
    }

    /// Those for a core arrive now: a pipe of its goes, and its number may soon be another's.
    pub(super) fn hurry(&mut self, pair: u32) {
        self.0.retain(|notification| {
            if notification.pair == pair {
                notification.write();
            }
            notification.pair != pair
        });
    }

    pub(super) fn forget_where(&mut self, goes: impl Fn(&Notification) -> bool) {
        self.0.retain(|notification| !goes(notification));
    }
}
