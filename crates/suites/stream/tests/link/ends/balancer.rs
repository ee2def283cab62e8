//! The load balancer between real clients and servers. Replies return directly to the client.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::network::{BACKENDS, INTERFACE, Network, SERVED};
use super::programs::{Program, kernel_count, run, succeeds};
use crate::alone;
use crate::processes::Running;

const HTTP: u16 = 80;
const IPERF: u16 = 5201;

/// The environment variable that holds the path of nginx if it is not installed.
const NGINX: &str = "TOLLGATE_NGINX";

/// Returns the path of nginx.
pub(crate) fn nginx() -> String {
    std::env::var(NGINX).unwrap_or_else(|_| "nginx".into())
}

/// Starts a web server at each backend, which answers with the address of the backend. Its pages and files are in the folder.
pub(crate) fn start_nginx(network: &Network, folder: &Path) -> Program {
    let mut servers = String::new();
    for address in BACKENDS {
        let root = folder.join(address);
        std::fs::create_dir(&root).unwrap();
        std::fs::write(root.join("index.html"), format!("{address}\n")).unwrap();
        writeln!(servers, "server {{ listen {address}:{HTTP}; root {}; }}", root.display())
            .unwrap();
    }
    let mut paths = String::new();
    for module in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        write!(paths, "{module}_temp_path {module};").unwrap();
    }
    // One process, which ends with this one.
    let config = format!(
        "daemon off; master_process off; pid nginx.pid; error_log stderr;\n\
         events {{}}\nhttp {{ access_log off; {paths}\n{servers} }}\n"
    );
    std::fs::write(folder.join("nginx.conf"), config).unwrap();
    let mut command = Command::new(nginx());
    command.arg("-p").arg(folder).args(["-c", "nginx.conf", "-e", "stderr"]);
    Program::start(&network.backends, &mut command).listens(&network.backends, HTTP)
}

/// Starts the balancer of some backends.
pub(crate) fn start(network: &Network, folder: &Path, backends: &[&str], words: &str) -> Running {
    let backends: Vec<_> = backends.iter().map(|each| format!("--backend {each}")).collect();
    let words = format!(
        "maglev --interface {INTERFACE} --link af-xdp --allow network --json --address {SERVED} \
         --next-hop {} {} {words}",
        network.backend,
        backends.join(" ")
    );
    let mut running = Running::start(Some(&network.host), folder, &words);
    running.says("ready");
    running
}

/// Asserts that no packet that passed the balancer was damaged, by the checks of the backends' kernel.
fn assert_undamaged(network: &Network, result: &Value) {
    for (protocol, name) in [
        ("Ip", "InHdrErrors"),
        ("Icmp", "InCsumErrors"),
        ("Tcp", "InCsumErrors"),
        ("Udp", "InCsumErrors"),
    ] {
        let count = kernel_count(&network.backends, protocol, name);
        assert_eq!(count, 0, "{name} of {protocol}: {result}");
    }
    let counts = result["counts"].as_object().unwrap();
    let refused = counts.iter().filter(|(name, _)| *name != "packets" && *name != "cache-misses");
    assert!(refused.map(|(_, count)| count).all(|count| *count == 0), "{result}");
}

/// Requests three pages by one connection from a local port. Returns the page, which is the same each time.
fn page(network: &Network, port: u16) -> String {
    let url = format!("http://{SERVED}/");
    let words = format!(
        "curl --silent --show-error --fail --noproxy * --max-time 30 --local-port {port} {url} {url} {url}"
    );
    let pages = succeeds(&network.client, &words);
    let pages: Vec<_> = pages.lines().collect();
    assert!(pages.len() == 3 && pages.iter().all(|page| *page == pages[0]), "{pages:?}");
    pages[0].to_owned()
}

#[test]
fn web_pages_of_all_backends_pass_the_balancer() {
    let _alone = alone();
    let test = "stream: ping and curl through the load balancer";
    let needed = ["ping", "curl", &nginx()];
    let Some(network) = Network::create(test, &needed) else { return };
    let folder = tempfile::tempdir().unwrap();
    let _nginx = start_nginx(&network, folder.path());
    let balancer = start(&network, folder.path(), &BACKENDS, "");
    let pinged = succeeds(&network.client, &format!("ping -n -c 5 -i 0.2 -W 10 {SERVED}"));
    assert!(pinged.contains(" 5 received"), "{pinged}");
    let requests = 24;
    // Fixed ports, so that the same flows are balanced each time.
    let pages: Vec<_> = (0..requests).map(|number| page(&network, 40_000 + number)).collect();
    for backend in BACKENDS {
        let answered = pages.iter().filter(|page| *page == backend).count();
        assert!((4..=20).contains(&answered), "{backend} answered {answered}: {pages:?}");
    }
    // A backend resets a connection of which it gets a packet that is not the first.
    assert_eq!(kernel_count(&network.backends, "Tcp", "OutRsts"), 0);
    let result = balancer.interrupted();
    assert_undamaged(&network, &result);
    // Of echo requests, and of TCP.
    assert_eq!(result["counts"]["cache-misses"], u64::from(requests) + 1, "{result}");
}

#[test]
fn bulk_traffic_of_tcp_and_udp_passes_the_balancer() {
    let _alone = alone();
    let test = "stream: iperf3 through the load balancer";
    let Some(network) = Network::create(test, &["iperf3"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut server = Command::new("iperf3");
    let server = server.args(["-s", "-4", "-p", &IPERF.to_string()]);
    let _server = Program::start(&network.backends, server).listens(&network.backends, IPERF);
    // Data and control are different connections, and must reach the same server.
    let balancer = start(&network, folder.path(), &BACKENDS[..1], "");
    let iperf = |words: &str| -> Value {
        let words = format!("iperf3 --json -4 -c {SERVED} -p {IPERF} {words}");
        serde_json::from_str(&succeeds(&network.client, &words)).unwrap()
    };
    let number =
        |of: &Value, name: &str| of[name].as_u64().unwrap_or_else(|| panic!("{name}: {of}"));
    let bytes = 32 << 20;
    let tcp = iperf(&format!("-n {bytes}"));
    let received = number(&tcp["end"]["sum_received"], "bytes");
    // The client ends when it has written the last byte; megabytes are still in buffers of its socket.
    assert!(received >= bytes / 2, "{received} of {bytes}");
    let (packets, length) = (400, 1200);
    // On a busy machine iperf3 may give up before its first packet; it then reports no sum.
    let datagrams = || iperf(&format!("--udp -b 2M -l {length} -n {}", packets * length));
    let ends = (0..5).map(|_| datagrams()["end"]["sum"].clone());
    let sum = &ends.into_iter().find(|sum| sum["packets"].is_u64()).unwrap();
    // On a busy machine a socket or a queue may drop some.
    let (sent, lost) = (number(sum, "packets"), number(sum, "lost_packets"));
    assert!(sent >= packets && lost < sent, "{sum}");
    let result = balancer.interrupted();
    assert_undamaged(&network, &result);
    let passed = number(&result, "packets");
    // Segments of at most 1448 B.
    assert!(passed > received / 1448 + sent - lost, "{result}");
}

#[test]
fn wrong_checksums_do_not_pass() {
    let _alone = alone();
    let test = "stream: wrong checksums of the load balancer";
    let Some(network) = Network::create(test, &["ping"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    // This variant does not update checksums.
    let balancer = start(&network, folder.path(), &BACKENDS, "--enso");
    let mut ping = Command::new("ping");
    let pinged = run(&network.client, ping.args(["-n", "-c", "3", "-i", "0.2", "-W", "2", SERVED]));
    let text = String::from_utf8_lossy(&pinged.stdout);
    assert!(!pinged.status.success() && text.contains(" 0 received"), "{text}");
    let result = balancer.interrupted();
    assert_eq!(result["counts"]["packets"], 3, "the requests reached the balancer: {result}");
}
