//! Each error is one line: what, the cause, and the fix.

use super::packets::nothing_remains_of;
use super::{AF_PACKET, EAL, cpus, start};
use crate::packets::folder;
use crate::processes::Running;
use crate::{Pair, alone};

#[test]
fn what_eal_and_drivers_refuse_is_one_line() {
    let _alone = alone();
    let (folder, _) = folder();
    let one_cpu = format!("-l {} --vdev=net_null0", cpus().0);
    for (words, eal, expected) in [
        ("echo", "--bogus", "unrecognized option '--bogus'"),
        ("echo", "-m", "option requires an argument"),
        ("echo", "-h", "it only prints its usage"),
        // An abbreviation, by which EAL ends the process.
        ("echo", "--hel", "EAL ended this program"),
        ("echo", "-d /nonexistent.so", "/nonexistent.so: cannot open shared object file"),
        ("echo", "--vdev=net_nosuch0", "failed to parse device \"net_nosuch0\""),
        ("echo", "--vdev=net_af_packet0,iface=nosuchif0", "there is none: "),
        ("echo", "--vdev=net_af_packet0,iface=nosuchif0", "No such device"),
        ("echo", "--vdev=net_virtio_user0,path=nosuchsocket", "connect error, No such file"),
        ("echo", "", "use a port of DPDK: there is none; bind one"),
        ("echo", "--vdev=net_null0 --vdev=net_null1", "there are 2: net_null0, net_null1; select"),
        ("echo 2 1 --steering hash", &one_cpu, "on 2 cores: EAL has 1 for it; give EAL 3 CPUs"),
        ("echo --depth 32768", "--vdev=net_null0", "allocate the packet buffers of net_null0: "),
    ] {
        let running = start(None, folder.path(), words, eal);
        let process = running.id();
        let line = running.refused(1);
        assert!(line.contains(expected), "{words} {eal}: {line}");
        nothing_remains_of(process);
    }
}

#[test]
fn a_port_with_too_few_queues_is_refused() {
    let _alone = alone();
    let Some(pair) = Pair::create("stream: queues of DPDK") else { return };
    let (folder, _) = folder();
    let running = start(Some(&pair.b), folder.path(), "echo 1 2 --steering hash", AF_PACKET);
    let line = running.refused(1);
    assert!(line.contains("use 2 queues of net_af_packet0: it has 1; use fewer"), "{line}");
}

#[test]
fn options_that_do_not_fit_are_usage_errors() {
    let (folder, _) = folder();
    for (words, expected) in [
        ("echo 1 2 --allow network", "add --steering hash"),
        ("echo 2 1 --steering round-robin --allow network", "add --steering hash"),
        ("echo 1 1 --steering round-robin --allow network", "--steering round-robin: a port"),
        ("echo --queue 1 --allow network", "--queue: is about an interface of Linux"),
        ("echo 64 64 --steering hash --allow network", "use at most 1024"),
        ("echo", "add --allow network"),
    ] {
        let port = format!("--dpdk={EAL} --vdev=net_null0");
        let line = Running::start_and(None, folder.path(), words, &port).refused(2);
        assert!(line.contains(expected), "{line}");
    }
}
