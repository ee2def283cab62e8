//! Modelled delays are lower bounds; the remaining time depends on the machine.

use std::time::Duration;

use crate::testbed::cable::{Wired, flow, frame, of_flits, until};
use crate::testbed::{TestParams, alone, now, ticks};
use stream::host::{Device, RxTxPipe, TxPipe};
use stream::nic::pcie::LinkRate;
use stream::nic::pipes::Notify;

const DOORBELL: Duration = Duration::from_millis(3);
const TRANSFER: Duration = Duration::from_millis(5);

fn wired(notify: Notify, doorbell: Duration, transfer: Duration) -> Wired {
    Wired::new(TestParams { notify, doorbell, transfer, ..TestParams::ring(64) })
}

/// Waits until a pipe has packets. Returns when it last checked before.
fn seen(device: &Device, pipe: &mut RxTxPipe) -> u64 {
    until(device, || !pipe.peek().is_empty());
    now()
}

fn send(pipe: &mut TxPipe) {
    pipe.allocate(64).unwrap()[..60].copy_from_slice(&frame(0, 60, 0));
    pipe.send_and_free(60).unwrap();
}

#[test]
fn a_doorbell_is_delayed() {
    let _alone = alone();
    let wired = wired(Notify::Reactively, DOORBELL, Duration::ZERO);
    let device = wired.device();
    let mut pipe = device.tx_pipe().unwrap();
    for _ in 0..3 {
        let start = now();
        send(&mut pipe);
        let elapsed = wired.departed().at - start;
        assert!(elapsed >= ticks(DOORBELL), "{elapsed} ticks");
    }
}

#[test]
fn a_doorbell_stalls_the_program() {
    let _alone = alone();
    let wired = Wired::new(TestParams { mmio: DOORBELL, ..TestParams::ring(64) });
    let device = wired.device();
    let mut pipe = device.tx_pipe().unwrap();
    for _ in 0..3 {
        let start = now();
        send(&mut pipe);
        let elapsed = now() - start;
        assert!(elapsed >= ticks(DOORBELL), "{elapsed} ticks");
    }
}

/// Packets of 24 flits that nearly fill a ring of 2 MiB, and the bytes that they have in each direction of a link.
const LONG: usize = 1300;
const TO_HOST: usize = LONG * (1536 + 6 * 24);
const TO_NIC: usize = LONG * 1536 / 256 * (256 + 20);

/// Returns the least time in which a link moves bytes.
fn least(bytes: usize) -> u64 {
    let seconds = bytes as f64 / LinkRate::Gen3x16.bytes_per_second().unwrap();
    ticks(Duration::from_secs_f64(seconds))
}

#[test]
fn a_link_delays_notifications_and_packets_to_send() {
    let _alone = alone();
    let wired = Wired::new(TestParams { link: LinkRate::Gen3x16, ..TestParams::default() });
    let device = wired.device();
    let mut pipe = device.rx_tx_pipe().unwrap();
    pipe.bind(flow(0)).unwrap();
    let frames = vec![frame(0, of_flits(24), 0); LONG];
    let start = now();
    wired.arrive(frames);
    let elapsed = seen(&device, &mut pipe) - start;
    assert!(elapsed >= least(TO_HOST), "{elapsed} ticks to receive");
    until(&device, || pipe.peek().len() == LONG * 1536);
    pipe.confirm(LONG * 1536);
    let start = now();
    pipe.send_and_free(LONG * 1536).unwrap();
    let departed: Vec<_> = (0..LONG).map(|_| wired.departed().at).collect();
    let last = departed[departed.len() - 1];
    assert!(last - start >= least(TO_NIC), "{} ticks to send", last - start);
    assert_eq!(wired.counters(LONG as u64).out_packets, LONG as u64);
}

#[test]
fn the_nic_reads_a_notification_and_then_the_packets() {
    let _alone = alone();
    let wired = wired(Notify::Reactively, DOORBELL, TRANSFER);
    let device = wired.device();
    let mut pipe = device.tx_pipe().unwrap();
    let start = now();
    send(&mut pipe);
    let elapsed = wired.departed().at - start;
    assert!(elapsed >= ticks(DOORBELL + 2 * TRANSFER), "{elapsed} ticks");
}

#[test]
fn a_notification_is_delayed_by_a_transfer() {
    let _alone = alone();
    for notify in [Notify::Reactively, Notify::EveryPacket] {
        let wired = wired(notify, Duration::ZERO, TRANSFER);
        let device = wired.device();
        let mut pipe = device.rx_tx_pipe().unwrap();
        pipe.bind(flow(0)).unwrap();
        let elsewhere = wired.device();
        let start = now();
        wired.arrive(vec![frame(0, 60, 0)]);
        // A pipe that is created elsewhere changes nothing.
        let _other = elsewhere.rx_pipe().unwrap();
        let elapsed = seen(&device, &mut pipe) - start;
        assert!(elapsed >= ticks(TRANSFER), "{notify:?}: {elapsed} ticks");
    }
}

/// As the docs state for a round trip: a packet that finds its pipe already notified waits until the program moves
/// the head, which takes one doorbell, and then for the doorbell that sends it.
#[test]
fn a_packet_that_finds_its_pipe_notified_waits_for_two_doorbells() {
    let _alone = alone();
    let wired = wired(Notify::Reactively, DOORBELL, Duration::ZERO);
    let device = wired.device();
    let mut pipe = device.rx_tx_pipe().unwrap();
    pipe.bind(flow(0)).unwrap();
    wired.arrive(vec![frame(0, 60, 1)]);
    seen(&device, &mut pipe);
    wired.arrive(vec![frame(0, 60, 2)]);
    pipe.confirm(64);
    let start = now();
    // Sends the first packet; when it has left, the head moves.
    pipe.send_and_free(64).unwrap();
    let delay = seen(&device, &mut pipe) - start;
    assert!(delay >= ticks(2 * DOORBELL), "{delay} ticks");
    pipe.confirm(64);
    pipe.send_and_free(64).unwrap();
    let left = [wired.departed().at - start, wired.departed().at - start];
    assert!(left[0] >= ticks(DOORBELL) && left[1] >= ticks(3 * DOORBELL), "{left:?} ticks");
}
