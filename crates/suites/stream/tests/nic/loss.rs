//! Nothing is lost, repeated, reordered within a flow or corrupted.

use crate::testbed::{TestParams, Testbed, alone, closed, nothing_is_lost, traffic};
use stream::host::Sizes;
use stream::nic::pipes::Notify;
use stream::wire::sample::Sizes as PacketSizes;
use stream::wire::traffic::Traffic;

/// Cases of traffic, pipes, and ways to notify.
const CASES: u64 = 2 * 3 * 3;

/// Rings, and how many packets are under way. A packet takes 24 flits at most. As many packets as are under way
/// may have come back since the program last freed any, and those of a chunk of its that it sent meanwhile, of
/// 256 flits: even so rings are never full.
const RINGS: [(usize, u64); 2] = [(2 << 20, 650), (64 << 10, 15)];

/// So many packets, in each case as many.
fn in_every_case(packets: u64) {
    let _alone = alone();
    let packets = packets.div_ceil(CASES);
    let ways =
        [(Notify::Reactively, false), (Notify::EveryPacket, false), (Notify::Reactively, true)];
    // An odd number of cases for each kind of traffic: what one has on large rings, the other has on small.
    let mut rings = RINGS.iter().cycle();
    for size in [PacketSizes::Mixed, PacketSizes::Each] {
        for pipes in [1, 2, 32] {
            // So many that each destination gets packets of every size where the mix allows it.
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

/// Bytes of the first so many packets, the traffic sent again and again.
fn bytes(traffic: &Traffic, packets: u64) -> u64 {
    let each = traffic.packets().iter().map(|packet| u64::from(packet.length));
    let (rounds, rest) = (packets / traffic.len() as u64, packets % traffic.len() as u64);
    rounds * each.clone().sum::<u64>() + each.take(rest as usize).sum::<u64>()
}

#[test]
fn of_a_million_packets() {
    in_every_case(1_000_000);
}

/// Minutes: `cargo test --release -p tollgate-stream --test nic -- --ignored`
#[test]
#[ignore = "takes minutes"]
fn long_of_a_billion_packets() {
    in_every_case(1_000_000_000);
}
