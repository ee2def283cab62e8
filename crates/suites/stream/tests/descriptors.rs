//! Descriptors: nothing is lost, repeated, reordered within a flow or corrupted, and no buffer leaks.
#![allow(clippy::unwrap_used, clippy::expect_used)] // In functions that tests share too.

mod stand;

use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use stand::{Program, alone, closed, cpus, flows, nothing_is_lost, traffic};
use stream::echo::{DescriptorsEcho, Interface, work};
use stream::generator::{Generator, Live, Order, Report, Trial};
use stream::host::descriptors::Sizes;
use stream::nic::descriptors::Descriptors;
use stream::nic::{Nic, Settings};
use stream::wire::sample::Sizes as PacketSizes;
use stream::wire::traffic::Traffic;

/// A NIC with a generator at its wire.
struct Stand {
    nic: Nic<Order>,
    sizes: Sizes,
    traffic: Arc<Traffic>,
}

impl Stand {
    fn new(sizes: Sizes, traffic: &Arc<Traffic>) -> Self {
        Self::with(Settings { cpu: cpus().0, ..Settings::default() }, sizes, traffic)
    }

    fn with(settings: Settings, sizes: Sizes, traffic: &Arc<Traffic>) -> Self {
        let generator = Generator::new(Arc::clone(traffic), Arc::new(Live::default())).unwrap();
        let engine = Descriptors::new(sizes.rx, sizes.tx);
        let nic = Nic::start(settings, engine, generator).unwrap();
        Self { nic, sizes, traffic: Arc::clone(traffic) }
    }

    fn run(&self, trial: Trial) -> Report {
        let (answer, report) = sync_channel(1);
        self.nic.order(Order::Start(trial, answer));
        report.recv().unwrap()
    }

    /// Starts an echo with a queue for each flow of the traffic.
    fn echo(&self) -> Program<u64> {
        let (sizes, flows) = (self.sizes, flows(&self.traffic));
        Program::new(self.nic.port(), move |port, goes_on, ready| {
            let mut echo = DescriptorsEcho::new(&port, sizes, &flows).unwrap();
            ready();
            let mut packets = 0;
            while goes_on() {
                packets += echo.turn(|packet| work(packet, 0)).unwrap();
            }
            packets
        })
    }
}

#[test]
fn nothing_is_lost_of_mixed_sizes_in_any_number_of_queues() {
    let _alone = alone();
    const PACKETS: u64 = 100_000;
    for size in [PacketSizes::Mixed, PacketSizes::Each] {
        for queues in [1, 2, 32] {
            let traffic = traffic(size.cycle() * queues, size, queues);
            // Those of a burst, and as many for which no refill was worth while, may have come back before the
            // program gives the NIC new buffers.
            for (rx, tx, window) in
                [(1024, 1024, 960), (64, 64, 16), (128, 1024, 64), (4096, 64, 4032)]
            {
                let stand = Stand::new(Sizes { rx, tx }, &traffic);
                let echo = stand.echo();
                let report = stand.run(closed(PACKETS, window));
                nothing_is_lost(&report, PACKETS);
                assert_eq!(echo.end(), PACKETS);
            }
        }
    }
}
