//! Sent packets carry the time, and returned packets tell how long they were in flight.

use std::time::Duration;

use crate::testbed::cable::{CableCommand, Wired, flow, frame, number, of_flits, settle, until};
use crate::testbed::{TestParams, Testbed, alone, closed, nothing_is_lost, now, ticks, traffic};
use machine::tsc::Tsc;
use stream::generator::{Check, Trial};
use stream::host::{Device, round_trip};
use stream::nic::configuration::Configuration;
use stream::nic::layout::TIMESTAMP;
use stream::wire::sample::Sizes as PacketSizes;

/// The minimum time of a packet on the cable.
const CABLE: Duration = Duration::from_micros(300);

/// Sends packets with these numbers of flits, some wrapped around and cut. Returns the received packets and the
/// total time.
fn round(wired: &Wired, flits: usize, packets: u32) -> (Vec<Vec<u8>>, Duration) {
    let device = wired.device();
    let (mut rx, mut tx) = (device.rx_pipe().unwrap(), device.tx_pipe().unwrap());
    rx.bind(flow(0)).unwrap();
    let mut back: Vec<Vec<u8>> = Vec::new();
    let start = now();
    for number in 0..packets {
        let sent = frame(0, of_flits(flits), number);
        let buffer = tx.allocate(flits * 64).unwrap();
        buffer[..sent.len()].copy_from_slice(&sent);
        tx.send_and_free(sent.len()).unwrap();
        until(&device, || {
            back.extend(rx.recv().packets().map(|packet| packet.to_vec()));
            rx.clear();
            back.len() > number as usize
        });
        // The program's own copy is unchanged.
        settle(&device);
        let there = tx.extend();
        assert_eq!(there.len(), wired.sizes.ring);
        assert_eq!(&there[there.len() - flits * 64..][..sent.len()], sent);
    }
    let nanoseconds = Tsc::get().unwrap().nanoseconds((now() - start) as f64);
    (back, Duration::from_nanos(nanoseconds as u64))
}

/// The resolution of a timestamp.
const STEP: Duration = Duration::from_nanos(10);

#[test]
fn a_round_trip_takes_the_cable_delay_and_at_most_the_wait() {
    let _alone = alone();
    let wired = Wired::new(TestParams::ring(64));
    wired.nic.command(CableCommand::LoopBack(ticks(CABLE)));
    for offset in [TIMESTAMP, 0, 8, 56] {
        let enable = Configuration::Timestamp { offset, enable: true };
        wired.device().configure(enable).unwrap();
        for flits in [1, 24] {
            let (back, all) = round(&wired, flits, 4);
            let trips: Vec<_> = back.iter().map(|one| round_trip(one, offset).unwrap()).collect();
            assert!(trips.iter().all(|trip| *trip + STEP >= CABLE), "{trips:?}");
            // One packet at a time.
            let sum = trips.iter().sum::<Duration>();
            assert!(sum <= all + STEP * 4, "{sum:?} of {all:?}");
            for (packet, expected) in back.iter().zip(0..) {
                let mut sent = frame(0, of_flits(flits), expected);
                let field = usize::from(offset)..usize::from(offset) + 4;
                sent[field.clone()].copy_from_slice(&packet[field]);
                assert_eq!(*packet, sent, "nothing but the timestamp");
            }
        }
    }
}

#[test]
fn without_timestamps_nothing_is_written() {
    let _alone = alone();
    let wired = Wired::new(TestParams::ring(64));
    wired.nic.command(CableCommand::LoopBack(0));
    for enable in [true, false] {
        let change = Configuration::Timestamp { offset: TIMESTAMP, enable };
        wired.device().configure(change).unwrap();
    }
    let (back, _) = round(&wired, 2, 3);
    for (packet, expected) in back.iter().zip(0..) {
        assert_eq!(*packet, frame(0, of_flits(2), expected));
        assert_eq!(number(packet), expected);
    }
}

#[test]
fn timestamps_in_the_length_or_beyond_the_first_flit_are_refused() {
    let _alone = alone();
    let wired = Wired::new(TestParams::ring(64));
    let device = wired.device();
    let mut refused = 0;
    for (offset, possible) in
        [(12, true), (13, false), (17, false), (18, true), (60, true), (61, false), (255, false)]
    {
        device.configure(Configuration::Timestamp { offset, enable: true }).unwrap();
        refused += u64::from(!possible);
        crate::testbed::counters(&wired.nic, |counters| counters.refused == refused);
    }
}

/// If they were elsewhere, the generator would not recognise its packets.
#[test]
fn bursts_to_several_pipes_are_stamped_in_place() {
    const PACKETS: u64 = 20_000;
    let _alone = alone();
    for size in [PacketSizes::One(64), PacketSizes::Imix] {
        let testbed = Testbed::new(TestParams::ring(1024), &traffic(24, size, 2));
        let device = Device::new(&testbed.nic.port(), testbed.params.sizes).unwrap();
        let enable = Configuration::Timestamp { offset: TIMESTAMP, enable: true };
        device.configure(enable).unwrap();
        let echo = testbed.echo();
        // Everything but the timestamps is unchanged: number, length and the checked word.
        let report = testbed.run(Trial { check: Check::OneWord, ..closed(PACKETS, 21) });
        nothing_is_lost(&report, PACKETS);
        // The timestamps are there.
        let report = testbed.run(closed(PACKETS, 21));
        assert_eq!((report.received, report.corrupted), (PACKETS, PACKETS));
        assert_eq!(echo.end(), 2 * PACKETS);
    }
}
