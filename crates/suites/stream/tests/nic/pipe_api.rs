//! Each method of the pipes.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::testbed::cable::{Wired, flow, frame, number, of_flits, settle, until};
use crate::testbed::{TestParams, alone};
use stream::host::{Device, RxPipe};
use stream::wire::packet;

/// Returns a pipe that received packets of 1, 2 and 3 flits.
fn received(wired: &Wired) -> (Device, RxPipe, Vec<Vec<u8>>) {
    let device = wired.device();
    let mut pipe = device.rx_pipe().unwrap();
    pipe.bind(flow(0)).unwrap();
    let sent: Vec<_> = (1..=3).map(|flits| frame(0, of_flits(flits), flits as u32)).collect();
    wired.arrive(sent.clone());
    until(&device, || pipe.peek().len() == 6 * 64);
    (device, pipe, sent)
}

fn panics(what: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(what)).is_err()
}

#[test]
fn peeked_messages_return_until_they_are_confirmed() {
    let _alone = alone();
    let wired = Wired::new(TestParams::ring(64));
    let (_device, mut pipe, sent) = received(&wired);
    for _ in 0..2 {
        let packets: Vec<_> = pipe.peek().packets().map(|packet| packet.to_vec()).collect();
        assert_eq!(packets, sent);
    }
    for most in [1 << 32, 1 << 38, usize::MAX] {
        assert_eq!(pipe.peek_at_most(most).len(), 6 * 64);
    }
    // Whole flits, at least one; the second packet is cut.
    assert_eq!(pipe.peek_at_most(0).len(), 64);
    assert_eq!(pipe.peek_at_most(128).len(), 128);
    let mut cut = pipe.peek_at_most(128).packets();
    assert_eq!(cut.by_ref().count(), 1);
    assert_eq!(cut.processed(), 64);
    pipe.confirm(64);
    let mut rest = pipe.peek().packets();
    assert_eq!(rest.next().map(|packet| number(packet)), Some(2));
    assert_eq!(rest.processed(), 128);
    assert_eq!(pipe.recv().len(), 5 * 64);
    assert!(pipe.recv().is_empty());
}

#[test]
fn confirming_and_freeing_beyond_the_received_is_refused() {
    let _alone = alone();
    let wired = Wired::new(TestParams::ring(64));
    let (device, mut pipe, _) = received(&wired);
    for bytes in [6 * 64 + 1, 7 * 64, 1 << 38, usize::MAX] {
        assert!(panics(|| pipe.confirm(bytes)), "{bytes}");
        assert!(panics(|| pipe.free(bytes)), "{bytes}");
    }
    pipe.confirm(6 * 64);
    assert!(panics(|| pipe.free(7 * 64)));
    pipe.free(64);
    pipe.clear();
    assert!(panics(|| pipe.free(1)));
    // The pipe still works.
    settle(&device);
    wired.arrive((0..63).map(|it| frame(0, 60, it)).collect());
    until(&device, || pipe.recv().packets().count() == 63);
}

#[test]
fn unfreed_messages_keep_their_space_and_a_pipe_notifies_on_request() {
    let _alone = alone();
    let wired = Wired::new(TestParams::ring(64));
    let (device, mut pipe, sent) = received(&wired);
    pipe.recv();
    // Space for 57 more.
    wired.arrive((10..70).map(|it| frame(0, 60, it)).collect());
    settle(&device);
    while device.next().is_some() {}
    assert!(pipe.peek().is_empty(), "no call moved the head");
    pipe.prefetch();
    until(&device, || !pipe.peek().is_empty());
    let came: Vec<_> = pipe.recv().packets().map(|packet| number(packet)).collect();
    assert_eq!(came, (10..67).collect::<Vec<_>>());
    assert_eq!(wired.counters(63).ring_full, 3);
    pipe.free(6 * 64);
    settle(&device);
    wired.arrive(sent[..2].to_vec());
    pipe.prefetch();
    until(&device, || pipe.peek().len() == 3 * 64);
    let packets: Vec<_> = pipe.recv().packets().map(|packet| packet.to_vec()).collect();
    assert_eq!(packets, sent[..2]);
}

#[test]
fn messages_have_the_length_that_a_program_frees() {
    let _alone = alone();
    let wired = Wired::new(TestParams::ring(64));
    let (_device, mut pipe, sent) = received(&wired);
    let mut seen = 0;
    let messages = pipe.recv().messages(|flit: &[u8; 64]| {
        seen += 1;
        // A length function of the program: the packet's number, which equals its flits here.
        number(flit) as usize * 64
    });
    let messages: Vec<_> = messages.map(|message| message.to_vec()).collect();
    assert_eq!(messages.iter().map(Vec::len).collect::<Vec<_>>(), [64, 128, 192]);
    for (message, packet) in messages.iter().zip(&sent) {
        assert_eq!(message[..packet.len()], packet[..]);
        assert!(message[packet.len()..].iter().all(|byte| *byte == 0), "padded with zeros");
    }
    assert_eq!(seen, 3);
}

#[test]
fn transmit_memory_is_free_once_sent() {
    let _alone = alone();
    let wired = Wired::new(TestParams::ring(64));
    let device = wired.device();
    let mut pipe = device.tx_pipe().unwrap();
    assert!(panics(|| drop(pipe.allocate(64 * 64 + 1))));
    assert!(panics(|| pipe.send_and_free(64 * 64 + 1).unwrap()));
    assert!(panics(|| pipe.send_and_free(1 << 38).unwrap()));
    // The whole ring each time, from different offsets; waits until the last packet has left.
    for round in 0..10 {
        let buffer = pipe.allocate(64 * 64).unwrap();
        assert_eq!(buffer.len(), 64 * 64);
        for (flit, it) in buffer.chunks_mut(64).zip(round * 64..) {
            flit[..60].copy_from_slice(&frame(0, 60, it));
        }
        pipe.send_and_free(63 * 64).unwrap();
    }
    for expected in (0..640).filter(|it| it % 64 != 63) {
        assert_eq!(wired.departed().bytes, frame(0, 60, expected));
    }
    settle(&device);
    assert_eq!(pipe.extend().len(), 64 * 64);
    // Written and unsent packets are still there.
    assert_eq!(pipe.extend()[..60], frame(0, 60, 639));
}

#[test]
fn sending_nothing_does_nothing() {
    let _alone = alone();
    let wired = Wired::new(TestParams::ring(64));
    let device = wired.device();
    let (mut tx, mut both) = (device.tx_pipe().unwrap(), device.rx_tx_pipe().unwrap());
    both.bind(flow(0)).unwrap();
    settle(&device);
    // The binding and the two requests that drained it.
    let before = crate::testbed::counters(&wired.nic, |now| now.transmissions == 3);
    (0..100).for_each(|_| tx.send_and_free(0).unwrap());
    (0..100).for_each(|_| both.send_and_free(0).unwrap());
    settle(&device);
    let counters = crate::testbed::counters(&wired.nic, |now| now.transmissions == 5);
    assert_eq!(counters.head_updates, before.head_updates);
}

#[test]
fn a_pipe_sends_back_what_it_received_in_parts() {
    let _alone = alone();
    let wired = Wired::new(TestParams::ring(64));
    let device = wired.device();
    let mut pipe = device.rx_tx_pipe().unwrap();
    pipe.bind(flow(0)).unwrap();
    for round in 0..3 {
        let sent: Vec<_> =
            (1..=6).map(|flits| frame(0, of_flits(flits), round * 8 + flits as u32)).collect();
        wired.arrive(sent.clone());
        until(&device, || pipe.peek().len() == 21 * 64);
        assert!(panics(|| pipe.send_and_free(1).unwrap()), "nothing is confirmed");
        for packet in pipe.recv().packets() {
            packet[50] ^= 0xff;
        }
        // Two notifications contain parts of the fourth packet; the last ends inside its last flit.
        for bytes in [6 * 64, 2 * 64, 12 * 64 + 1] {
            pipe.send_and_free(bytes).unwrap();
        }
        for expected in &sent {
            let mut left = wired.departed().bytes;
            left[50] ^= 0xff;
            assert_eq!(left, *expected);
        }
        settle(&device);
    }
    let flits = wired.counters(18).flits;
    assert_eq!(flits, 3 * 21);
    assert_eq!(packet::flits(of_flits(3)), 3);
}

/// Allocates and frees any number of transmit pipes in turn.
#[test]
fn transmit_pipes_can_be_allocated_and_freed() {
    let _alone = alone();
    let wired = Wired::new(TestParams::ring(64));
    let device = wired.device();
    let mut kept = device.tx_pipe().unwrap();
    for it in 0..20 {
        let mut other = device.tx_pipe().unwrap();
        for (pipe, it) in [(&mut kept, 2 * it), (&mut other, 2 * it + 1)] {
            pipe.allocate(60).unwrap()[..60].copy_from_slice(&frame(0, 60, it));
            pipe.send_and_free(60).unwrap();
        }
    }
    for expected in 0..40 {
        assert_eq!(wired.departed().bytes, frame(0, 60, expected));
    }
    settle(&device);
    assert_eq!(kept.extend().len(), 64 * 64);
}

#[test]
fn freed_bytes_are_free_only_after_those_before_them_are_sent() {
    let _alone = alone();
    let wired = Wired::new(TestParams::ring(64));
    let device = wired.device();
    let mut pipe = device.rx_tx_pipe().unwrap();
    pipe.bind(flow(0)).unwrap();
    // 60 of 64 flits: 40 that are sent, 20 that are not.
    let sent: Vec<_> =
        [20, 20, 20].iter().zip(0..).map(|(flits, it)| frame(0, of_flits(*flits), it)).collect();
    wired.arrive(sent.clone());
    until(&device, || pipe.peek().len() == 60 * 64);
    pipe.recv();
    pipe.send_and_free(40 * 64).unwrap();
    pipe.free(20 * 64);
    assert_eq!(pipe.confirmed(), 0);
    for expected in &sent[..2] {
        assert_eq!(wired.departed().bytes, *expected);
    }
    // The device has not processed the completion: what it has not freed does not move the others.
    wired.arrive(vec![frame(0, of_flits(4), 3)]);
    assert_eq!(wired.counters(4).ring_full, 1, "3 flits are free");
    settle(&device);
    wired.arrive(vec![frame(0, of_flits(20), 4), frame(0, of_flits(20), 5)]);
    until(&device, || pipe.peek().len() == 40 * 64);
    // Nothing is being sent, so these are free at once.
    pipe.recv();
    let before = wired.counters(6).head_updates;
    pipe.free(40 * 64);
    // The NIC reads the doorbell in its next turn.
    let start = std::time::Instant::now();
    let freed = loop {
        let freed = wired.counters(6).head_updates;
        if freed > before {
            break freed;
        }
        assert!(start.elapsed().as_secs() < 10, "the NIC does not read the doorbell");
        std::thread::yield_now();
    };
    wired.arrive((6..9).map(|it| frame(0, of_flits(21), it)).collect());
    let now = wired.counters(9);
    assert_eq!((now.ring_full, now.head_updates, now.to_memory), (1, freed, 8));
    assert!(wired.nothing_departed());
}
