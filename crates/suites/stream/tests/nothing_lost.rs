//! Nothing is lost, repeated, reordered within a flow or corrupted.
#![allow(clippy::unwrap_used, clippy::expect_used)] // In functions that tests share too.

mod stand;

use stand::{Setup, Stand, alone, closed, nothing_is_lost, traffic};
use stream::host::Sizes;
use stream::nic::pipes::Notify;
use stream::wire::sample::Sizes as PacketSizes;
use stream::wire::traffic::Traffic;

/// In each case, whose packets under way never fill a ring or the notifications.
fn in_every_case(packets_a_case: u64) {
    let _alone = alone();
    let ways =
        [(Notify::Reactively, false), (Notify::EveryPacket, false), (Notify::Reactively, true)];
    for size in [PacketSizes::Mixed, PacketSizes::Each] {
        for pipes in [1, 2, 32] {
            // So many that each destination gets packets of every size where the mix allows it.
            let traffic = traffic(size.cycle() * pipes, size, pipes);
            for (notify, prefetch) in ways {
                // A packet takes 24 flits at most. As many as are under way may have come back while the
                // program has not had the time to free theirs.
                for (ring, window) in [(2 << 20, 650), (64 << 10, 21)] {
                    let sizes = Sizes { ring, ..Sizes::default() };
                    let stand =
                        Stand::new(Setup { notify, prefetch, sizes, ..Setup::default() }, &traffic);
                    let echo = stand.echo();
                    let report = stand.run(closed(packets_a_case, window));
                    nothing_is_lost(&report, packets_a_case);
                    assert_eq!(report.bytes, bytes(&traffic, packets_a_case));
                    assert_eq!(echo.end(), packets_a_case);
                }
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
fn of_five_million_packets() {
    in_every_case(5_000_000 / 36);
}

/// Minutes: `cargo test --release -p tollgate-stream --test nothing_lost -- --ignored`
#[test]
#[ignore = "takes minutes"]
fn of_a_billion_packets() {
    in_every_case(1_000_000_000 / 36 + 1);
}
