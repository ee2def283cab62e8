//! The command as a program of DPDK that is attached to the software NIC by vhost-user: two of our parts, with DPDK between them.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use machine::tsc::Tsc;
use stream::generator::{Check, Generator, GeneratorCommand, LiveCounters, Pace, Report, Trial};
use stream::nic::flow_table::looked_up;
use stream::nic::vhost::{VhostControl, VhostServer, VirtioNet};
use stream::nic::{Nic, NicParams};
use stream::wire::sample::{SampleTraffic, Sizes};

use super::{cpus, serve};
use crate::alone;
use crate::applications::TIMEOUT;
use crate::packets::numbers;

const COUNT: u64 = 100_000;

/// Sends packets through the echo with a number of queues. At most `window` are in flight; every byte is checked.
fn run(queues: u32, ring: &str, window: u64) {
    let sample =
        SampleTraffic { packets: 12 * queues, size: Sizes::Imix, sources: 1, destinations: queues };
    let traffic = Arc::new(sample.traffic().unwrap());
    let mut flows = Vec::new();
    for packet in traffic.packets() {
        let flow = looked_up(&packet.flow, packet.syn);
        if !flows.contains(&flow) {
            flows.push(flow);
        }
    }
    let generator = Generator::new(Arc::clone(&traffic), Arc::<LiveCounters>::default()).unwrap();
    let control = VhostControl::default();
    let engine = VirtioNet::new(queues, flows.into(), control.clone());
    let params = NicParams { cpu: cpus().0, ..NicParams::default() };
    let nic = Nic::start(params, engine, generator).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nic");
    let _server = VhostServer::open(&path, queues, control.clone()).unwrap();
    let port = format!(
        "--vdev=net_virtio_user0,path={},queues={queues},queue_size=256,{ring}",
        path.display()
    );
    let words = format!("echo 1 {queues} --steering hash --depth 256");
    let echo = serve(None, folder.path(), &words, &port);
    let start = Instant::now();
    while control.started() != 2 * queues {
        assert!(start.elapsed() < TIMEOUT, "{} of {queues} pairs of rings", control.started());
        std::thread::sleep(Duration::from_millis(1));
    }
    let tsc = Tsc::get().unwrap();
    let trial = Trial {
        pace: Pace::Closed { window },
        count: COUNT,
        duration: tsc.ticks(Duration::from_secs(3600)),
        drain: tsc.ticks(TIMEOUT),
        check: Check::All,
        ..Trial::default()
    };
    let (answer, report) = sync_channel(1);
    nic.command(GeneratorCommand::Start(trial, answer));
    let Report { sent, dropped, received, corrupted, late, .. } =
        report.recv_timeout(2 * TIMEOUT).unwrap();
    assert_eq!((sent, dropped, received, corrupted, late), (COUNT, 0, COUNT, 0, 0), "{ring}");
    let echoed = echo.interrupted();
    assert_eq!(numbers(&echoed, ["packets"]), [COUNT], "{echoed}");
    let names = ["received", "sent", "stray", "queues"];
    assert_eq!(numbers(&echoed["port"], names), [COUNT, COUNT, 0, queues.into()], "{echoed}");
    assert_eq!(nic.counters().refused, 0, "the program obeys the rules");
}

#[test]
fn all_packets_pass_the_software_nic() {
    let _alone = alone();
    let test = "stream: DPDK at the software NIC";
    if machine::topology::allowed_cpus().len() < 2 {
        return machine::untested::note(test, &"requires two CPUs");
    }
    if machine::untested::tsc(test).is_none() {
        return;
    }
    for (queues, ring) in [
        (1, "mrg_rxbuf=0,in_order=1"),
        (1, "packed_vq=1,mrg_rxbuf=0,in_order=1"),
        (2, "packed_vq=1,mrg_rxbuf=0,in_order=1"),
    ] {
        run(queues, ring, 100);
    }
}
