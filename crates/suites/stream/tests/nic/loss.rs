//! No packet is lost, repeated, reordered within a flow or corrupted.

use crate::testbed::{TestParams, Testbed, alone, closed, nothing_is_lost, traffic};
use stream::host::Sizes;
use stream::nic::pipes::Notify;
use stream::wire::sample::Sizes as PacketSizes;
use stream::wire::traffic::Traffic;

/// Combinations of traffic, pipes and notification modes.
const CASES: u64 = 2 * 3 * 3;

/// Ring sizes and packets in flight. A packet takes up to 24 flits. All packets in flight may have returned
/// since the program last freed memory, plus those of one chunk of 256 flits that it sent concurrently; rings still
/// never fill up.
const RINGS: [(usize, u64); 2] = [(2 << 20, 650), (64 << 10, 15)];

/// Runs every case with the same share of packets.
fn in_every_case(packets: u64) {
    let _alone = alone();
    let packets = packets.div_ceil(CASES);
    let ways =
        [(Notify::Reactively, false), (Notify::EveryPacket, false), (Notify::Reactively, true)];
    // An odd number of cases per kind of traffic, so that large and small rings alternate.
    let mut rings = RINGS.iter().cycle();
    for size in [PacketSizes::Imix, PacketSizes::Each] {
        for pipes in [1, 2, 32] {
            // Enough packets for every destination to get every size.
            let traffic = traffic(size.cycle() * pipes, size, pipes);
            for (notify, prefetch) in ways {
                let (ring, window) = *rings.next().unwrap();
                let sizes = Sizes { ring, ..Sizes::default() };
                let params = TestParams { notify, prefetch, sizes, ..TestParams::default() };
                let testbed = Testbed::new(params, &traffic);
                let echo = testbed.echo();
                let report = testbed.run(closed(packets, window));
                nothing_is_lost(&report, packets);
                assert_eq!(report.bytes, bytes(&traffic, packets));
                assert_eq!(echo.end(), packets);
            }
        }
    }
}

/// Returns the bytes of the first packets of repeated traffic.
fn bytes(traffic: &Traffic, packets: u64) -> u64 {
    let each = traffic.packets().iter().map(|packet| u64::from(packet.length));
    let (rounds, rest) = (packets / traffic.len() as u64, packets % traffic.len() as u64);
    rounds * each.clone().sum::<u64>() + each.take(rest as usize).sum::<u64>()
}

#[test]
fn nothing_is_lost_in_a_million_packets() {
    in_every_case(1_000_000);
}

/// Takes minutes: `cargo test --release -p tollgate-stream --test nic -- --ignored`
#[test]
#[ignore = "takes minutes"]
fn long_of_a_billion_packets() {
    in_every_case(1_000_000_000);
}
