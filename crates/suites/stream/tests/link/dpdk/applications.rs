//! Applications over a port: what they send leaves, in order, and nothing else.

use std::time::Instant;

use stream::application::{ApplicationSpec, BACKENDS, CoreNumber, backend_addresses};
use stream::link::{LinkKind, LinkParams, open};

use super::{AF_PACKET, serve};
use crate::applications::{TIMEOUT, TOGETHER, receive, send};
use crate::ends::{Network, SERVED, client, succeeds};
use crate::mixture::{self, InMemory};
use crate::{Pair, alone, state};

/// Packets of each application; the port's ring has 512.
const PACKETS: usize = 300;

/// Returns the commands of all applications, and what they run.
fn commands() -> Vec<(&'static str, ApplicationSpec)> {
    let (few, many) = (backend_addresses(3), backend_addresses(BACKENDS));
    let mut commands = vec![
        ("echo 1 1 1", ApplicationSpec::Echo { nops: 1 }),
        ("maglev --enso", ApplicationSpec::MaglevEnso { backends: many }),
        ("maglev --backends 3", ApplicationSpec::Maglev { backends: few }),
        ("key-value --keys 1000 --fill", ApplicationSpec::KeyValue { keys: 1000, filled: true }),
        ("telemetry --one-in 2 --seed 7", ApplicationSpec::Telemetry { one_in: 2, seed: 7 }),
    ];
    match ApplicationSpec::log_monitor(&[]) {
        Ok(monitor) => commands.push(("log-monitor", monitor)),
        Err(why) => machine::untested::note("stream: the log monitor over DPDK", &why),
    }
    commands
}

#[test]
fn every_application_does_over_a_port_what_it_does_in_memory() {
    let _alone = alone();
    let is_whole = |packet: &Vec<u8>| packet[20] & 0x3f == 0 && packet[21] == 0;
    let packets: Vec<_> = mixture::packets(PACKETS).into_iter().filter(is_whole).collect();
    let folder = tempfile::tempdir().unwrap();
    let next_hop = "02:00:00:00:00:77";
    for (command, spec) in commands() {
        let Some(pair) = Pair::create("stream: applications over DPDK") else { return };
        let mut expected = spec.with(CoreNumber::ONLY, InMemory(&packets)).unwrap();
        let mut words = format!("{command} --interval 100ms");
        if command == "maglev --backends 3" {
            words += &format!(" --next-hop {next_hop}");
            let ours = state(&pair.b, "veth1").unwrap().ethernet.unwrap().bytes();
            for packet in &mut expected.sent {
                packet[..6].copy_from_slice(&[2, 0, 0, 0, 0, 0x77]);
                packet[6..12].copy_from_slice(&ours);
            }
        }
        let mut running = serve(Some(&pair.b), folder.path(), &words, AF_PACKET);
        let here = LinkParams { interface: "veth0".into(), kind: LinkKind::AfPacket, queue: None };
        let mut here = pair.a.run(|| open(&here)).unwrap().unwrap();
        let (start, mut sent) = (Instant::now(), Vec::new());
        for frames in packets.chunks(TOGETHER) {
            send(&mut *here, frames);
            receive(&mut *here, &mut sent);
        }
        let all = format!(" {} packets", packets.len());
        while !running.says(" packets").contains(&all) || sent.len() < expected.sent.len() {
            receive(&mut *here, &mut sent);
            let so_far = sent.len();
            assert!(start.elapsed() < TIMEOUT, "{so_far} of {}", expected.sent.len());
        }
        let result = running.interrupted();
        let differs = sent.iter().zip(&expected.sent).position(|(a, b)| a != b);
        assert_eq!((sent.len(), differs), (expected.sent.len(), None), "{command}");
        for count in expected.counts {
            assert_eq!(result["counts"][count.name], count.value, "{command}: {result}");
        }
    }
}

#[test]
fn a_client_in_python_reaches_the_store_by_arp() {
    let _alone = alone();
    let test = "stream: a client of the key-value store over DPDK";
    let Some(network) = Network::create(test, &["python3"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = client(folder.path());
    let words = format!("key-value --keys 1000 --address {SERVED}");
    let port = "--vdev=net_af_packet0,iface=eth0";
    let store = serve(Some(&network.host), folder.path(), &words, port);
    let call = |words: &str| {
        succeeds(&network.client, &format!("python3 {} {SERVED} {words}", path.display()))
    };
    assert_eq!(call("get 7"), "missing\n");
    assert_eq!(call("set 7 42"), "done\n");
    assert_eq!(call("get 7"), "42\n");
    let result = store.interrupted();
    assert_eq!(result["counts"]["packets"], 3, "{result}");
    assert!(result["port"]["stray"].as_u64().unwrap() >= 1, "the ARP request: {result}");
}
