//! Packets cross the end of a ring at every possible offset.

use std::collections::BTreeSet;

use crate::testbed::cable::{Wired, flow, frame, of_flits, settle, until};
use crate::testbed::{TestParams, alone, counters};
use stream::host::{Device, RxTxPipe, Sizes, TxPipe};
use stream::nic::pipes::Notify;

/// The rings' flits and the buffers' notifications; small, so that both wrap around often.
const RING: usize = 64;
const NOTIFICATIONS: u32 = 8;

/// The sizes in flits of the packets of a round. They fit the ring and their sum is odd, so each size starts at every
/// offset after as many rounds as the ring has flits.
const TOGETHER: [usize; 7] = [1, 2, 3, 5, 8, 12, 24];

fn params(notify: Notify) -> TestParams {
    let sizes = Sizes { ring: RING * 64, notifications: NOTIFICATIONS, ..Sizes::default() };
    TestParams { notify, sizes, ..TestParams::default() }
}

/// Returns the packets of a round.
fn packets(round: usize) -> Vec<Vec<u8>> {
    let numbers = (round * TOGETHER.len()) as u32..;
    TOGETHER.iter().zip(numbers).map(|(flits, it)| frame(0, of_flits(*flits), it)).collect()
}

/// Receives the packets of a round and sends them back. Returns the offset of each in the ring.
fn echo(device: &Device, pipe: &mut RxTxPipe, expected: &[Vec<u8>]) -> Vec<(usize, usize)> {
    let mut places = Vec::new();
    until(device, || {
        let mut batch = pipe.peek().packets();
        for packet in &mut batch {
            assert_eq!(packet, &expected[places.len()][..]);
            // The ring is aligned to a page and is one page long.
            let offset = packet.as_ptr() as usize % (RING * 64) / 64;
            places.push((TOGETHER[places.len()], offset));
        }
        let bytes = batch.processed();
        pipe.confirm(bytes);
        pipe.send_and_free(bytes).unwrap();
        places.len() == TOGETHER.len()
    });
    places
}

/// Sends the packets of a round from transmit memory.
fn send(pipe: &mut TxPipe, packets: &[Vec<u8>]) {
    let flits = TOGETHER.iter().sum::<usize>();
    let buffer = pipe.allocate(flits * 64).unwrap();
    let mut at = 0;
    for packet in packets {
        buffer[at..at + packet.len()].copy_from_slice(packet);
        at += packet.len().div_ceil(64) * 64;
    }
    pipe.send_and_free(at).unwrap();
}

fn every_size_at_every_offset(notify: Notify) {
    let wired = Wired::new(params(notify));
    let device = wired.device();
    let mut back = device.rx_tx_pipe().unwrap();
    let mut pipe = device.tx_pipe().unwrap();
    back.bind(flow(0)).unwrap();
    let mut seen = BTreeSet::new();
    for round in 0..RING {
        let packets = packets(round);
        wired.arrive(packets.clone());
        seen.extend(echo(&device, &mut back, &packets));
        send(&mut pipe, &packets);
        // First the received packets, then the written ones.
        for expected in packets.iter().chain(&packets) {
            assert_eq!(wired.departed().bytes, *expected);
        }
        settle(&device);
    }
    assert_eq!(seen.len(), TOGETHER.len() * RING, "each size at each offset");
    assert!(wired.nothing_departed());
    let all = (TOGETHER.len() * RING) as u64;
    let counters = counters(&wired.nic, |now| now.out_packets == 2 * all);
    assert_eq!((counters.in_packets, counters.to_memory, counters.refused), (all, all, 0));
}

#[test]
fn packets_of_several_sizes_with_reactive_notifications() {
    let _alone = alone();
    every_size_at_every_offset(Notify::Reactively);
}

#[test]
fn packets_of_several_sizes_with_one_notification_each() {
    let _alone = alone();
    every_size_at_every_offset(Notify::EveryPacket);
}

/// One flit stays free, so that a full ring differs from an empty one.
#[test]
fn a_ring_holds_all_flits_but_one_at_any_start() {
    let _alone = alone();
    let wired = Wired::new(params(Notify::Reactively));
    let device = wired.device();
    let mut pipe = device.rx_pipe().unwrap();
    pipe.bind(flow(0)).unwrap();
    for round in 0..RING as u32 {
        let sent: Vec<_> = (0..RING as u32).map(|it| frame(0, 60, round << 8 | it)).collect();
        wired.arrive(sent.clone());
        let mut came = 0;
        until(&device, || {
            let batch = pipe.recv().packets();
            came += batch.zip(&sent[came..]).map(|(one, other)| assert_eq!(one, other)).count();
            came > 0
        });
        assert_eq!(came, RING - 1);
        pipe.clear();
        settle(&device);
    }
    let all = (RING * RING) as u64;
    let counters = wired.counters(all);
    assert_eq!((counters.ring_full, counters.dropped()), (RING as u64, RING as u64));
}
