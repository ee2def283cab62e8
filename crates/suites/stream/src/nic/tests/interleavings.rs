//! Every order in which the loads and stores of both ends may take effect, as loom tries them, over the very
//! files that the NIC and its programs are built of: only the atomics are loom's.
#![allow(dead_code, reason = "the files have more than is tried here")]
#![allow(unreachable_pub, reason = "as modules of their own they are reached by nobody")]
#![allow(clippy::duplicate_mod, reason = "that is the point")]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use doorbell_queue::DoorbellQueue;
use doorbells::{DoorbellReceiver, DoorbellSender, ends};
use notification::{CONFIGURE, RxNotification, SEND, TxNotification};

#[path = "../doorbell_queue.rs"]
mod doorbell_queue;
#[path = "../doorbells.rs"]
mod doorbells;
#[path = "../notification.rs"]
mod notification;

/// What stands in the place of the real ones.
mod sync {
    pub(super) use loom::hint::spin_loop;
    pub(super) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};

    /// As few as show it all: laps come soon.
    pub(crate) const CREDIT: u32 = 4;
}

/// A queue on the heap of this process.
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
    ends(doorbell_mapping::DoorbellMapping(Arc::new(DoorbellQueue::default())), stamped)
}

/// Tries until there is something.
fn wait<T>(mut get: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(got) = get() {
            return got;
        }
        thread::yield_now();
    }
}

/// More than a lap of a queue whose writer is held up by its credit. So many times a thread may lose its core
/// to the other where it need not: all orders beyond that are too many to try.
fn writes_arrive(stamped: bool, lost: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(lost);
    model.check(move || {
        let (doorbells, mut arrivals) = queue(stamped);
        let writer = thread::spawn(move || {
            (1..=WRITES).for_each(|number| doorbells.write(number + 10, number));
        });
        for number in 1..=WRITES {
            if stamped {
                assert_eq!(arrivals.take(0), None, "nothing was written so long ago");
            }
            assert_eq!(wait(|| arrivals.take(u64::MAX)), (number + 10, number));
        }
        assert_eq!(arrivals.take(u64::MAX), None);
        writer.join().unwrap();
    });
}

const WRITES: u32 = sync::CREDIT + 2;

#[test]
fn writes_arrive_once_in_order_and_wait_for_credit() {
    writes_arrive(false, 3);
}

#[test]
fn writes_arrive_with_when_they_were_made() {
    writes_arrive(true, 2);
}

#[test]
fn a_writer_does_not_wait_for_a_nic_that_has_gone() {
    loom::model(|| {
        let (doorbells, mut arrivals) = queue(false);
        let writer = thread::spawn(move || (0..6).for_each(|it| doorbells.write(0, it)));
        let _ = arrivals.take(u64::MAX);
        drop(arrivals);
        writer.join().unwrap();
    });
}

/// Packets and notifications, two slots of each, of which the NIC leaves one free. The program gives a slot
/// back by a doorbell; on its next lap the NIC must not be told that it is still full, nor have what it then
/// writes there overwritten.
#[test]
fn packets_are_there_when_the_program_is_told_and_no_notification_is_lost() {
    const SLOTS: usize = 2;
    const PACKETS: u32 = 3;
    loom::model(|| {
        let (doorbells, mut arrivals) = queue(false);
        let slots: Arc<[RxNotification; SLOTS]> = Arc::default();
        let ring: Arc<[UnsafeCell<u32>; SLOTS]> =
            Arc::new([UnsafeCell::new(0), UnsafeCell::new(0)]);
        let (nic_slots, nic_ring) = (Arc::clone(&slots), Arc::clone(&ring));
        let nic = thread::spawn(move || {
            let mut head = 0;
            for tail in 0..PACKETS {
                while tail - head == SLOTS as u32 - 1 {
                    head = wait(|| arrivals.take(u64::MAX)).1;
                }
                let slot = tail as usize % SLOTS;
                // SAFETY: loom sees to it that nobody else has it.
                nic_ring[slot].with_mut(|packet| unsafe { *packet = tail + 100 });
                nic_slots[slot].notify(7, tail + 1);
            }
        });
        for head in 0..PACKETS {
            let slot = head as usize % SLOTS;
            assert_eq!(wait(|| slots[slot].take()), (7, head + 1));
            // SAFETY: as above.
            assert_eq!(ring[slot].with(|packet| unsafe { *packet }), head + 100);
            doorbells.write(0, head + 1);
        }
        nic.join().unwrap();
        assert!(slots.iter().all(|slot| slot.take().is_none()), "nothing is told twice");
    });
}

/// Memory that is sent from is the program's again when the NIC says so, and not before.
#[test]
fn what_is_sent_is_what_was_written() {
    const PACKETS: u32 = 2;
    loom::model(|| {
        let (doorbells, mut arrivals) = queue(false);
        let slot: Arc<TxNotification> = Arc::default();
        let memory = Arc::new(UnsafeCell::new(0));
        let (nic_slot, nic_memory) = (Arc::clone(&slot), Arc::clone(&memory));
        let nic = thread::spawn(move || {
            for number in 0..PACKETS {
                assert_eq!(wait(|| arrivals.take(u64::MAX)), (16, number));
                assert_eq!(nic_slot.request(), SEND);
                assert_eq!(nic_slot.bytes(), (0x1000, 64 + u64::from(number)));
                // SAFETY: loom sees to it that nobody changes it.
                assert_eq!(nic_memory.with(|packet| unsafe { *packet }), number + 5);
                nic_slot.finish();
            }
        });
        for number in 0..PACKETS {
            // SAFETY: as above.
            memory.with_mut(|packet| unsafe { *packet = number + 5 });
            slot.request_send(0x1000, 64 + u64::from(number));
            doorbells.write(16, number);
            wait(|| slot.is_done().then_some(()));
        }
        nic.join().unwrap();
    });
}

/// Whether a rule has a place is known once the NIC says that it is done.
#[test]
fn what_was_refused_is_told_before_it_is_done() {
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
