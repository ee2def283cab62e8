//! Applications over pipes and descriptors: each packet is processed once, sent packets leave in order, and the memory of all
//! is free afterwards.

use std::time::{Duration, Instant};

use applications::application::{Count, in_groups, take};
use applications::{Application, Decision};
use proptest::prelude::*;
use stream::application::{ApplicationKind, WithApplication};
use stream::host::Sizes;
use stream::host::descriptors::{self, BURST};
use stream::nic::descriptor::LongDescriptor;
use stream::nic::descriptors::Descriptors;
use stream::nic::pipes::Notify;
use stream::serve::{DescriptorsServer, PipesServer, Server};
use stream::steering::CorePipes;

use crate::mixture::{self, InMemory, Outcome};
use crate::testbed::cable::{Wired, flow, frame, number};
use crate::testbed::{TIMEOUT, TestParams, alone, counters};

/// Number of pipes or queues.
const QUEUES: u32 = 3;
/// Flits of each ring, and packets of each receive ring of descriptors.
const RING: usize = 256;
/// Slots of each notification buffer: few, so that pipes use each other's again.
const NOTIFICATIONS: u32 = 16;
const OF_DESCRIPTORS: descriptors::Sizes = descriptors::Sizes { rx: RING as u32, tx: 64 };
/// Byte that the application changes.
const CHANGED: usize = 50;

/// An application that takes `AHEAD` packets before it returns the first, and consumes those of some numbers.
struct Planned<'a, const AHEAD: usize> {
    is_sent: &'a [bool],
    consumed: u64,
}

impl<const AHEAD: usize> Application for Planned<'_, AHEAD> {
    fn process<'a>(
        &mut self,
        packets: impl Iterator<Item = &'a mut [u8]>,
        mut done: impl FnMut(&'a mut [u8], Decision),
    ) {
        in_groups::<AHEAD>(packets, |group| {
            for packet in group {
                let packet = take(packet);
                packet[CHANGED] = packet[CHANGED].wrapping_add(1);
                // Packets that the test adds at the end have higher numbers.
                let is_sent = self.is_sent.get(number(packet) as usize) == Some(&true);
                self.consumed += u64::from(!is_sent);
                done(packet, if is_sent { Decision::Send } else { Decision::Consume });
            }
        });
    }

    fn counts(&self) -> Vec<Count> {
        vec![Count { name: "consumed", value: self.consumed }]
    }
}

/// Polls until a number of packets are processed.
fn process(server: &mut impl Server, application: &mut impl Application, packets: usize) {
    let (start, mut processed) = (Instant::now(), 0);
    while processed < packets as u64 {
        processed += server.poll(application).unwrap();
        assert!(start.elapsed() < TIMEOUT, "{processed} of {packets} packets");
    }
    assert_eq!(processed, packets as u64);
}

/// Polls until the NIC knows about all memory that is free.
fn settle(wired: &Wired, server: &mut impl Server, application: &mut impl Application) {
    let mut before = None;
    loop {
        for _ in 0..3 {
            assert_eq!(server.poll(application), Ok(0));
        }
        // Takes some milliseconds, in which the NIC completes what it has sent.
        let now = counters(&wired.nic, |_| true);
        if before.replace(now) == Some(now) {
            return;
        }
    }
}

/// Groups of packets: the queue of each packet, its length, and whether it is sent.
type Groups = Vec<Vec<(u32, usize, bool)>>;

/// Processes groups of packets, each of which fits a ring; then fills all rings with `capacity` packets, which must be free.
fn check_groups<const AHEAD: usize>(
    wired: &Wired,
    server: &mut impl Server,
    groups: &Groups,
    capacity: usize,
) {
    let is_sent: Vec<_> = groups.iter().flatten().map(|(.., is_sent)| *is_sent).collect();
    let mut application = Planned::<AHEAD> { is_sent: &is_sent, consumed: 0 };
    let (mut next, mut in_packets) = (0, 0);
    for group in groups {
        let mut expected = vec![Vec::new(); QUEUES as usize];
        let mut packets = Vec::new();
        for (queue, length, is_sent) in group {
            let mut packet = frame(*queue, *length, next);
            packets.push(packet.clone());
            packet[CHANGED] = packet[CHANGED].wrapping_add(1);
            if *is_sent {
                expected[*queue as usize].push(packet);
            }
            next += 1;
        }
        wired.arrive(packets);
        process(server, &mut application, group.len());
        // Packets of a queue leave in order.
        for _ in 0..expected.iter().map(Vec::len).sum() {
            let packet = wired.departed().bytes;
            let of_queue = &mut expected[usize::from(packet[33])];
            assert!(!of_queue.is_empty() && packet == of_queue.remove(0), "{}", number(&packet));
        }
        settle(wired, server, &mut application);
        in_packets += group.len();
    }
    let full: Vec<_> = (0..QUEUES)
        .flat_map(|queue| (0..capacity).map(move |_| frame(queue, 60, u32::MAX)))
        .collect();
    let all = full.len();
    wired.arrive(full);
    process(server, &mut application, all);
    settle(wired, server, &mut application);
    let now = wired.counters((in_packets + all) as u64);
    assert_eq!((now.dropped(), now.refused), (0, 0), "memory is not free: {now:?}");
    assert_eq!(now.to_memory, (in_packets + all) as u64);
    let sent = is_sent.iter().filter(|is_sent| **is_sent).count();
    assert_eq!(now.out_packets, sent as u64);
    assert_eq!(application.counts()[0].value, (in_packets + all - sent) as u64);
    assert!(wired.nothing_departed());
}

fn of_core() -> CorePipes {
    CorePipes::per_flow(&(0..QUEUES).map(flow).collect::<Vec<_>>())
}

fn check_pipes<const AHEAD: usize>(notify: Notify, groups: &Groups) {
    let notifications = match notify {
        Notify::Reactively => NOTIFICATIONS,
        // One per packet.
        Notify::EveryPacket => 2048,
    };
    let sizes = Sizes { ring: RING * 64, notifications, ..Sizes::default() };
    let wired = Wired::new(TestParams { notify, sizes, ..TestParams::default() });
    let mut server = PipesServer::new(&wired.nic.port(), sizes, &of_core(), false).unwrap();
    // One flit stays free.
    check_groups::<AHEAD>(&wired, &mut server, groups, RING - 1);
}

fn check_descriptors<const AHEAD: usize>(burst: usize, groups: &Groups) {
    let sizes = OF_DESCRIPTORS;
    let engine = Descriptors::<LongDescriptor>::new(sizes.rx, sizes.tx);
    let wired = Wired::with(TestParams::default(), engine);
    let mut server: DescriptorsServer =
        DescriptorsServer::open(&wired.nic.port(), sizes, &of_core(), burst).unwrap();
    // A ring is filled by 32 buffers at a time.
    check_groups::<AHEAD>(&wired, &mut server, groups, RING - BURST);
}

/// Packets of lengths from 60 to 1514 B; up to 10 fit a ring together.
fn groups() -> impl Strategy<Value = Groups> {
    let packet = (0..QUEUES, prop_oneof![60usize..1515, 60usize..130], any::<bool>());
    prop::collection::vec(prop::collection::vec(packet, 1..11), 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(64)))]

    #[test]
    fn pipes_send_or_free_each_packet_in_order(groups in groups()) {
        let _alone = alone();
        check_pipes::<1>(Notify::Reactively, &groups);
        check_pipes::<32>(Notify::Reactively, &groups);
        check_pipes::<3>(Notify::EveryPacket, &groups);
    }

    #[test]
    fn descriptors_send_or_free_each_packet_in_order(groups in groups()) {
        let _alone = alone();
        check_descriptors::<1>(32, &groups);
        check_descriptors::<32>(64, &groups);
        check_descriptors::<3>(1, &groups);
    }
}

#[test]
fn rings_wrap_around_between_sent_and_consumed_packets() {
    let _alone = alone();
    // 7 packets of 24 flits and one of an odd number per round, so that each boundary passes every offset of the ring.
    let round = |round: usize| {
        let packet = move |number: usize| {
            (0, if number == 7 { 60 } else { 1514 }, (number + round).is_multiple_of(2))
        };
        (0..8).map(packet).collect::<Vec<_>>()
    };
    let groups: Groups = (0..RING / 4).map(round).collect();
    check_pipes::<1>(Notify::Reactively, &groups);
    check_descriptors::<1>(32, &groups);
}

/// Interfaces of this test, for packets of all flows.
enum Over {
    Pipes,
    Descriptors,
}

/// Runs an application over an interface.
struct OverInterface<'a> {
    over: Over,
    packets: &'a [Vec<u8>],
}

/// Packets that arrive together.
const TOGETHER: usize = 30;

impl WithApplication for OverInterface<'_> {
    type Output = Outcome;

    fn run<A: Application>(self, application: A) -> Outcome {
        let of_core = CorePipes::of_all_flows();
        match self.over {
            Over::Pipes => {
                let sizes = Sizes { ring: 1 << 16, ..Sizes::default() };
                let wired = Wired::new(TestParams { sizes, ..TestParams::default() });
                let server = PipesServer::new(&wired.nic.port(), sizes, &of_core, false).unwrap();
                outcome(&wired, server, application, self.packets)
            }
            Over::Descriptors => {
                let sizes = OF_DESCRIPTORS;
                let engine = Descriptors::<LongDescriptor>::new(sizes.rx, sizes.tx);
                let wired = Wired::with(TestParams::default(), engine);
                let server = DescriptorsServer::new(&wired.nic.port(), sizes, &of_core).unwrap();
                outcome(&wired, server, application, self.packets)
            }
        }
    }
}

fn outcome(
    wired: &Wired,
    mut server: impl Server,
    mut application: impl Application,
    packets: &[Vec<u8>],
) -> Outcome {
    for group in packets.chunks(TOGETHER) {
        wired.arrive(group.to_vec());
        process(&mut server, &mut application, group.len());
        // The transmit ring of descriptors, and the notifications of pipes, are longer than a group.
        while server.poll(&mut application).unwrap() > 0 {}
        std::thread::sleep(Duration::from_millis(1));
        server.poll(&mut application).unwrap();
    }
    settle(wired, &mut server, &mut application);
    let now = wired.counters(packets.len() as u64);
    assert_eq!((now.dropped(), now.refused), (0, 0), "{now:?}");
    let sent = (0..now.out_packets).map(|_| wired.departed().bytes).collect();
    Outcome { sent, counts: application.counts() }
}

/// Checks that packets of each kind had the effect that they must have.
fn check_effects(kind: ApplicationKind, packets: usize, outcome: &Outcome) {
    let Outcome { sent, counts } = outcome;
    let count = |name| counts.iter().find(|count| count.name == name).map_or(0, |it| it.value);
    let some_malformed = count("wrong-udp-lengths") > 0 && count("fragments") > 0;
    match kind {
        ApplicationKind::Echo => assert_eq!(sent.len(), packets),
        ApplicationKind::MaglevEnso | ApplicationKind::Maglev => {
            assert!(some_malformed && (packets / 2..packets).contains(&sent.len()), "{counts:?}");
        }
        ApplicationKind::KeyValue => {
            assert!(some_malformed && count("wrong-checksums") > 0, "{counts:?}");
            assert!(count("found-keys") > 0 && count("refused-requests") > 0, "{counts:?}");
            assert!((packets / 20..packets / 2).contains(&sent.len()), "{counts:?}");
        }
        ApplicationKind::LogMonitor => {
            assert!(some_malformed && count("matching-lines") > 0, "{counts:?}");
            assert!(sent.is_empty());
        }
        ApplicationKind::Telemetry => {
            assert!(some_malformed && sent.len() == packets, "{counts:?}");
        }
    }
}

#[test]
fn every_application_does_over_each_interface_what_it_does_in_memory() {
    let _alone = alone();
    let packets = mixture::packets(2000);
    let (specs, number) = mixture::specs();
    for spec in specs {
        let kind = spec.kind();
        let expected = spec.with(number, InMemory(&packets)).unwrap();
        check_effects(kind, packets.len(), &expected);
        for over in [Over::Pipes, Over::Descriptors] {
            let found = spec.with(number, OverInterface { over, packets: &packets }).unwrap();
            assert_eq!(found.counts, expected.counts, "{kind}");
            let differs = found.sent.iter().zip(&expected.sent).position(|(a, b)| a != b);
            assert_eq!((found.sent.len(), differs), (expected.sent.len(), None), "{kind}");
        }
    }
}
