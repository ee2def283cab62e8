//! An application that is too slow backs up, and what is dropped is counted where it is dropped.
#![allow(clippy::unwrap_used)] // In functions that tests share too.

mod stand;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use machine::tsc::Tsc;
use stand::{PATIENCE, Program, Setup, Stand, alone, counters, flows, ticks, traffic};
use stream::echo::{Interface, PipesEcho, work};
use stream::generator::{Pace, Report, Trial};
use stream::host::Sizes;
use stream::nic::Counters;
use stream::nic::pipes::Notify;
use stream::wire::sample::Sizes as PacketSizes;

/// At a rate that is no matter, and whatever becomes of them.
fn at_a_rate(count: u64) -> Trial {
    Trial {
        pace: Pace::packets(2e6, 84.0, Tsc::get().unwrap().hertz),
        count,
        duration: ticks(Duration::from_secs(3600)),
        drain: ticks(PATIENCE),
        ..Trial::default()
    }
}

/// An echo of the first so many flows that waits until it is told to begin, and then takes its time.
fn echo(stand: &Stand, pipes: usize, begin: &Arc<AtomicBool>) -> Program<u64> {
    let (sizes, begin) = (stand.setup.sizes, Arc::clone(begin));
    let flows = flows(&stand.traffic)[..pipes].to_vec();
    stand.program(move |port, goes_on, ready| {
        let mut echo = PipesEcho::new(&port, sizes, &flows, false).unwrap();
        ready();
        let mut packets = 0;
        while goes_on() {
            if begin.load(Ordering::Relaxed) {
                packets += echo.turn(|packet| work(packet, 1000)).unwrap();
            }
        }
        packets
    })
}

/// Packets to two destinations at an echo that begins once the NIC has dropped some, as counted by `dropped`,
/// and has pipes for the first so many. All that is not dropped comes back as it was.
fn what_came(
    setup: Setup,
    pipes: usize,
    count: u64,
    dropped: impl Fn(&Counters) -> u64,
) -> (Report, Counters) {
    let stand = Stand::new(setup, &traffic(2, PacketSizes::One(64), 2));
    let begin = Arc::new(AtomicBool::new(false));
    let echo = echo(&stand, pipes, &begin);
    let report = stand.begin(at_a_rate(count));
    let begun = std::time::Instant::now();
    while dropped(&stand.nic.counters()) == 0 {
        assert!(begun.elapsed() < PATIENCE, "nothing is dropped");
        std::thread::yield_now();
    }
    begin.store(true, Ordering::Relaxed);
    let report = report.recv().unwrap();
    let all = |now: &Counters| now.in_packets == count && now.out_packets == report.received;
    let counters = counters(&stand.nic, all);
    assert_eq!(echo.end(), report.received);
    assert_eq!((report.sent, report.corrupted, report.late), (count, 0, 0));
    assert_eq!(report.sent, report.received + report.dropped);
    assert_eq!(report.dropped, counters.dropped());
    assert_eq!(counters.to_memory, report.received);
    assert_eq!(counters.refused, 0);
    (report, counters)
}

#[test]
fn where_its_ring_is_full() {
    let _alone = alone();
    let (report, counters) = what_came(Setup::ring(64), 2, 100_000, |now| now.ring_full);
    assert!(report.dropped > 0);
    assert_eq!((counters.no_queue, counters.notifications_full), (0, 0));
    assert_eq!(counters.ring_full, report.dropped);
}

#[test]
fn where_its_notifications_are_full() {
    let _alone = alone();
    // Rings that hold all packets.
    let sizes = Sizes { ring: 2 << 20, notifications: 16 };
    let setup = Setup { notify: Notify::EveryPacket, sizes, ..Setup::default() };
    let (report, counters) = what_came(setup, 2, 50_000, |now| now.notifications_full);
    assert!(report.dropped > 0);
    assert_eq!((counters.no_queue, counters.ring_full), (0, 0));
    assert_eq!(counters.notifications_full, report.dropped);
}

#[test]
fn where_a_flow_is_nobodys() {
    let _alone = alone();
    let count = 30_000;
    let (report, counters) = what_came(Setup::ring(32768), 1, count, |now| now.no_queue);
    assert_eq!(counters.no_queue, count / 2);
    assert_eq!((counters.ring_full, counters.notifications_full), (0, 0));
    assert_eq!(report.received, count / 2);
}
