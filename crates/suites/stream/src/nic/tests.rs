//! Tests of doorbells and notifications: with real threads, and under all interleavings that loom explores, for which
//! the modules are included with loom's atomics.
#![allow(dead_code, reason = "the modules contain more than is tested here")]
#![allow(unreachable_pub, reason = "nothing else uses these copies of the modules")]
#![allow(clippy::duplicate_mod, reason = "compiled a second time with loom's atomics")]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use doorbell_queue::DoorbellQueue;
use doorbells::{DoorbellDelays, DoorbellReceiver, DoorbellSender, ends};
use notification::{CONFIGURE, RxNotification, SEND, TxNotification};

#[path = "doorbell_queue.rs"]
mod doorbell_queue;
#[path = "doorbells.rs"]
mod doorbells;
#[path = "notification.rs"]
mod notification;

/// Replaces `nic::sync`.
mod sync {
    pub(super) use loom::hint::spin_loop;
    pub(super) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};

    /// Small, so that laps are short.
    pub(crate) const CREDIT: u32 = 4;
}

/// Replaces the mapping by memory on the heap.
mod doorbell_mapping {
    #[derive(Debug, Clone)]
    pub(super) struct DoorbellMapping(pub(super) loom::sync::Arc<super::DoorbellQueue>);

    impl std::ops::Deref for DoorbellMapping {
        type Target = super::DoorbellQueue;

        fn deref(&self) -> &super::DoorbellQueue {
            &self.0
        }
    }
}

fn queue(stamped: bool) -> (DoorbellSender, DoorbellReceiver) {
    ends(
        doorbell_mapping::DoorbellMapping(Arc::new(DoorbellQueue::default())),
        DoorbellDelays { stamped, stall: 0 },
    )
}

/// Polls until there is a value.
fn wait<T>(mut get: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(got) = get() {
            return got;
        }
        thread::yield_now();
    }
}

/// More than a lap of a queue whose sender waits for credit. `preemptions` bounds the number of involuntary context
/// switches: exploring all interleavings would take too long.
fn writes_arrive(stamped: bool, preemptions: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        let (doorbells, mut receiver) = queue(stamped);
        let writer = thread::spawn(move || {
            (1..=WRITES).for_each(|number| doorbells.write(number + 10, number));
        });
        for number in 1..=WRITES {
            if stamped {
                assert_eq!(receiver.take(0), None, "no write is that old");
            }
            assert_eq!(wait(|| receiver.take(u64::MAX)), (number + 10, number));
        }
        assert_eq!(receiver.take(u64::MAX), None);
        writer.join().unwrap();
    });
}

const WRITES: u32 = sync::CREDIT + 2;

#[test]
fn writes_arrive_once_in_order_and_wait_for_credit() {
    writes_arrive(false, 3);
}

#[test]
fn stamped_writes_arrive_in_order() {
    writes_arrive(true, 2);
}

#[test]
fn a_sender_does_not_wait_for_a_nic_that_has_ended() {
    loom::model(|| {
        let (doorbells, mut receiver) = queue(false);
        let writer = thread::spawn(move || (0..6).for_each(|it| doorbells.write(0, it)));
        let _ = receiver.take(u64::MAX);
        drop(receiver);
        writer.join().unwrap();
    });
}

/// Packets and notifications with two slots each, of which the NIC leaves one free. The host returns a slot by a
/// doorbell; on the next lap the NIC must not find it full, and its write must not be overwritten.
#[test]
fn packets_are_complete_when_notified_and_no_notification_is_lost() {
    const SLOTS: usize = 2;
    const PACKETS: u32 = 3;
    loom::model(|| {
        let (doorbells, mut receiver) = queue(false);
        let slots: Arc<[RxNotification; SLOTS]> = Arc::default();
        let ring: Arc<[UnsafeCell<u32>; SLOTS]> =
            Arc::new([UnsafeCell::new(0), UnsafeCell::new(0)]);
        let (nic_slots, nic_ring) = (Arc::clone(&slots), Arc::clone(&ring));
        let nic = thread::spawn(move || {
            let mut head = 0;
            for tail in 0..PACKETS {
                while tail - head == SLOTS as u32 - 1 {
                    head = wait(|| receiver.take(u64::MAX)).1;
                }
                let slot = tail as usize % SLOTS;
                // SAFETY: loom checks that there is no concurrent access.
                nic_ring[slot].with_mut(|packet| unsafe { *packet = tail + 100 });
                nic_slots[slot].notify(7, tail + 1);
            }
        });
        for head in 0..PACKETS {
            let slot = head as usize % SLOTS;
            assert_eq!(wait(|| slots[slot].take()), (7, head + 1));
            // SAFETY: loom checks that there is no concurrent access.
            assert_eq!(ring[slot].with(|packet| unsafe { *packet }), head + 100);
            doorbells.write(0, head + 1);
        }
        nic.join().unwrap();
        assert!(slots.iter().all(|slot| slot.take().is_none()), "no notification twice");
    });
}

/// Memory being sent belongs to the host again only when the NIC reports completion.
#[test]
fn sent_packets_are_as_written() {
    const PACKETS: u32 = 2;
    loom::model(|| {
        let (doorbells, mut receiver) = queue(false);
        let slot: Arc<TxNotification> = Arc::default();
        let memory = Arc::new(UnsafeCell::new(0));
        let (nic_slot, nic_memory) = (Arc::clone(&slot), Arc::clone(&memory));
        let nic = thread::spawn(move || {
            for number in 0..PACKETS {
                assert_eq!(wait(|| receiver.take(u64::MAX)), (16, number));
                assert_eq!(nic_slot.request(), SEND);
                assert_eq!(nic_slot.bytes(), (0x1000, 64 + u64::from(number)));
                // SAFETY: loom checks that there is no concurrent write.
                assert_eq!(nic_memory.with(|packet| unsafe { *packet }), number + 5);
                nic_slot.finish();
            }
        });
        for number in 0..PACKETS {
            // SAFETY: loom checks that there is no concurrent access.
            memory.with_mut(|packet| unsafe { *packet = number + 5 });
            slot.request_send(0x1000, 64 + u64::from(number));
            doorbells.write(16, number);
            wait(|| slot.is_done().then_some(()));
        }
        nic.join().unwrap();
    });
}

/// The refusal of a rule is visible when the request is done.
#[test]
fn a_refusal_is_visible_when_the_request_is_done() {
    loom::model(|| {
        let slot: Arc<TxNotification> = Arc::default();
        let nic_slot = Arc::clone(&slot);
        slot.request_configure([1, 2, 3, 4, 0, 0, 0]);
        let nic = thread::spawn(move || {
            assert_eq!(nic_slot.request(), CONFIGURE);
            nic_slot.refuse(8032);
            nic_slot.finish();
        });
        wait(|| slot.is_done().then_some(()));
        assert_eq!(slot.refused(), 8032);
        nic.join().unwrap();
    });
}

/// Returns the ends of an empty queue of the NIC itself.
fn real_queue(
    stamped: bool,
) -> (super::doorbells::DoorbellSender, super::doorbells::DoorbellReceiver) {
    super::doorbells::ends(
        super::doorbell_mapping::DoorbellMapping::new().unwrap(),
        super::doorbells::DoorbellDelays { stamped, stall: 0 },
    )
}

#[test]
fn writes_arrive_once_and_in_order() {
    let (doorbells, mut arrivals) = real_queue(false);
    assert_eq!(arrivals.take(u64::MAX), None);
    let writer = std::thread::spawn(move || {
        for number in 0..1_000_000u32 {
            doorbells.write(number >> 8, number);
        }
    });
    let mut expected = 0;
    while expected < 1_000_000 {
        if let Some(write) = arrivals.take(u64::MAX) {
            assert_eq!(write, (expected >> 8, expected));
            expected += 1;
        }
    }
    writer.join().unwrap();
    assert_eq!(arrivals.take(u64::MAX), None);
}

#[test]
fn a_delayed_write_has_not_arrived() {
    let (doorbells, mut arrivals) = real_queue(true);
    doorbells.write(8, 9);
    assert_eq!(arrivals.take(0), None);
    assert_eq!(arrivals.take(u64::MAX), Some((8, 9)));
}

#[test]
fn doorbells_do_not_block_after_the_nic_ended() {
    let (doorbells, arrivals) = real_queue(false);
    drop(arrivals);
    for number in 0..10_000 {
        doorbells.write(0, number);
    }
}
