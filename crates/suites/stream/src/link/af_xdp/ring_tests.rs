//! Tests of the rings with indices as the kernel writes them.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};

use machine::mapping::Mapping;
use machine::memfd::Memfd;
use proptest::prelude::*;
use rustix::net::xdp::XdpRingOffset;

use super::ring::Ring;

const SIZE: u32 = 8;
const OFFSET: XdpRingOffset =
    XdpRingOffset { producer: 0, consumer: 64, desc: 128, flags: Some(4) };

/// Both sides of a ring in a memfd: the side under test, and words as the kernel would write them.
fn ring() -> (Ring<u64>, Mapping) {
    let memfd = Memfd::sealed("ring", 4096).unwrap();
    let ring = Ring::map(memfd.as_fd(), 0, &OFFSET, SIZE).unwrap();
    (ring, Mapping::shared(&memfd, 4096).unwrap())
}

fn set(kernel: &Mapping, offset: usize, value: u32) {
    // SAFETY: within the mapping, and aligned.
    unsafe { &*kernel.as_ptr().add(offset).cast::<AtomicU32>() }.store(value, Ordering::Release);
}

#[test]
fn entries_wrap_around() {
    let (mut ring, kernel) = ring();
    for round in 0..5_u64 {
        (0..SIZE).for_each(|entry| ring.push(round * 100 + u64::from(entry)));
        ring.publish();
        assert_eq!(ring.pending().unwrap(), SIZE);
        set(&kernel, 64, (round as u32 + 1) * SIZE);
        assert_eq!(ring.pending().unwrap(), 0);
    }
    set(&kernel, 4, 1);
    assert!(ring.needs_wakeup());
}

#[test]
fn consumed_entries_are_returned_in_order() {
    let (mut ring, kernel) = ring();
    set(&kernel, 0, 5);
    let mut seen = 0;
    ring.consume(3, |_| {
        seen += 1;
        Ok(())
    })
    .unwrap();
    ring.consume(3, |_| {
        seen += 1;
        Ok(())
    })
    .unwrap();
    assert_eq!(seen, 5);
}

proptest! {
    #[test]
    fn any_index_of_the_kernel_is_in_range_or_refused(index: u32) {
        let (mut ring, kernel) = ring();
        set(&kernel, 0, index);
        set(&kernel, 64, index.wrapping_neg());
        let mut entries = 0;
        let consumed = ring.consume(u32::MAX, |_| { entries += 1; Ok(()) });
        prop_assert_eq!(consumed.is_ok(), index <= SIZE);
        prop_assert_eq!(entries, if index <= SIZE { index } else { 0 });
        let (ring, kernel) = self::ring();
        set(&kernel, 64, index.wrapping_neg());
        prop_assert_eq!(ring.pending().is_ok(), index <= SIZE);
    }
}
