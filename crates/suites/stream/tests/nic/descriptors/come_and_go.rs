//! Queues, devices and bindings are created and dropped during traffic.

use std::time::{Duration, Instant};

use machine::tsc::Tsc;
use stream::generator::{GeneratorCommand, Pace, Trial};
use stream::host::ConfigError;
use stream::host::descriptors::{Device, Sizes};
use stream::nic::Counters;
use stream::nic::configuration::Configuration;
use stream::nic::flow_table::CAPACITY;
use stream::wire::sample::Sizes as PacketSizes;

use super::{Testbed, assert_whole, echo, wired};
use crate::testbed::cable::flow;
use crate::testbed::{Program, TIMEOUT, alone, counters, flows, ticks, traffic};

#[test]
fn queues_and_devices_come_and_go_and_no_buffer_leaks() {
    const LIVES: u64 = 10;
    let _alone = alone();
    let sizes = Sizes { rx: 128, tx: 64 };
    let traffic = traffic(2, PacketSizes::One(64), 2);
    let testbed = Testbed::new(sizes, &traffic);
    let bound = flows(&traffic);
    let flow = bound[0];
    let steady = Program::new(testbed.nic.port(), move |port, goes_on, ready| {
        let device = Device::new(&port, sizes, 1).unwrap();
        let (mut queue, mut burst) = (device.queue().unwrap(), device.burst());
        queue.bind(flow).unwrap();
        ready();
        let mut packets = 0;
        while goes_on() {
            packets += echo(&mut queue, &mut burst);
        }
        packets
    });
    let report = testbed.begin(Trial {
        pace: Pace::packets(200e3, 84.0, Tsc::get().unwrap().hertz),
        duration: ticks(Duration::from_secs(3600)),
        // Packets in the ring of a dropped queue never return; the generator waits for them.
        drain: ticks(Duration::from_millis(200)),
        ..Trial::default()
    });
    let mut packets = 0;
    for life in 0..LIVES {
        // Two queues of one device in turn, then another device.
        let device = Device::new(&testbed.nic.port(), sizes, 1).unwrap();
        for _ in 0..2 {
            let (mut queue, mut burst) = (device.queue().unwrap(), device.burst());
            queue.bind(bound[1]).unwrap();
            let (start, enough) = (Instant::now(), packets + 100);
            while packets < enough {
                packets += echo(&mut queue, &mut burst);
                assert!(start.elapsed() < TIMEOUT, "nothing comes in life {life}");
            }
            drop((queue, burst));
            assert_whole(&device);
        }
    }
    testbed.nic.command(GeneratorCommand::Stop);
    let report = report.recv().unwrap();
    packets += steady.end();
    let all = |now: &Counters| now.in_packets == report.sent && now.out_packets == packets;
    let counters = counters(&testbed.nic, all);
    // The permanent device may have echoed more since.
    assert!(report.received <= packets, "{} of {packets}", report.received);
    assert_eq!((report.corrupted, report.late), (0, 0));
    assert_eq!(report.sent, counters.to_memory + counters.dropped());
    assert_eq!((counters.rules, counters.refused), (2 * LIVES + 1, 0));
}

#[test]
fn packets_of_no_flow_are_spread_over_the_first_queues() {
    let _alone = alone();
    let sizes = Sizes::default();
    let traffic = traffic(8, PacketSizes::One(64), 8);
    let testbed = Testbed::new(sizes, &traffic);
    let program = Program::new(testbed.nic.port(), move |port, goes_on, ready| {
        let device = Device::new(&port, sizes, 3).unwrap();
        let mut queues: Vec<_> = (0..3).map(|_| device.queue().unwrap()).collect();
        let fallback = Configuration::Fallback { pipes: 3, round_robin: true };
        queues[0].configure(fallback).unwrap();
        let mut burst = device.burst();
        ready();
        let mut packets = [0; 3];
        while goes_on() {
            for (queue, packets) in queues.iter_mut().zip(&mut packets) {
                *packets += echo(queue, &mut burst);
            }
        }
        packets
    });
    let report = testbed.run(crate::testbed::closed(3000, 500));
    assert_eq!((report.received, report.corrupted), (3000, 0));
    assert_eq!(program.end(), [1000; 3]);
}

#[test]
fn a_rule_without_space_is_reported() {
    let _alone = alone();
    let sizes = Sizes { rx: 64, tx: 64 };
    let wired = wired(sizes);
    let device = Device::new(&wired.nic.port(), sizes, 1).unwrap();
    let mut queue = device.queue().unwrap();
    let bound = (0..CAPACITY as u32).map(|number| queue.bind(flow(number)));
    let refused = bound.filter(|bound| matches!(bound, Err(ConfigError::Full(_)))).count();
    assert!((1..CAPACITY / 20).contains(&refused), "{refused} of {CAPACITY}");
    let counters = wired.counters(0);
    assert_eq!((counters.rules_refused, counters.refused), (refused as u64, 0));
    assert_eq!(counters.rules, (CAPACITY - refused) as u64);
    drop(queue);
    assert_whole(&device);
}
