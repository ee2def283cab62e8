//! The order of notifications, and the batches in which a program takes them.

use crate::testbed::cable::{Wired, flow, frame};
use crate::testbed::{TestParams, alone, counters, echo};
use stream::host::{Device, NotificationBatch, RxTxPipe, Sizes};
use stream::nic::PlacementOrder;
use stream::nic::pipes::Notify;
use stream::serve::{PipesServer, Server};
use stream::steering::CorePipes;

/// Size of a batch in Ensō's library.
const BATCH: usize = 64;

fn wired(notify: Notify, placement: PlacementOrder, batch: NotificationBatch) -> Wired {
    let sizes = Sizes { ring: 1 << 16, batch, ..Sizes::default() };
    Wired::new(TestParams { notify, placement, sizes, ..TestParams::default() })
}

fn pipes(device: &Device, count: u32) -> Vec<RxTxPipe> {
    let pipe = |number| {
        let mut pipe = device.rx_tx_pipe().unwrap();
        pipe.bind(flow(number)).unwrap();
        pipe
    };
    (0..count).map(pipe).collect()
}

/// Makes packets to these pipes arrive together, and waits for a number of notifications.
fn arrive(wired: &Wired, destinations: &[u32], notifications: u64) {
    let packets = destinations.iter().zip(0..).map(|(pipe, number)| frame(*pipe, 60, number));
    wired.arrive(packets.collect());
    counters(&wired.nic, |now| now.notifications == notifications);
}

#[test]
fn notifications_per_packet_have_the_order_of_the_packets() {
    let _alone = alone();
    const DESTINATIONS: [u32; 8] = [1, 0, 2, 2, 1, 0, 1, 1];
    let by_pipe = [0, 0, 1, 1, 1, 1, 2, 2];
    let wire_order = DESTINATIONS.map(|pipe| pipe as usize);
    for (order, expected) in
        [(PlacementOrder::WireOrder, wire_order), (PlacementOrder::ByPipe, by_pipe)]
    {
        let wired = wired(Notify::EveryPacket, order, NotificationBatch::Of64);
        let device = wired.device();
        let mut pipes = pipes(&device, 3);
        arrive(&wired, &DESTINATIONS, 8);
        let found: Vec<_> = std::iter::from_fn(|| device.next()).collect();
        assert_eq!(found, expected, "{order:?}");
        // Each has its pipe's packets, in order.
        for (pipe, number) in pipes.iter_mut().zip(0..) {
            let numbers =
                pipe.recv().packets().map(|packet| u32::from(packet[42])).collect::<Vec<_>>();
            let expected = (0..8).filter(|index| DESTINATIONS[*index as usize] == number);
            assert_eq!(numbers, expected.collect::<Vec<_>>(), "{order:?}");
        }
    }
}

#[test]
fn a_batch_has_64_notifications_that_are_not_merged() {
    let _alone = alone();
    const PACKETS: usize = 2 * BATCH + 2;
    let wired = wired(Notify::EveryPacket, PlacementOrder::WireOrder, NotificationBatch::Of64);
    let device = wired.device();
    let mut pipes = pipes(&device, 1);
    arrive(&wired, &[0; PACKETS], PACKETS as u64);
    for number in 0..PACKETS {
        assert_eq!(device.next(), Some(0), "notification {number}");
        let is_last = number % BATCH == BATCH - 1 || number == PACKETS - 1;
        assert_eq!(device.upcoming(), (!is_last).then_some(0), "notification {number}");
        let received = pipes[0].recv().len() / 64;
        // The first of a batch receives the packets of all.
        let expected = if number % BATCH == 0 { BATCH.min(PACKETS - number) } else { 0 };
        assert_eq!(received, expected, "notification {number}");
    }
    assert_eq!(device.next(), None);
}

#[test]
fn merged_notifications_return_each_pipe_once() {
    let _alone = alone();
    const PACKETS: usize = 3 * BATCH;
    let wired = wired(Notify::EveryPacket, PlacementOrder::WireOrder, NotificationBatch::Merged);
    let device = wired.device();
    let mut pipes = pipes(&device, 2);
    let destinations: Vec<_> = (0..PACKETS as u32).map(|number| number % 2).collect();
    arrive(&wired, &destinations, PACKETS as u64);
    for (number, pipe) in pipes.iter_mut().enumerate() {
        assert_eq!(device.next(), Some(number));
        assert_eq!(pipe.recv().len(), PACKETS / 2 * 64);
    }
    assert_eq!(device.next(), None);
}

#[test]
fn the_server_prefetches_the_next_pipe_of_the_batch() {
    let _alone = alone();
    let batch = NotificationBatch::Of64;
    let wired = wired(Notify::Reactively, PlacementOrder::WireOrder, batch);
    let flows: Vec<_> = (0..4).map(flow).collect();
    let of_core = CorePipes::per_flow(&flows);
    let mut server = PipesServer::new(&wired.nic.port(), wired.sizes, &of_core, true).unwrap();
    // Of pipes 0 and 3; the others have no packets.
    arrive(&wired, &[0, 3], 2);
    assert_eq!(server.poll(&mut echo(0)), Ok(1));
    // The requested notification of pipe 3, whose packet is not freed.
    counters(&wired.nic, |now| now.notifications == 3 && now.out_packets == 1);
    assert_eq!(server.poll(&mut echo(0)), Ok(1));
    // Its second notification finds nothing.
    assert_eq!(server.poll(&mut echo(0)), Ok(0));
}
