//! Tests of the doorbell queue with real threads.

mod interleavings;

use super::doorbell_mapping::DoorbellMapping;
use super::doorbells::ends;

#[test]
fn writes_arrive_once_and_in_order() {
    let (doorbells, mut arrivals) = ends(DoorbellMapping::new().unwrap(), false);
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
    let (doorbells, mut arrivals) = ends(DoorbellMapping::new().unwrap(), true);
    doorbells.write(8, 9);
    assert_eq!(arrivals.take(0), None);
    assert_eq!(arrivals.take(u64::MAX), Some((8, 9)));
}

#[test]
fn doorbells_do_not_block_after_the_nic_ended() {
    let (doorbells, arrivals) = ends(DoorbellMapping::new().unwrap(), false);
    drop(arrivals);
    for number in 0..10_000 {
        doorbells.write(0, number);
    }
}
