//! Packets pass an interface: all of them, in order and unchanged; others do not count.

use std::path::Path;

use serde_json::Value;
use stream::generator::TOUCHED;
use stream::link::namespace::Namespace;
use stream::link::{LinkKind, LinkParams, open};
use stream::wire::sample::{SampleTraffic, Sizes};
use stream::wire::traffic::Traffic;
use stream::wire::{Mark, MarkPosition, pcap};

use crate::processes::Running;
use crate::{Pair, alone, state};

/// Packets of a run: fewer than each queue holds but that of a veth interface, 256, so that few are under way at a time.
pub(crate) const COUNT: u64 = 1000;
const RATE: &str = "2kpps";

/// Writes a packet file of all sizes to two destinations.
pub(crate) fn folder() -> (tempfile::TempDir, Traffic) {
    let folder = tempfile::tempdir().unwrap();
    let sample = SampleTraffic { packets: 24, size: Sizes::Imix, sources: 1, destinations: 2 };
    let traffic = sample.traffic().unwrap();
    pcap::write(&folder.path().join("x.pcap"), &traffic).unwrap();
    (folder, traffic)
}

/// Sends frames from an interface.
pub(crate) fn inject(namespace: &Namespace, interface: &str, frames: &[Vec<u8>]) {
    let params = LinkParams { interface: interface.into(), kind: LinkKind::AfPacket, queue: None };
    let send = || {
        let mut link = open(&params).unwrap();
        let mut places = Vec::new();
        link.reserve(frames.len(), &mut places).unwrap();
        for (frame, place) in frames.iter().zip(&places) {
            // SAFETY: the frame has space for the longest packet.
            unsafe { place.copy_from_nonoverlapping(frame.as_ptr(), frame.len()) };
        }
        let lengths: Vec<_> = frames.iter().map(|frame| frame.len() as u32).collect();
        link.send(&lengths).unwrap();
    };
    namespace.run(send).unwrap();
}

/// Packets that Linux sends, or that are similar to those of the traffic: ARP, IPv6, and another flow.
pub(crate) fn strays(traffic: &Traffic) -> Vec<Vec<u8>> {
    let with_type = |ethertype: [u8; 2]| {
        let mut frame = traffic.bytes(0).to_vec();
        frame[12..14].copy_from_slice(&ethertype);
        frame
    };
    vec![with_type([0x08, 0x06]), with_type([0x86, 0xdd])]
}

pub(crate) fn generate(namespace: &Namespace, folder: &Path, words: &str) -> Running {
    let words =
        format!("generate x.pcap {RATE} --count {COUNT} --rtt --allow network --json {words}");
    let mut running = Running::start(Some(namespace), folder, &words);
    running.says("sending through");
    running
}

pub(crate) fn echo(namespace: &Namespace, folder: &Path, words: &str) -> Running {
    let words = format!("echo --allow network --json {words}");
    let mut running = Running::start(Some(namespace), folder, &words);
    running.says("ready");
    running
}

pub(crate) fn numbers<const N: usize>(json: &Value, names: [&str; N]) -> [u64; N] {
    names.map(|name| json[name].as_u64().unwrap_or_else(|| panic!("{name} of {json}")))
}

pub(crate) fn check(sent: &Value, what: &str) {
    let names = ["sent", "received", "lost", "corrupted", "late"];
    assert_eq!(numbers(sent, names), [COUNT, COUNT, 0, 0, 0], "{what}: {sent}");
    let times = &sent["rtt_ns"];
    assert!(times["min"].as_f64().unwrap() > 0.0 && times["max"].as_f64() >= times["p50"].as_f64());
}

#[test]
fn all_packets_pass_a_veth_pair_in_order_and_strays_do_not_count() {
    let _alone = alone();
    let Some(pair) = Pair::create("stream: links on a veth pair") else { return };
    let (folder, traffic) = folder();
    for (here, there) in [("af-xdp", "af-xdp"), ("af-packet", "af-packet"), ("af-xdp", "af-packet")]
    {
        let echo = echo(&pair.b, folder.path(), &format!("--interface veth1 --link {there}"));
        let words = format!("--interface veth0 --link {here}");
        let generator = generate(&pair.a, folder.path(), &words);
        let strays = strays(&traffic);
        // To the echo, and to the generator.
        inject(&pair.a, "veth0", &strays);
        // Another flow, which the echo returns and the generator does not count.
        let mut other = traffic.bytes(0).to_vec();
        other[29] ^= 0x40;
        inject(&pair.b, "veth1", &[strays.clone(), vec![other]].concat());
        let sent = generator.ends_with_json(0);
        check(&sent, &words);
        let echoed = echo.interrupted();
        let [packets, stray] = numbers(&echoed, ["packets", "stray"]);
        assert!(packets == COUNT && stray >= strays.len() as u64, "{echoed}");
        assert!(numbers(&sent, ["stray"])[0] > strays.len() as u64, "{sent}");
        let (is_xdp, zero_copy) = (here == "af-xdp", &sent["zero_copy"]);
        // veth has no zero-copy, and runs XDP programs in its driver.
        assert_eq!(zero_copy.as_bool(), is_xdp.then_some(false), "{sent}");
        assert_eq!(sent["native_xdp"].as_bool(), is_xdp.then_some(true), "{sent}");
    }
}

#[test]
fn all_packets_pass_a_tap_interface() {
    let _alone = alone();
    let test = "stream: TAP";
    let Some(pair) = Pair::create(test) else { return };
    if !Path::new("/dev/net/tun").exists() {
        machine::untested::note(test, &"requires /dev/net/tun");
        return;
    }
    let (folder, _) = folder();
    for kind in ["af-packet", "af-xdp"] {
        // The wire of the interface is one program, the other uses the interface.
        let wire = echo(&pair.a, folder.path(), "--interface tap0 --link tap");
        let generator =
            generate(&pair.a, folder.path(), &format!("--interface tap0 --link {kind}"));
        check(&generator.ends_with_json(0), kind);
        assert_eq!(numbers(&wire.interrupted(), ["packets"]), [COUNT]);
        assert_eq!(state(&pair.a, "tap0"), None);
    }
}

#[test]
fn a_changed_payload_is_found() {
    let _alone = alone();
    let Some(pair) = Pair::create("stream: corrupted packets of a link") else { return };
    let (folder, traffic) = folder();
    // The first two packets of the first flow, as an echo returns them.
    let [mut changed, intact] = [0, 1].map(|number| {
        let mut frame = traffic.bytes(0).to_vec();
        // Packet 0 of a file, whose marks are in the Ethernet addresses.
        let mark = Mark { index: 0, number, stamp: 0 };
        mark.put(MarkPosition::Addresses, &mut frame);
        frame[TOUCHED] = frame[TOUCHED].wrapping_add(1);
        frame
    });
    changed[50] ^= 1;
    let words = "generate x.pcap 500pps --count 1000 --interface veth0 --allow network --json";
    let mut generator = Running::start(Some(&pair.a), folder.path(), words);
    generator.says(" s  sent");
    inject(&pair.b, "veth1", &[changed, intact]);
    let sent = generator.ends_with_json(1);
    assert_eq!(numbers(&sent, ["received", "corrupted", "late"]), [2, 1, 0], "{sent}");
    assert_eq!(numbers(&sent, ["lost"]), [COUNT - 2], "nothing echoes: {sent}");
}
