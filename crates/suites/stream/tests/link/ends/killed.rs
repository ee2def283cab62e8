//! Nothing remains of a network, its programs and an application after their test was killed.

use std::path::Path;
use std::time::Duration;

use super::balancer::{nginx, start, start_nginx};
use super::network::{BACKENDS, Network};
use crate::alone;
use crate::kill::{is_used, number_of, soon};
use crate::processes::Running;

/// The environment variable that holds the folder of the test that is killed.
const FOLDER: &str = "TOLLGATE_TEST_FOLDER";

#[test]
#[ignore = "what the other test kills"]
fn the_network_of_a_killed_test() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let folder = Path::new(&folder);
    let Some(network) = Network::create("stream: a killed network", &[]) else { return };
    let _nginx = start_nginx(&network, folder);
    let _balancer = start(&network, folder, &BACKENDS, "");
    let namespaces = [&network.client, &network.host, &network.backends].map(number_of);
    eprintln!("namespaces {}", namespaces.map(|number| number.to_string()).join(" "));
    std::thread::sleep(Duration::from_secs(600));
}

#[test]
fn no_program_and_no_namespace_remains_of_a_killed_network() {
    let _alone = alone();
    let test = "stream: a network after SIGKILL";
    let Some(_) = Network::create(test, &[&nginx()]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let name = "ends::killed::the_network_of_a_killed_test";
    let mut running = Running::start_test(name, (FOLDER, folder.path()));
    let line = running.says("namespaces ");
    let (_, numbers) = line.split_once("namespaces ").unwrap();
    let numbers: Vec<u64> = numbers.split_whitespace().map(|each| each.parse().unwrap()).collect();
    // The client's has no process: its programs end before their test goes on.
    let used: Vec<_> = numbers.iter().map(|number| is_used(*number)).collect();
    assert_eq!(used, [false, true, true]);
    running.killed();
    soon("a program remains", || numbers.iter().all(|number| !is_used(*number)));
}
