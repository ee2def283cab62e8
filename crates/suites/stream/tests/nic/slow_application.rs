//! Packets back up behind a slow application, and drops are counted where they occur.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::testbed::{
    self, Program, TIMEOUT, TestParams, Testbed, alone, counters, flows, ticks, traffic,
};
use machine::tsc::Tsc;
use stream::generator::{Pace, Report, Trial};
use stream::host::Sizes;
use stream::nic::Counters;
use stream::nic::pipes::Notify;
use stream::serve::{PipesServer, Server};
use stream::steering::CorePipes;
use stream::wire::sample::Sizes as PacketSizes;

/// At full rate, accepting losses.
fn at_a_rate(count: u64) -> Trial {
    Trial {
        pace: Pace::packets(2e6, 84.0, Tsc::get().unwrap().hertz),
        count,
        duration: ticks(Duration::from_secs(3600)),
        drain: ticks(TIMEOUT),
        ..Trial::default()
    }
}

/// An echo of the first flows that waits until it is told to start, and is slow from then on.
fn echo(testbed: &Testbed, pipes: usize, begin: &Arc<AtomicBool>) -> Program<u64> {
    let (sizes, begin) = (testbed.params.sizes, Arc::clone(begin));
    let of_core = CorePipes::per_flow(&flows(&testbed.traffic)[..pipes]);
    testbed.program(move |port, goes_on, ready| {
        let mut server = PipesServer::new(&port, sizes, &of_core, false).unwrap();
        ready();
        let mut packets = 0;
        while goes_on() {
            if begin.load(Ordering::Relaxed) {
                packets += server.poll(&mut testbed::echo(1000)).unwrap();
            }
        }
        packets
    })
}

/// Sends packets to two destinations; the echo has pipes for the first few and starts once the NIC has dropped some,
/// according to `dropped`. All packets that are not dropped are echoed intact.
fn what_came(
    params: TestParams,
    pipes: usize,
    count: u64,
    dropped: impl Fn(&Counters) -> u64,
) -> (Report, Counters) {
    let testbed = Testbed::new(params, &traffic(2, PacketSizes::One(64), 2));
    let begin = Arc::new(AtomicBool::new(false));
    let echo = echo(&testbed, pipes, &begin);
    let report = testbed.begin(at_a_rate(count));
    let start = std::time::Instant::now();
    while dropped(&testbed.nic.counters()) == 0 {
        assert!(start.elapsed() < TIMEOUT, "nothing is dropped");
        std::thread::yield_now();
    }
    begin.store(true, Ordering::Relaxed);
    let report = report.recv().unwrap();
    let all = |now: &Counters| now.in_packets == count && now.out_packets == report.received;
    let counters = counters(&testbed.nic, all);
    assert_eq!(echo.end(), report.received);
    assert_eq!((report.sent, report.corrupted, report.late), (count, 0, 0));
    assert_eq!(report.sent, report.received + report.dropped);
    assert_eq!(report.dropped, counters.dropped());
    assert_eq!(counters.to_memory, report.received);
    assert_eq!(counters.refused, 0);
    (report, counters)
}

#[test]
fn drops_at_a_full_ring_are_counted() {
    let _alone = alone();
    let (report, counters) = what_came(TestParams::ring(64), 2, 100_000, |now| now.ring_full);
    assert!(report.dropped > 0);
    assert_eq!((counters.no_queue, counters.notifications_full), (0, 0));
    assert_eq!(counters.ring_full, report.dropped);
}

#[test]
fn drops_at_full_notifications_are_counted() {
    let _alone = alone();
    // The rings hold all packets.
    let sizes = Sizes { ring: 2 << 20, notifications: 16, ..Sizes::default() };
    let params = TestParams { notify: Notify::EveryPacket, sizes, ..TestParams::default() };
    let (report, counters) = what_came(params, 2, 50_000, |now| now.notifications_full);
    assert!(report.dropped > 0);
    assert_eq!((counters.no_queue, counters.ring_full), (0, 0));
    assert_eq!(counters.notifications_full, report.dropped);
}

#[test]
fn drops_of_unbound_flows_are_counted() {
    let _alone = alone();
    let count = 30_000;
    let (report, counters) = what_came(TestParams::ring(32768), 1, count, |now| now.no_queue);
    assert_eq!(counters.no_queue, count / 2);
    assert_eq!((counters.ring_full, counters.notifications_full), (0, 0));
    assert_eq!(report.received, count / 2);
}
