//! All packets pass a port, in order and unchanged, and nothing remains.

use std::path::Path;

use super::{AF_PACKET, cpus, serve};
use crate::packets::{COUNT, check, folder, generate, inject, numbers, strays};
use crate::{Pair, alone, state};

/// Asserts that no file of EAL remains of a process.
pub(super) fn nothing_remains_of(process: u32) {
    let prefix = format!("tollgate-dpdk-{process}-");
    let files = std::fs::read_dir(std::env::temp_dir()).unwrap().flatten();
    let files: Vec<_> = files.map(|file| file.file_name()).collect();
    let remains = |name: &std::ffi::OsString| name.to_string_lossy().starts_with(&prefix);
    assert!(!files.iter().any(remains), "{prefix}");
}

#[test]
fn all_packets_pass_a_port_and_strays_do_not_count() {
    let _alone = alone();
    let Some(pair) = Pair::create("stream: ports of DPDK") else { return };
    let (folder, traffic) = folder();
    let echo = serve(Some(&pair.b), folder.path(), "echo", AF_PACKET);
    let process = echo.id();
    let words = format!("--interface veth0 --link af-packet --cpu {}", cpus().0);
    let generator = generate(&pair.a, folder.path(), &words);
    let strays = strays(&traffic);
    inject(&pair.a, "veth0", &strays);
    check(&generator.ends_with_json(0), AF_PACKET);
    let echoed = echo.interrupted();
    let [packets] = numbers(&echoed, ["packets"]);
    let port = &echoed["port"];
    let [stray, received, sent] = numbers(port, ["stray", "received", "sent"]);
    assert_eq!((packets, sent, received), (COUNT, COUNT, COUNT + stray), "{echoed}");
    assert!(stray >= strays.len() as u64, "{echoed}");
    assert_eq!(port["driver"], "net_af_packet", "{echoed}");
    assert_eq!(echoed["interface"], "net_af_packet0");
    let ours = state(&pair.b, "veth1").unwrap().ethernet.unwrap();
    assert_eq!(port["ethernet"], ours.to_string(), "{echoed}");
    let dropped = port["dropped"].as_object().unwrap();
    assert!(dropped.len() == 4 && dropped.values().all(|count| *count == 0), "{echoed}");
    nothing_remains_of(process);
}

#[test]
fn all_packets_pass_a_tap_port_whose_interface_is_removed() {
    let _alone = alone();
    let test = "stream: TAP ports of DPDK";
    let Some(pair) = Pair::create(test) else { return };
    if !Path::new("/dev/net/tun").exists() {
        return machine::untested::note(test, &"requires /dev/net/tun");
    }
    let (folder, _) = folder();
    let echo = serve(Some(&pair.a), folder.path(), "echo", "--vdev=net_tap0,iface=dtap0");
    let process = echo.id();
    let words = format!("--interface dtap0 --link af-packet --cpu {}", cpus().0);
    check(&generate(&pair.a, folder.path(), &words).ends_with_json(0), "net_tap");
    let echoed = echo.interrupted();
    assert_eq!(numbers(&echoed, ["packets"]), [COUNT], "{echoed}");
    assert_eq!(state(&pair.a, "dtap0"), None);
    nothing_remains_of(process);
}
