//! Pipes, devices and bindings are created and dropped during traffic.

use std::time::Duration;

use crate::testbed::cable::{Wired, flow, frame, number, settle, until};
use crate::testbed::{
    TIMEOUT, TestParams, Testbed, alone, closed, counters, flows, nothing_is_lost, ticks, touch,
    traffic,
};
use machine::tsc::Tsc;
use stream::generator::{GeneratorCommand, Pace, Trial};
use stream::host::{ConfigError, Device, RxTxPipe};
use stream::nic::configuration::Configuration;
use stream::nic::flow_table::CAPACITY;
use stream::nic::pipes::Notify;
use stream::wire::sample::{FIRST, Sizes as PacketSizes};

/// Echoes the packets received on a pipe, all to one destination. Returns their number.
fn echo(device: &Device, pipe: &mut RxTxPipe, destination: u32) -> u64 {
    while device.next().is_some() {}
    let expected = (FIRST.to_bits() + destination).to_be_bytes();
    let (mut packets, mut batch) = (0, pipe.peek().packets());
    for packet in &mut batch {
        assert_eq!(packet[30..34], expected, "a packet of another flow");
        touch(packet);
        packets += 1;
    }
    let bytes = batch.processed();
    pipe.confirm(bytes);
    pipe.send_and_free(bytes).unwrap();
    packets
}

/// Echoes the last packets of a pipe whose flow has moved.
fn drain(device: &Device, pipe: &mut RxTxPipe) -> u64 {
    let mut packets = 0;
    loop {
        // Everything present is echoed and the NIC knows it; only then is more requested.
        let before = packets;
        for _ in 0..2 {
            packets += echo(device, pipe, 0);
            settle(device);
            pipe.prefetch();
            settle(device);
        }
        if packets == before {
            return packets;
        }
    }
}

#[test]
fn moving_a_flow_between_pipes_neither_loses_nor_reorders() {
    const MOVES: usize = 20;
    let _alone = alone();
    let traffic = traffic(12, PacketSizes::Imix, 1);
    let params = TestParams::ring(1024);
    let testbed = Testbed::new(params, &traffic);
    let flow = flows(&traffic)[0];
    let program = testbed.program(move |port, goes_on, ready| {
        let device = Device::new(&port, params.sizes).unwrap();
        let new = || {
            let mut pipe = device.rx_tx_pipe().unwrap();
            pipe.bind(flow).unwrap();
            pipe
        };
        let (mut pipe, mut packets) = (new(), 0);
        ready();
        for _ in 0..MOVES {
            let enough = packets + 200;
            while packets < enough {
                packets += echo(&device, &mut pipe, 0);
            }
            let next = new();
            packets += drain(&device, &mut pipe);
            pipe = next;
        }
        while goes_on() {
            packets += echo(&device, &mut pipe, 0);
        }
        packets
    });
    let count = MOVES as u64 * 1000;
    let report = testbed.run(closed(count, 21));
    nothing_is_lost(&report, count);
    assert_eq!(program.end(), count);
    let counters = counters(&testbed.nic, |now| now.in_packets == count);
    assert_eq!((counters.rules, counters.refused), (MOVES as u64 + 1, 0));
}

/// A device with a pipe receives some packets and is dropped without notice; another continues the echo.
#[test]
fn devices_come_and_go_and_every_packet_is_accounted_for() {
    let _alone = alone();
    let traffic = traffic(2, PacketSizes::One(64), 2);
    for notify in [Notify::Reactively, Notify::EveryPacket] {
        let params = TestParams { notify, ..TestParams::ring(1024) };
        let testbed = Testbed::new(params, &traffic);
        let bound = flows(&traffic);
        let flow = bound[0];
        let steady = testbed.program(move |port, goes_on, ready| {
            let device = Device::new(&port, params.sizes).unwrap();
            let mut pipe = device.rx_tx_pipe().unwrap();
            pipe.bind(flow).unwrap();
            ready();
            let mut packets = 0;
            while goes_on() {
                packets += echo(&device, &mut pipe, 0);
            }
            packets
        });
        let report = testbed.begin(Trial {
            pace: Pace::packets(200e3, 84.0, Tsc::get().unwrap().hertz),
            duration: ticks(Duration::from_secs(3600)),
            // Packets in the ring of a dropped pipe never return; the generator waits for them.
            drain: ticks(Duration::from_millis(200)),
            ..Trial::default()
        });
        let mut packets = 0;
        for life in 1..=10 {
            let device = Device::new(&testbed.nic.port(), params.sizes).unwrap();
            let mut pipe = device.rx_tx_pipe().unwrap();
            pipe.bind(bound[1]).unwrap();
            let start = std::time::Instant::now();
            while packets < life * 100 {
                packets += echo(&device, &mut pipe, 1);
                assert!(start.elapsed() < TIMEOUT, "nothing comes to it");
            }
        }
        testbed.nic.command(GeneratorCommand::Stop);
        let report = report.recv().unwrap();
        let counters = counters(&testbed.nic, |now| now.in_packets == report.sent);
        packets += steady.end();
        assert_eq!((report.corrupted, report.late), (0, 0));
        assert_eq!(report.dropped, counters.dropped());
        assert_eq!(counters.in_packets, counters.to_memory + counters.dropped());
        // The permanent device may have echoed more since.
        let counters = crate::testbed::counters(&testbed.nic, |now| now.out_packets == packets);
        assert!(counters.to_memory >= packets, "nothing is made up");
        assert_eq!(counters.refused, 0);
    }
}

#[test]
fn packets_for_a_freed_pipe_do_not_reach_the_next_with_its_number() {
    let _alone = alone();
    for notify in [Notify::Reactively, Notify::EveryPacket] {
        let wired = Wired::new(TestParams { notify, ..TestParams::ring(64) });
        let device = wired.device();
        let mut first = device.rx_pipe().unwrap();
        first.bind(flow(0)).unwrap();
        let id = first.id();
        wired.arrive((0..5).map(|it| frame(0, 60, it)).collect());
        drop(first);
        let mut second = device.rx_pipe().unwrap();
        assert_eq!(second.id(), id);
        settle(&device);
        while device.next().is_some() {}
        assert!(second.recv().is_empty(), "it got what was another's");
        // The rule was removed with its pipe.
        wired.arrive(vec![frame(0, 60, 5)]);
        second.bind(flow(0)).unwrap();
        wired.arrive(vec![frame(0, 60, 6)]);
        let mut came = Vec::new();
        until(&device, || {
            came.extend(second.recv().packets().map(|packet| number(packet)));
            !came.is_empty()
        });
        assert_eq!(came, [6]);
        assert_eq!(wired.counters(7).no_queue, 1);
    }
}

#[test]
fn requested_packets_are_sent_before_their_memory_is_freed() {
    let _alone = alone();
    let wired = Wired::new(TestParams::ring(64));
    // So slow that most packets are in flight when the pipes are dropped.
    let limit = Configuration::RateLimit { numerator: 1, denominator: 2000, enable: true };
    wired.device().configure(limit).unwrap();
    for round in 0..5 {
        let device = wired.device();
        let mut pipes: Vec<_> = (0..3).map(|_| device.tx_pipe().unwrap()).collect();
        for (pipe, it) in pipes.iter_mut().zip(0..) {
            for part in 0..10 {
                let packet = frame(0, 200, round * 30 + it * 10 + part);
                pipe.allocate(256).unwrap()[..200].copy_from_slice(&packet);
                pipe.send_and_free(200).unwrap();
            }
        }
        drop(pipes);
        drop(device);
        for expected in round * 30..round * 30 + 30 {
            assert_eq!(wired.departed().bytes, frame(0, 200, expected));
        }
    }
    assert!(wired.nothing_departed());
}

#[test]
fn a_rule_without_space_is_reported() {
    let _alone = alone();
    let wired = Wired::new(TestParams::ring(64));
    let device = wired.device();
    let mut pipe = device.rx_pipe().unwrap();
    let (mut rules, mut refused) = (0, Vec::new());
    for number in 0..CAPACITY as u32 {
        match pipe.bind(flow(number)) {
            Ok(()) => rules += 1,
            Err(ConfigError::Full(full)) => {
                assert_eq!((full.flow, full.rules), (flow(number), rules));
                refused.push(number);
            }
            Err(gone) => panic!("{gone}"),
        }
    }
    assert!((1..CAPACITY / 20).contains(&refused.len()), "{} of {CAPACITY}", refused.len());
    // Another request reports the error too.
    let again = Configuration::Bind { flow: flow(refused[0]), pipe: pipe.id() };
    assert!(matches!(device.configure(again), Err(ConfigError::Full(_))));
    wired.arrive(vec![frame(refused[0], 60, 0), frame(0, 60, 1)]);
    let mut came = Vec::new();
    until(&device, || {
        came.extend(pipe.recv().packets().map(|packet| number(packet)));
        !came.is_empty()
    });
    assert_eq!(came, [1]);
    let counters = wired.counters(2);
    assert_eq!(counters.rules, rules as u64);
    assert_eq!(counters.rules_refused, refused.len() as u64 + 1);
    assert_eq!((counters.no_queue, counters.refused), (1, 0));
    // Rules are removed with their pipe and free their slots.
    drop(pipe);
    device.rx_pipe().unwrap().bind(flow(refused[0])).unwrap();
}
