//! No packet is lost.

use std::time::Duration;

use stream::host::descriptors::Sizes;
use stream::wire::sample::Sizes as PacketSizes;

use super::Testbed;
use crate::testbed::{TestParams, alone, closed, nothing_is_lost, traffic};

/// Ring sizes and maximum packets in flight: all that the ring holds, less those that are not worth
/// a refill.
const DEPTHS: [(Sizes, u64); 4] = [
    (Sizes { rx: 1024, tx: 1024 }, 992),
    (Sizes { rx: 64, tx: 64 }, 32),
    (Sizes { rx: 128, tx: 1024 }, 96),
    (Sizes { rx: 4096, tx: 64 }, 4064),
];

fn in_every_case(params: TestParams, packets: u64) {
    let _alone = alone();
    for size in [PacketSizes::Mixed, PacketSizes::Each] {
        for queues in [1, 2, 32] {
            let traffic = traffic(size.cycle() * queues, size, queues);
            for (sizes, window) in DEPTHS {
                let testbed = Testbed::with(params, sizes, &traffic);
                let echo = testbed.echo();
                nothing_is_lost(&testbed.run(closed(packets, window)), packets);
                assert_eq!(echo.end(), packets);
            }
        }
    }
}

#[test]
fn mixed_sizes_in_any_number_of_queues_of_any_depth() {
    in_every_case(TestParams::default(), 50_000);
}

#[test]
fn with_delayed_doorbells_and_transfers() {
    let delay = Duration::from_micros(1);
    in_every_case(TestParams { doorbell: delay, transfer: delay, ..TestParams::default() }, 2_000);
}

/// Takes minutes: `cargo test --release -p tollgate-stream --test nic -- --ignored`
#[test]
#[ignore = "takes minutes"]
fn long_of_a_billion_packets() {
    in_every_case(TestParams::default(), 1_000_000_000 / 24 + 1);
}
