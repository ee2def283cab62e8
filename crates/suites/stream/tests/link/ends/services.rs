//! The log monitor and the key-value store with ordinary clients.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use stream::link::interface::find;
use stream::link::namespace::Namespace;

use super::network::{INTERFACE, Network, SERVED, can_run, set_offloads};
use super::programs::{run, succeeds};
use crate::alone;
use crate::processes::Running;

/// Starts an application in a namespace.
fn start_at(namespace: &Namespace, link: &str, folder: &Path, words: &str) -> Running {
    let words = format!("{words} {link} --allow network --json");
    let mut running = Running::start(Some(namespace), folder, &words);
    running.says("ready");
    running
}

/// Starts an application at the served address.
fn start(network: &Network, folder: &Path, words: &str) -> Running {
    let link = format!("--interface {INTERFACE} --link af-xdp --address {SERVED}");
    start_at(&network.host, &link, folder, words)
}

#[test]
fn lines_of_logger_match_if_they_report_a_failure() {
    let _alone = alone();
    let test = "stream: logger and the log monitor";
    if let Err(why) = applications::log::hyperscan::Hyperscan::load() {
        return machine::untested::note(test, &why);
    }
    let Some(network) = Network::create(test, &["logger"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let monitor = start(&network, folder.path(), "log-monitor");
    let log = |user: &str, what: &str| {
        let mut logger = Command::new("logger");
        logger.args(["--udp", "--server", SERVED, "--port", "514", "--rfc3164"]);
        logger.args(["--tag", "sshd", "--id=77"]);
        logger.arg(format!("{what} password for {user} from 192.0.2.7 port 9 ssh2"));
        let output = run(&network.client, &mut logger);
        assert!(output.status.success(), "{output:?}");
    };
    log("root", "Accepted");
    for user in ["root", "guest", "invalid user oracle"] {
        log(user, "Failed");
    }
    log("guest", "Accepted");
    let result = monitor.interrupted();
    let counts = ["packets", "matching-lines"].map(|name| result["counts"][name].as_u64());
    assert_eq!(counts, [Some(5), Some(3)], "{result}");
}

/// Writes the client of docs/clients.md to a folder.
pub(crate) fn client(folder: &Path) -> PathBuf {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/clients.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once("```python\n").expect("the page contains the client");
    let (text, _) = rest.split_once("```\n").unwrap();
    let path = folder.join("kv.py");
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn a_client_in_python_sets_and_gets_values() {
    let _alone = alone();
    let test = "stream: a client of the key-value store";
    let Some(network) = Network::create(test, &["python3"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = client(folder.path());
    let store = start(&network, folder.path(), "key-value --keys 1000");
    let call = |words: &str| {
        succeeds(&network.client, &format!("python3 {} {SERVED} {words}", path.display()))
    };
    assert_eq!(call("get 7"), "missing\n");
    assert_eq!(call("set 7 42"), "done\n");
    let largest = u64::MAX;
    assert_eq!(call(&format!("set {largest} {largest}")), "done\n");
    assert_eq!(call("get 7"), "42\n");
    assert_eq!(call(&format!("get {largest}")), format!("{largest}\n"));
    assert_eq!(call("set 7 43"), "done\n");
    assert_eq!(call("get 7"), "43\n");
    let result = store.interrupted();
    assert_eq!(result["counts"]["wrong-checksums"], 0, "{result}");
}

#[test]
fn packets_to_other_addresses_are_stray_unless_all_are_served() {
    let _alone = alone();
    let test = "stream: addresses of the key-value store";
    let Some(network) = Network::create(test, &["python3"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = client(folder.path());
    let other = "10.0.0.101";
    let host = network.host.run(|| find(INTERFACE)).unwrap().unwrap().ethernet.unwrap();
    succeeds(&network.client, &format!("ip neigh add {other} lladdr {host} dev {INTERFACE}"));
    let set = || {
        let mut command = Command::new("python3");
        run(&network.client, command.arg(&path).args([other, "set", "7", "42"])).status.success()
    };
    let store = start(&network, folder.path(), "key-value --keys 1000");
    assert!(!set(), "another address answers");
    let result = store.interrupted();
    assert_eq!(result["packets"], 0, "{result}");
    assert!(result["stray"].as_u64().unwrap() >= 4, "the requests arrived: {result}");
    let all = format!("--interface {INTERFACE}");
    let store = start_at(&network.host, &all, folder.path(), "key-value --keys 1000");
    assert!(set(), "no address is excluded");
    store.interrupted();
}

#[test]
fn the_store_drops_packets_whose_checksums_were_left_to_a_veth_interface() {
    let _alone = alone();
    let test = "stream: checksum offloads of a client";
    let Some(network) = Network::create(test, &["python3"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = client(folder.path());
    let store = start(&network, folder.path(), "key-value --keys 1000");
    let set = || -> Output {
        let mut command = Command::new("python3");
        run(&network.client, command.arg(&path).args([SERVED, "set", "7", "42"]))
    };
    set_offloads(&network.client, "on");
    let failed = set();
    let errors = String::from_utf8_lossy(&failed.stderr);
    assert!(failed.status.code() == Some(1) && errors.contains("no answer"), "{failed:?}");
    set_offloads(&network.client, "off");
    let answered = set();
    assert!(answered.status.success(), "{answered:?}");
    let result = store.interrupted();
    let dropped = result["counts"]["wrong-checksums"].as_u64().unwrap();
    assert_eq!(result["counts"]["packets"], dropped + 1, "{result}");
}

#[test]
fn a_client_reaches_the_store_at_the_other_end_of_a_tap_interface() {
    let _alone = alone();
    let test = "stream: a client of the key-value store at a TAP interface";
    if !can_run(test, &["ip", "python3"]) {
        return;
    }
    if !Path::new("/dev/net/tun").exists() {
        return machine::untested::note(test, &"requires /dev/net/tun");
    }
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(why) => return machine::untested::note(test, &why),
    };
    let folder = tempfile::tempdir().unwrap();
    let path = client(folder.path());
    let link = format!("--interface tap0 --link tap --address {SERVED}");
    let store = start_at(&namespace, &link, folder.path(), "key-value --keys 1000");
    succeeds(&namespace, "ip address add 10.0.1.2/16 dev tap0");
    let set = succeeds(&namespace, &format!("python3 {} {SERVED} set 7 42", path.display()));
    assert_eq!(set, "done\n");
    let result = store.interrupted();
    assert_eq!(result["counts"]["packets"], 1, "{result}");
}
