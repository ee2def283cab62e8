//! Descriptors: nothing is lost, repeated, reordered within a flow or corrupted, and no buffer leaks.

mod come_and_go;
mod drivers;
mod rings;
mod slow;
mod wrap;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use crate::testbed::cable::Wired;
use crate::testbed::{
    self, Program, TestParams, alone, closed, flows, nothing_is_lost, touch, traffic,
};
use stream::generator::{Generator, GeneratorCommand, LiveCounters, Report, Trial};
use stream::host::descriptors::{Burst, Device, Queue, Sizes};
use stream::nic::Nic;
use stream::nic::configuration::Configuration;
use stream::nic::descriptor::LongDescriptor;
use stream::nic::descriptors::Descriptors;
use stream::serve::{DescriptorsServer, Server};
use stream::steering::CorePipes;
use stream::wire::sample::Sizes as PacketSizes;
use stream::wire::traffic::Traffic;

/// A NIC with a generator on the wire.
struct Testbed {
    nic: Nic<GeneratorCommand>,
    sizes: Sizes,
    traffic: Arc<Traffic>,
}

impl Testbed {
    fn new(sizes: Sizes, traffic: &Arc<Traffic>) -> Self {
        Self::with(TestParams::default(), sizes, traffic)
    }

    fn with(params: TestParams, sizes: Sizes, traffic: &Arc<Traffic>) -> Self {
        let generator =
            Generator::new(Arc::clone(traffic), Arc::new(LiveCounters::default())).unwrap();
        let engine = Descriptors::<LongDescriptor>::new(sizes.rx, sizes.tx);
        let nic = Nic::start(params.params(), engine, generator).unwrap();
        Self { nic, sizes, traffic: Arc::clone(traffic) }
    }

    /// Starts a trial; its report is available at the end.
    fn begin(&self, trial: Trial) -> Receiver<Report> {
        let (answer, report) = sync_channel(1);
        self.nic.command(GeneratorCommand::Start(trial, answer));
        report
    }

    /// Runs a trial.
    fn run(&self, trial: Trial) -> Report {
        self.begin(trial).recv().unwrap()
    }

    /// Starts an echo with one queue per flow of the traffic.
    fn echo(&self) -> Program<u64> {
        let (sizes, of_core) = (self.sizes, CorePipes::per_flow(&flows(&self.traffic)));
        Program::new(self.nic.port(), move |port, goes_on, ready| {
            let mut server = DescriptorsServer::new(&port, sizes, &of_core).unwrap();
            ready();
            let mut packets = 0;
            while goes_on() {
                packets += server.poll(&mut testbed::echo(0)).unwrap();
            }
            packets
        })
    }
}

/// A NIC with a cable that the test controls.
fn wired(sizes: Sizes) -> Wired {
    Wired::with(TestParams::default(), Descriptors::<LongDescriptor>::new(sizes.rx, sizes.tx))
}

/// Echoes a burst of received packets. Returns their number.
fn echo(queue: &mut Queue, burst: &mut Burst) -> u64 {
    let received = queue.receive(burst);
    burst.packets().for_each(touch);
    queue.send(burst).unwrap();
    received as u64
}

/// Waits until the NIC has processed all writes to a queue.
fn settle(queue: &mut Queue) {
    let nothing = Configuration::RateLimit { numerator: 1, denominator: 1, enable: false };
    queue.configure(nothing).unwrap();
}

/// Asserts that every buffer is in the pool.
fn assert_whole(device: &Device) {
    let (free, all) = device.buffers();
    assert_eq!(free, all, "buffers are missing");
}

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
    for size in [PacketSizes::Imix, PacketSizes::Each] {
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
