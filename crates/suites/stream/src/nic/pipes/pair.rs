//! The notification buffers of one core.

use std::collections::VecDeque;

use super::super::doorbells::DoorbellReceiver;
use super::super::engine::EngineContext;
use super::super::notification::{RxNotification, TxNotification};
use super::super::tail::DelayedTail;
use super::partial_packet::PartialPacket;

/// A core's pair of buffers, and its registers.
pub(super) struct Pair {
    pub(super) doorbells: DoorbellReceiver,
    /// Null until the program says where it lies.
    pub(super) rx: *mut RxNotification,
    pub(super) rx_low: u32,
    pub(super) rx_head: u32,
    pub(super) rx_tail: u32,
    /// Null until the program says where it lies.
    pub(super) tx: *mut TxNotification,
    pub(super) tx_low: u32,
    pub(super) tx_head: u32,
    pub(super) tx_tail: DelayedTail,
    /// What the last TX notification has of a packet that goes on in the next.
    pub(super) cut: PartialPacket,
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
            cut: PartialPacket::default(),
        }
    }

    /// Slots for the next notifications, at most so many: the first, and how many. Fewer where the program has
    /// read too few, and none where it has no buffer.
    #[inline(always)]
    pub(super) fn slots(&mut self, most: u32, mask: u32) -> (u32, u32) {
        let free = self.rx_head.wrapping_sub(self.rx_tail).wrapping_sub(1) & mask;
        let (first, count) = (self.rx_tail, if self.rx.is_null() { 0 } else { most.min(free) });
        self.rx_tail = (first + count) & mask;
        (first, count)
    }
}

/// Notifications on their way to memory, where transfers are modelled.
#[derive(Default)]
pub(super) struct UnderWay(VecDeque<Notifications>);

/// Notifications of one pipe, one behind the other: each says that the pipe has grown by as much.
pub(crate) struct Notifications {
    pub(super) arrives: u64,
    pub(super) pair: u32,
    /// The buffer, which has `mask` and one.
    pub(super) buffer: *const RxNotification,
    pub(super) mask: u32,
    /// The first one's slot.
    pub(super) first: u32,
    pub(super) count: u32,
    pub(super) pipe: u32,
    /// What the first says, flits.
    pub(super) tail: u32,
    /// What each says more than that before it, flits.
    pub(super) step: u32,
    /// Flits of the pipe's ring, less one.
    pub(super) ring_mask: u32,
}

impl Notifications {
    /// Writes them to memory, which is when they are counted.
    #[inline(always)]
    fn write(&self, nic: &mut EngineContext) {
        nic.counters.notifications += u64::from(self.count);
        let mut tail = self.tail;
        for at in 0..self.count {
            let slot = self.buffer.wrapping_add(((self.first + at) & self.mask) as usize);
            // SAFETY: the slot lies in the buffer of a core that is attached: the engine forgets those of
            // cores that go, and of memory that goes. All its fields are atomic.
            unsafe { &*slot }.notify(self.pipe, tail);
            tail = (tail + self.step) & self.ring_mask;
        }
    }
}

impl UnderWay {
    /// Writes notifications, or has them travel first where that is modelled.
    #[inline(always)]
    pub(super) fn notify(&mut self, notifications: Notifications, nic: &mut EngineContext) {
        if nic.transfer == 0 {
            notifications.write(nic);
        } else {
            self.0.push_back(notifications);
        }
    }

    /// Those whose time has come arrive.
    #[inline(always)]
    pub(super) fn arrive(&mut self, now: u64, nic: &mut EngineContext) {
        while self.0.front().is_some_and(|first| first.arrives <= now) {
            if let Some(first) = self.0.pop_front() {
                first.write(nic);
            }
        }
    }

    /// Those for a core arrive now: a pipe of its goes, and its number may soon be another's.
    pub(super) fn hurry(&mut self, pair: u32, nic: &mut EngineContext) {
        self.0.retain(|notifications| {
            if notifications.pair == pair {
                notifications.write(nic);
            }
            notifications.pair != pair
        });
    }

    pub(super) fn forget_where(&mut self, goes: impl Fn(&Notifications) -> bool) {
        self.0.retain(|notifications| !goes(notifications));
    }
}
