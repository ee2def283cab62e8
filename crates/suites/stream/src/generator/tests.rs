//! Tests of a trial: its waits, its duration and its round-trip times.

use std::sync::mpsc::sync_channel;

use super::*;
use crate::iterations::StallThreshold;
use crate::nic::layout::FLIT;
use crate::wire::sample::{SampleTraffic, Sizes};
use crate::wire::traffic::CacheLine;
use crate::wire::vector::Plain;
use crate::wire::{List, PacketRun, RxBurst};

const COUNT: usize = 16;

fn wait(time: Duration) {
    let start = std::time::Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

#[test]
fn only_a_stall_extends_the_duration_of_sending() {
    const STALL: u64 = 100_000;
    let sample = SampleTraffic { packets: 1, size: Sizes::One(64), sources: 1, destinations: 1 };
    let traffic = Arc::new(sample.traffic().unwrap());
    let trial = Trial {
        pace: Pace::packets(1e6, 88.0, 1e9),
        duration: 10 * STALL,
        threshold: StallThreshold::of_ticks(STALL, 0),
        ..Trial::default()
    };
    let due_after = |step: u64| {
        let (answer, _report) = sync_channel(1);
        let live = Arc::new(LiveCounters::default());
        let mut generator = Generator::new(Arc::clone(&traffic), live).unwrap();
        generator.command(GeneratorCommand::Start(trial, answer));
        generator.next_burst(ticks(), 0);
        let (start, end) = (generator.start, generator.start + trial.duration);
        let mut now = start;
        while now < end {
            generator.next_burst(now, 0);
            generator.end_iteration(now);
            now += step;
        }
        generator.next_burst(now, 8).count()
    };
    assert_eq!(due_after(STALL / 2), 0);
    assert_eq!(due_after(3 * STALL), 8);
}

#[test]
fn a_late_packet_of_the_previous_trial_extends_the_wait() {
    const WAIT: u64 = 1 << 40;
    let sample = SampleTraffic { packets: 1, size: Sizes::One(64), sources: 1, destinations: 1 };
    let traffic = Arc::new(sample.traffic().unwrap());
    let live = Arc::new(LiveCounters::default());
    let mut generator = Generator::new(Arc::clone(&traffic), live).unwrap();
    let trial = Trial { wait: WAIT, duration: WAIT, ..Trial::default() };
    let (answer, _report) = sync_channel(1);
    generator.command(GeneratorCommand::Start(trial, answer));
    let State::Waiting(until) = generator.state else { panic!("it waits") };
    // SAFETY: the traffic's packet is a whole flit.
    unsafe { generator.on_transmit(traffic.lines(0).as_ptr().cast(), FLIT) };
    let mut is_waiting_at = |now| {
        generator.next_burst(now, 0);
        matches!(generator.state, State::Waiting(_))
    };
    assert!(is_waiting_at(until), "a packet has returned");
    assert!(is_waiting_at(until + WAIT - 1));
    assert!(!is_waiting_at(until + WAIT));
}

#[test]
fn packets_of_a_burst_have_separate_round_trip_times() {
    let late = Duration::from_millis(30);
    let Some(tsc) = machine::untested::tsc("stream: round trips of a burst") else {
        return;
    };
    let sample = SampleTraffic { packets: 1, size: Sizes::One(64), sources: 1, destinations: 1 };
    let traffic = Arc::new(sample.traffic().unwrap());
    let mut generator = Generator::new(traffic, Arc::new(LiveCounters::default())).unwrap();
    let (answer, report) = sync_channel(1);
    let trial = Trial {
        pace: Pace::packets(1e6, 88.0, tsc.hertz),
        count: COUNT as u64,
        duration: u64::MAX / 4,
        expectation: Expectation::Same,
        times: true,
        ..Trial::default()
    };
    generator.command(GeneratorCommand::Start(trial, answer));
    generator.next_burst(ticks(), 0);
    // All packets become due.
    wait(Duration::from_millis(1));
    let mut memory = [CacheLine([0; FLIT]); COUNT];
    let start = memory.as_mut_ptr().cast::<u8>();
    let burst = generator.next_burst(ticks(), COUNT as u32);
    assert_eq!(burst.count() as usize, COUNT);
    let list = List { start: 0, len: 1 };
    let run = PacketRun { place: start, count: COUNT as u32, list, at: 0 };
    // SAFETY: the local memory has space for all packets.
    unsafe { burst.deliver::<Plain>(&[0], &[run]) };
    for half in 0..2 {
        let bytes = COUNT / 2 * FLIT;
        // SAFETY: the memory contains this many bytes of whole flits.
        let taken = unsafe { generator.on_transmit(start.wrapping_add(half * bytes), bytes) };
        assert_eq!(taken.bytes, bytes);
        wait(late);
    }
    generator.next_burst(ticks(), 1);
    generator.end_iteration(ticks());
    let report = report.try_recv().unwrap();
    assert_eq!((report.received, report.corrupted, report.timed_every), (16, 0, 1));
    let times = report.times.unwrap();
    let late = (tsc.ticks(late) as f64 * 0.998) as u64;
    // The first half returned immediately, or as late as the host allowed, but before the second.
    assert!(times.len() == 16 && times.count_between(late, u64::MAX / 2) >= 8);
    assert!(times.min() + late <= times.max() + late / 100, "{} {}", times.min(), times.max());
}

#[test]
fn a_closed_loop_of_a_receiver_follows_the_space_that_it_frees() {
    const WINDOW: u64 = 8;
    const FLITS: usize = 3;
    let sample = SampleTraffic { packets: 2, size: Sizes::One(150), sources: 1, destinations: 1 };
    let traffic = Arc::new(sample.traffic().unwrap());
    let mut generator = Generator::new(traffic, Arc::new(LiveCounters::default())).unwrap();
    let (answer, report) = sync_channel(1);
    let trial = Trial {
        pace: Pace::Closed { window: WINDOW },
        duration: u64::MAX / 4,
        drain: u64::MAX / 4,
        expectation: Expectation::Nothing,
        ..Trial::default()
    };
    generator.command(GeneratorCommand::Start(trial, answer));
    generator.next_burst(ticks(), 0);
    let mut memory = [CacheLine([0; FLIT]); 100 * FLITS];
    // Sends what is due if packets with this many flits are unread.
    let mut send = |generator: &mut Generator, unread: u64| {
        generator.on_unread(unread);
        generator.end_iteration(ticks());
        let burst = generator.next_burst(ticks(), 100);
        let count = burst.count();
        if count > 0 {
            let (place, list) = (memory.as_mut_ptr().cast(), List { start: 0, len: 2 });
            let run = PacketRun { place, count, list, at: 0 };
            // SAFETY: the local memory has space for all packets.
            unsafe { burst.deliver::<Plain>(&[0, 1], &[run]) };
        }
        u64::from(count)
    };
    let flits = FLITS as u64;
    assert_eq!(send(&mut generator, 0), WINDOW);
    assert_eq!(send(&mut generator, WINDOW * flits), 0);
    assert_eq!(send(&mut generator, 5 * flits), 3);
    // A packet of which a part is freed is in flight.
    assert_eq!(send(&mut generator, WINDOW * flits - 1), 0);
    assert_eq!(send(&mut generator, 0), WINDOW);
    generator.command(GeneratorCommand::Stop);
    generator.on_unread(1);
    generator.end_iteration(ticks());
    assert!(report.try_recv().is_err(), "a packet is unread");
    generator.on_unread(0);
    generator.end_iteration(ticks());
    let report = report.try_recv().unwrap();
    assert_eq!((report.sent, report.received, report.corrupted), (19, 0, 0));
    assert_eq!(report.sent_bytes, 19 * 170);
    let consumed = report.consumed_by(17);
    assert_eq!((consumed.received, consumed.lost()), (17, 2));
    assert_eq!((consumed.received_bytes, consumed.bytes), (17 * 170, 17 * 146));
}
