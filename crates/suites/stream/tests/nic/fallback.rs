//! Packets that match no rule go to the fallback.

use crate::testbed::cable::{Wired, flow, frame, number, settle, until};
use crate::testbed::{TestParams, alone};
use stream::host::{Device, RxPipe};
use stream::nic::configuration::Configuration;
use stream::nic::fallback::hash;
use stream::wire::frame::read;

/// The number of fallback pipes; one more is bound.
const PIPES: u32 = 5;
/// The destination that is bound to the last pipe, which is not part of the fallback.
const BOUND: u32 = 1000;

/// The pipes and the numbers of the packets received on each.
struct Pipes {
    device: Device,
    pipes: Vec<RxPipe>,
}

impl Pipes {
    fn new(wired: &Wired, round_robin: bool) -> Self {
        let device = wired.device();
        let mut pipes: Vec<_> = (0..=PIPES).map(|_| device.rx_pipe().unwrap()).collect();
        pipes[PIPES as usize].bind(flow(BOUND)).unwrap();
        device.configure(Configuration::Fallback { pipes: PIPES, round_robin }).unwrap();
        Self { device, pipes }
    }

    /// Receives a number of packets; returns their numbers by pipe.
    fn came(&mut self, packets: usize) -> Vec<Vec<u32>> {
        let Self { device, pipes } = self;
        let mut came = vec![Vec::new(); pipes.len()];
        until(device, || {
            for (came, pipe) in came.iter_mut().zip(pipes.iter_mut()) {
                came.extend(pipe.recv().packets().map(|packet| number(packet)));
                pipe.clear();
            }
            came.iter().map(Vec::len).sum::<usize>() == packets
        });
        came
    }
}

/// Returns packets to different destinations; every third goes to the bound one.
fn packets(count: u32) -> Vec<Vec<u8>> {
    let to = |number| if number % 3 == 2 { BOUND } else { number };
    (0..count).map(|number| frame(to(number), 60, number)).collect()
}

#[test]
fn packets_are_spread_by_the_hash_of_their_flow() {
    let _alone = alone();
    let wired = Wired::new(TestParams::ring(1024));
    let mut pipes = Pipes::new(&wired, false);
    let sent = packets(300);
    wired.arrive(sent.clone());
    let came = pipes.came(sent.len());
    let mut expected = vec![Vec::new(); pipes.pipes.len()];
    for (packet, number) in sent.iter().zip(0..) {
        let by_hash = hash(&read(packet).unwrap().flow) % PIPES;
        expected[if number % 3 == 2 { PIPES } else { by_hash } as usize].push(number);
    }
    assert_eq!(came, expected);
    assert!(expected.iter().all(|packets| !packets.is_empty()), "each pipe has some");
}

#[test]
fn packets_are_spread_round_robin() {
    let _alone = alone();
    let wired = Wired::new(TestParams::ring(1024));
    let mut pipes = Pipes::new(&wired, true);
    let mut turn = 0;
    for _ in 0..2 {
        let sent = packets(100);
        wired.arrive(sent.clone());
        let came = pipes.came(sent.len());
        let mut expected = vec![Vec::new(); pipes.pipes.len()];
        for number in 0..sent.len() as u32 {
            let bound = number % 3 == 2;
            expected[if bound { PIPES } else { turn % PIPES } as usize].push(number);
            turn += u32::from(!bound);
        }
        assert_eq!(came, expected);
    }
}

#[test]
fn packets_without_a_fallback_pipe_are_dropped() {
    let _alone = alone();
    let wired = Wired::new(TestParams::ring(1024));
    let mut pipes = Pipes::new(&wired, true);
    // The third of five fallback pipes: every fifth packet.
    drop(pipes.pipes.remove(2));
    let unbound = |count| (0..count).map(|number| frame(number, 60, number)).collect();
    wired.arrive(unbound(50));
    let came = pipes.came(40);
    let places = [0, 1, 3, 4];
    for (came, place) in came.iter().zip(places) {
        assert_eq!(*came, (0..10).map(|turn| turn * 5 + place).collect::<Vec<_>>());
    }
    pipes.device.configure(Configuration::Fallback { pipes: 0, round_robin: true }).unwrap();
    wired.arrive(unbound(7));
    settle(&pipes.device);
    let counters = wired.counters(57);
    assert_eq!((counters.no_queue, counters.dropped(), counters.to_memory), (17, 17, 40));
}
