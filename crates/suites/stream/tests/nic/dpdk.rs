//! An unmodified program of DPDK attached to the NIC: nothing is lost, repeated, reordered within a flow or corrupted, and
//! nothing that the program does harms the NIC.

use std::io::ErrorKind;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use crate::testbed::{TIMEOUT, TestParams, alone, closed, cpus, flows, nothing_is_lost};
use machine::child::Console;
use stream::generator::{Expectation, Generator, GeneratorCommand, LiveCounters, Report, Trial};
use stream::nic::Nic;
use stream::nic::vhost::{VhostControl, VhostServer, VirtioNet};
use stream::wire::sample::{SampleTraffic, Sizes as PacketSizes};
use stream::wire::traffic::Traffic;
use tempfile::TempDir;

const PROMPT: &str = "testpmd> ";
/// Options of testpmd's driver for each kind of ring.
const PACKED: &str = "packed_vq=1,mrg_rxbuf=0,in_order=1";
const VECTORISED: &str = "packed_vq=1,mrg_rxbuf=0,in_order=1,vectorized=1";
const OUT_OF_ORDER: &str = "packed_vq=1,mrg_rxbuf=0,in_order=0";
const SPLIT: &str = "mrg_rxbuf=0,in_order=1";
const DEFAULT: &str = "mrg_rxbuf=1";

/// A NIC with a socket for programs of DPDK.
struct Testbed {
    nic: Nic<GeneratorCommand>,
    queues: u32,
    control: VhostControl,
    _server: VhostServer,
    folder: TempDir,
}

/// Testpmd, attached to the NIC, and the folder of its files.
struct Testpmd {
    console: Console,
    _folder: TempDir,
}

/// How testpmd is started.
#[derive(Clone, Copy)]
struct Options {
    ring: &'static str,
    depth: u32,
    forward: &'static str,
}

impl Testbed {
    fn new(queues: u32, traffic: &Arc<Traffic>) -> Self {
        let live = Arc::new(LiveCounters::default());
        let generator = Generator::new(Arc::clone(traffic), live).unwrap();
        let control = VhostControl::default();
        let engine = VirtioNet::new(queues, flows(traffic).into(), control.clone());
        let nic = Nic::start(TestParams::default().params(), engine, generator).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let server =
            VhostServer::open(&folder.path().join("nic"), queues, control.clone()).unwrap();
        Self { nic, queues, control, _server: server, folder }
    }

    /// Starts testpmd without waiting for it. Returns `None`, with a note, if it is not installed.
    fn start(&self, options: Options) -> Option<Testpmd> {
        let folder = tempfile::tempdir().unwrap();
        let Options { ring, depth, forward } = options;
        let (path, queues) = (self.folder.path().join("nic"), self.queues);
        let mut command = Command::new("dpdk-testpmd");
        let cpu = cpus().1;
        command.env("RUNTIME_DIRECTORY", folder.path());
        command.args(["--lcores", &format!("0@{cpu},1@{cpu}"), "--no-huge", "--no-shconf"]);
        command.args(["-m", "256", "--no-pci", "--no-telemetry", "--force-max-simd-bitwidth=512"]);
        let path = path.display();
        command.arg(format!(
            "--vdev=net_virtio_user0,path={path},queues={queues},queue_size={depth},{ring}"
        ));
        command.args(["--", "--interactive", "--total-num-mbufs=32768", "--no-flush-rx"]);
        command.args(["--port-topology=loop", &format!("--forward-mode={forward}")]);
        command.args([format!("--rxd={depth}"), format!("--txd={depth}")]);
        command.args([format!("--rxq={queues}"), format!("--txq={queues}")]);
        match Console::start(&mut command) {
            Ok(console) => Some(Testpmd { console, _folder: folder }),
            Err(why) if why.kind() == ErrorKind::NotFound => {
                let why = "dpdk-testpmd is not installed: apt-get install dpdk-dev";
                machine::untested::note("stream: programs of DPDK", &why);
                None
            }
            Err(why) => panic!("{why}"),
        }
    }

    /// Starts testpmd and waits until it forwards.
    fn forward(&self, options: Options) -> Option<Testpmd> {
        let mut testpmd = self.start(options)?;
        testpmd.console.read_until(PROMPT, TIMEOUT).unwrap();
        self.await_rings(2 * self.queues);
        testpmd.command("start");
        Some(testpmd)
    }

    /// Waits until the NIC serves this number of rings.
    fn await_rings(&self, rings: u32) {
        let start = Instant::now();
        while self.control.started() != rings {
            assert!(start.elapsed() < TIMEOUT, "{} of {rings} rings", self.control.started());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn begin(&self, trial: Trial) -> Receiver<Report> {
        let (answer, report) = sync_channel(1);
        self.nic.command(GeneratorCommand::Start(trial, answer));
        report
    }

    fn run(&self, trial: Trial) -> Report {
        self.begin(trial).recv_timeout(TIMEOUT).unwrap()
    }
}

impl Testpmd {
    fn command(&mut self, line: &str) -> String {
        self.console.send(line).unwrap();
        self.console.read_until(PROMPT, TIMEOUT).unwrap()
    }
}

/// Returns packets whose addresses testpmd exchanges.
fn traffic(packets: u32, size: PacketSizes, destinations: u32) -> Arc<Traffic> {
    let sample = SampleTraffic { packets, size, sources: 1, destinations };
    let swap = |packet: &mut [u8]| packet[..12].rotate_left(6);
    Arc::new(sample.traffic().unwrap().with_expected(2, swap).unwrap())
}

/// Returns a trial of such packets.
fn swapped(count: u64, window: u64) -> Trial {
    Trial { expectation: Expectation::Images, ..closed(count, window) }
}

/// Whether DPDK's vectorised packed rings run on this CPU.
fn has_avx512() -> bool {
    let has = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl");
    if !has {
        machine::untested::note("stream: vectorised packed rings", &"the CPU has no AVX-512");
    }
    has
}

fn in_every_case(packets: u64) {
    let _alone = alone();
    let mut rings = vec![PACKED, OUT_OF_ORDER, SPLIT, DEFAULT];
    rings.extend(has_avx512().then_some(VECTORISED));
    for (queues, depth) in [(1, 256), (2, 128), (8, 256)] {
        let traffic = traffic(12 * queues, PacketSizes::Imix, queues);
        let testbed = Testbed::new(queues, &traffic);
        for ring in &rings {
            let options = Options { ring, depth, forward: "macswap" };
            let Some(mut testpmd) = testbed.forward(options) else { return };
            // A queue may have all packets in flight, and as many may wait for their buffers to be freed.
            let window = u64::from(depth) / 2 - 1;
            nothing_is_lost(&testbed.run(swapped(packets, window)), packets);
            let stats = testpmd.command("show fwd stats all");
            assert!(stats.contains(&format!("RX-packets: {packets} ")), "{ring}: {stats}");
            drop(testpmd);
            testbed.await_rings(0);
        }
        let refused = testbed.nic.counters().refused;
        assert_eq!(refused, 0, "testpmd obeys the rules");
    }
}

#[test]
fn nothing_is_lost_with_any_ring_and_any_number_of_queues() {
    in_every_case(10_000);
}

/// Takes minutes: `cargo test --release -p tollgate-stream --test nic -- --ignored`
#[test]
#[ignore = "takes minutes"]
fn long_of_a_billion_packets_through_testpmd() {
    in_every_case(1_000_000_000 / 15 + 1);
}

#[test]
fn bytes_over_pcie_are_those_of_packets_and_rings() {
    const PACKETS: u64 = 1000;
    let _alone = alone();
    let traffic = traffic(1, PacketSizes::One(64), 1);
    // Each packet has a header of 12 bytes, and a descriptor of 16 in each ring.
    let cases = [
        // One descriptor returns a batch of sent packets.
        (PACKED, 76 + 2 * 16, 76 + 16, (0, 16)),
        // An entry of 2 bytes too, and an entry of 8 to return it; and an index of 2 in each ring, once per batch.
        (SPLIT, 76 + 2 * 18, 76 + 2 * 8, (4, 4)),
    ];
    for (ring, read, written, per_batch) in cases {
        let testbed = Testbed::new(1, &traffic);
        let options = Options { ring, depth: 256, forward: "macswap" };
        let Some(_testpmd) = testbed.forward(options) else { return };
        let before = testbed.nic.current_counters();
        nothing_is_lost(&testbed.run(swapped(PACKETS, 50)), PACKETS);
        let moved = testbed.nic.current_counters().since(&before);
        // A batch has 1 to 50 packets.
        let within = |bytes: u64, each: u64, batch: u64| {
            let batches = bytes - PACKETS * each;
            (batch * PACKETS / 50..=batch * PACKETS).contains(&batches)
        };
        assert!(within(moved.bytes_read, read, per_batch.0), "{ring}: {moved:?}");
        assert!(within(moved.bytes_written, written, per_batch.1), "{ring}: {moved:?}");
        assert_eq!(moved.register_writes, 0);
    }
}

#[test]
fn packets_must_be_changed_as_expected() {
    let _alone = alone();
    let traffic = traffic(3, PacketSizes::One(64), 1);
    let testbed = Testbed::new(1, &traffic);
    let kinds = [Expectation::Same, Expectation::Byte, Expectation::Images];
    for (forward, does) in [("io", kinds[0]), ("macswap", kinds[2])] {
        let options = Options { ring: PACKED, depth: 256, forward };
        let Some(_testpmd) = testbed.forward(options) else { return };
        for expectation in kinds {
            let report = testbed.run(Trial { expectation, ..closed(1000, 50) });
            assert_eq!(report.received, 1000);
            let corrupted = if expectation == does { 0 } else { 1000 };
            assert_eq!(report.corrupted, corrupted, "{forward}, expected {expectation:?}");
        }
    }
}

#[test]
fn round_trips_are_timed_although_the_addresses_are_exchanged() {
    let _alone = alone();
    let traffic = traffic(1, PacketSizes::One(64), 1);
    let testbed = Testbed::new(1, &traffic);
    let options = Options { ring: SPLIT, depth: 256, forward: "macswap" };
    let Some(_testpmd) = testbed.forward(options) else { return };
    let report = testbed.run(Trial { times: true, ..swapped(50_000, 1) });
    nothing_is_lost(&report, 50_000);
    let times = report.times.unwrap();
    assert!(times.len() >= 50_000 / 20, "{} of 50,000 are timed", times.len());
    // With one packet in flight, the times are at most that of the whole trial, together.
    let all = times.mean() * times.len() as f64;
    let elapsed = (report.ended - report.start) as f64;
    // The histogram has three digits.
    assert!(all < 1.01 * elapsed, "{all} ticks in {elapsed} ticks");
}

#[test]
fn a_program_killed_in_any_state_harms_nothing() {
    let _alone = alone();
    let traffic = traffic(24, PacketSizes::Imix, 2);
    let testbed = Testbed::new(2, &traffic);
    for (round, ring) in [PACKED, SPLIT].into_iter().cycle().take(16).enumerate() {
        let options = Options { ring, depth: 256, forward: "macswap" };
        let endless = Trial { drain: 0, ..swapped(u64::MAX / 2, 100) };
        let report = testbed.begin(endless);
        // While it starts, while it attaches, and while it forwards.
        let mut testpmd =
            if round < 12 { testbed.start(options) } else { testbed.forward(options) };
        if testpmd.is_none() {
            testbed.nic.command(GeneratorCommand::Stop);
            report.recv_timeout(TIMEOUT).unwrap();
            return;
        }
        std::thread::sleep(Duration::from_millis(20 * round as u64));
        drop(testpmd.take());
        testbed.await_rings(0);
        testbed.nic.command(GeneratorCommand::Stop);
        let Report { corrupted, late, .. } = report.recv_timeout(TIMEOUT).unwrap();
        assert_eq!((corrupted, late), (0, 0));
        if round % 4 == 3 {
            let Some(_testpmd) = testbed.forward(options) else { return };
            nothing_is_lost(&testbed.run(swapped(1000, 50)), 1000);
        }
        testbed.await_rings(0);
    }
}
