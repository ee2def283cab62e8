//! Packets leave no faster than the configured rate.

use std::time::Duration;

use crate::testbed::cable::{Wired, frame, settle};
use crate::testbed::{TestParams, alone, counters, ticks};
use stream::host::TxPipe;
use stream::nic::configuration::Configuration;
use stream::nic::layout::FLITS_PER_SECOND;

const PACKETS: u32 = 50;

/// The maximum delay that later packets may make up for.
const MADE_UP: Duration = Duration::from_micros(100);

/// Sends packets with these numbers of flits, one at a time. Returns how long they took to leave, in ticks.
fn leaving(wired: &Wired, pipe: &mut TxPipe, flits: usize) -> u64 {
    let start = crate::testbed::now();
    for number in 0..PACKETS {
        let packet = frame(0, flits * 64 - 4, number);
        pipe.allocate(flits * 64).unwrap()[..packet.len()].copy_from_slice(&packet);
        pipe.send_and_free(packet.len()).unwrap();
    }
    let left = (0..PACKETS).map(|_| wired.departed().at);
    left.fold(start, |_, last| last) - start
}

/// Returns the second longest of several attempts: packets look early if the NIC loses its CPU between reading the clock
/// and sending, and late if it loses it before. A NIC that sends too fast does so in all.
fn second_longest(wired: &Wired, pipe: &mut TxPipe, flits: usize) -> u64 {
    let mut tries: Vec<_> = (0..7).map(|_| leaving(wired, pipe, flits)).collect();
    tries.sort_unstable();
    tries[5]
}

#[test]
fn flits_leave_at_their_share_of_the_hardware_rate() {
    let _alone = alone();
    let wired = Wired::new(TestParams::ring(1024));
    let device = wired.device();
    let mut pipe = device.tx_pipe().unwrap();
    for (numerator, denominator, flits) in [(1, 10_000, 1), (3, 40_000, 1), (2, 10_000, 3)] {
        let limit = Configuration::RateLimit { numerator, denominator, enable: true };
        device.configure(limit).unwrap();
        let rate = FLITS_PER_SECOND * f64::from(numerator) / f64::from(denominator);
        let expected = Duration::from_secs_f64(f64::from(PACKETS - 1) * flits as f64 / rate);
        let elapsed = second_longest(&wired, &mut pipe, flits);
        assert!(
            elapsed >= ticks(expected - MADE_UP),
            "{elapsed} ticks, {expected:?} at {rate} flits/s"
        );
    }
}

#[test]
fn without_a_limit_all_leave_and_a_zero_limit_is_refused() {
    let _alone = alone();
    let wired = Wired::new(TestParams::ring(1024));
    let device = wired.device();
    let mut pipe = device.tx_pipe().unwrap();
    // So slow that nothing would leave before the test timed out.
    let slow = Configuration::RateLimit { numerator: 1, denominator: u16::MAX, enable: true };
    device.configure(slow).unwrap();
    for (numerator, denominator) in [(0, 1), (1, 0)] {
        let nothing = Configuration::RateLimit { numerator, denominator, enable: true };
        device.configure(nothing).unwrap();
    }
    device
        .configure(Configuration::RateLimit { numerator: 0, denominator: 0, enable: false })
        .unwrap();
    leaving(&wired, &mut pipe, 1);
    settle(&device);
    let all = u64::from(PACKETS);
    assert_eq!(counters(&wired.nic, |now| now.out_packets == all).refused, 2);
}
