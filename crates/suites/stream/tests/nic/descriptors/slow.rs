//! An application that is too slow, or that keeps its buffers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use applications::Application;
use machine::tsc::Tsc;
use stream::generator::{Pace, Trial};
use stream::host::descriptors::{BURST, Device, Sizes};
use stream::nic::Counters;
use stream::wire::sample::Sizes as PacketSizes;

use super::{Testbed, assert_whole, wired};
use crate::testbed::cable::{flow, frame};
use crate::testbed::{Program, TIMEOUT, alone, counters, echo, flows, ticks, traffic};

#[test]
fn drops_are_counted_where_they_happen_and_no_buffer_leaks() {
    const COUNT: u64 = 100_000;
    let _alone = alone();
    // The second destination has no queue.
    let traffic = traffic(2, PacketSizes::One(64), 2);
    let testbed = Testbed::new(Sizes { rx: 64, tx: 64 }, &traffic);
    let (sizes, flow) = (testbed.sizes, flows(&traffic)[0]);
    // It is too slow on any machine, since it waits until packets are dropped.
    let begins = Arc::new(AtomicBool::new(false));
    let start = Arc::clone(&begins);
    let program = Program::new(testbed.nic.port(), move |port, goes_on, ready| {
        let device = Device::new(&port, sizes, 1).unwrap();
        let mut queue = device.queue().unwrap();
        queue.bind(flow).unwrap();
        let (mut burst, mut packets) = (device.burst(), 0);
        ready();
        while goes_on() {
            if start.load(Ordering::Relaxed) {
                packets += queue.receive(&mut burst) as u64;
                echo(1000).process(burst.packets(), |_, _| ());
                queue.send(&mut burst).unwrap();
            }
        }
        drop((queue, burst));
        assert_whole(&device);
        packets
    });
    let report = testbed.begin(Trial {
        pace: Pace::packets(2e6, 84.0, Tsc::get().unwrap().hertz),
        count: COUNT,
        duration: ticks(Duration::from_secs(3600)),
        drain: ticks(TIMEOUT),
        ..Trial::default()
    });
    let waiting = Instant::now();
    while testbed.nic.counters().ring_full == 0 {
        assert!(waiting.elapsed() < TIMEOUT, "nothing is dropped");
        std::thread::yield_now();
    }
    begins.store(true, Ordering::Relaxed);
    let report = report.recv().unwrap();
    let all = |now: &Counters| now.in_packets == COUNT && now.out_packets == report.received;
    let counters = counters(&testbed.nic, all);
    assert_eq!(program.end(), report.received);
    assert_eq!((report.sent, report.corrupted, report.late), (COUNT, 0, 0));
    assert_eq!(report.sent, report.received + report.dropped);
    assert_eq!((counters.no_queue, counters.dropped()), (COUNT / 2, report.dropped));
    assert!(counters.ring_full > 0, "it was never too slow");
    assert_eq!((counters.to_memory, counters.notifications), (report.received, report.received));
    assert_eq!((counters.notifications_full, counters.refused), (0, 0));
}

/// A program that keeps all buffers receives no packets until it frees them.
#[test]
fn an_application_that_keeps_buffers_starves_and_recovers() {
    let _alone = alone();
    let sizes = Sizes { rx: 64, tx: 64 };
    let wired = wired(sizes);
    let device = Device::new(&wired.nic.port(), sizes, 1).unwrap();
    let mut queue = device.queue().unwrap();
    queue.bind(flow(0)).unwrap();
    let all = device.buffers().1 as usize;
    let (mut kept, mut came, mut sent) = (Vec::new(), 0, 0);
    let start = Instant::now();
    // The ring ends up with all remaining descriptors but the last.
    while came < all - BURST {
        wired.arrive((sent..sent + 40).map(|number| frame(0, 60, number)).collect());
        sent += 40;
        let mut burst = device.burst();
        came += queue.receive(&mut burst);
        kept.push(burst);
        assert!(start.elapsed() < TIMEOUT, "{came} of {all}");
        if device.buffers().0 < BURST as u32 && queue.receive(&mut device.burst()) == 0 {
            break;
        }
    }
    let now = wired.counters(u64::from(sent));
    assert!(now.ring_full > 0, "{now:?}");
    assert_eq!(now.ring_full, now.dropped());
    kept.clear();
    let mut burst = device.burst();
    let mut recovered = 0;
    while recovered < 3 * all {
        // Refills first, then more arrivals.
        while queue.receive(&mut burst) > 0 {
            burst.clear();
        }
        wired.arrive((0..32).map(|number| frame(0, 60, number)).collect());
        recovered += queue.receive(&mut burst);
        burst.clear();
        assert!(start.elapsed() < TIMEOUT, "it does not recover");
    }
    drop((queue, burst));
    assert_whole(&device);
}
