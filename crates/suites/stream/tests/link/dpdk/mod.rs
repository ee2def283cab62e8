//! Applications over ports of DPDK: its software ports, in place of a card.

mod applications;
mod errors;
mod packets;
mod virtio;

use std::path::Path;

use stream::link::namespace::Namespace;

use crate::processes::Running;

/// Options of EAL that need neither huge pages nor cards.
const EAL: &str = "--no-huge -m 64 --no-pci";
/// A port at the second interface of a pair.
const AF_PACKET: &str = "--vdev=net_af_packet0,iface=veth1";

/// Returns the CPUs of the generator and of the application.
fn cpus() -> (usize, usize) {
    let allowed = machine::topology::allowed_cpus();
    (allowed[0], allowed[allowed.len() - 1])
}

/// Starts an application with options of EAL.
fn start(namespace: Option<&Namespace>, folder: &Path, words: &str, eal: &str) -> Running {
    let eal = format!("--dpdk={EAL} {eal}");
    Running::start_and(namespace, folder, &format!("{words} --allow network --json"), &eal)
}

/// Starts an application on the second CPU, and waits until it is ready.
fn serve(namespace: Option<&Namespace>, folder: &Path, words: &str, port: &str) -> Running {
    let (generator, application) = cpus();
    let mut running =
        start(namespace, folder, words, &format!("--lcores 0@{generator},1@{application} {port}"));
    running.says("ready");
    running
}
